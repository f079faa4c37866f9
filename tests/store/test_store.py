"""The store as a whole: group commit, and what it makes of lost answers and rivals."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from milepost.core.errors import FencedError, NotFoundError, OverloadedError
from milepost.store import new_runs, runs
from milepost.store.address import Address
from milepost.store.engine import CollisionError, DatabaseUnavailableError, Engine
from milepost.store.records import Append, Claim, InboxMovedError, Request
from milepost.store.store import Store
from milepost.store.work import Work
from tests.store.breaking import BreakingEngine
from tests.store.conftest import opened, serving
from tests.store.making import (
    TENANT,
    a_finish,
    a_park,
    a_run,
    a_worker,
    an_append,
    behind,
    claims,
    events,
    finished,
    held,
    lost,
    queued,
    status,
    types,
)

T = TypeVar("T")


async def test_a_run_that_was_created_is_queued_with_its_first_event(store: Store) -> None:
    run = a_run()

    created = await store.create(run)

    assert created == new_runs.Created(run.id, "queued", queued=run.queued)
    assert types(await events(store, run.id)) == ["run.queued"]


async def test_runs_created_at_once_are_all_there(store: Store) -> None:
    wanted = [a_run() for _ in range(100)]

    created = await asyncio.gather(*(store.create(run) for run in wanted))

    assert [item.run_id for item in created] == [run.id for run in wanted]
    assert {await status(store, run.id) for run in wanted} == {"queued"}


async def test_of_runs_created_at_once_in_a_session_one_is_active(store: Store) -> None:
    first = await queued(store)

    created = await asyncio.gather(*(store.create(behind(first)) for _ in range(5)))

    assert {item.status for item in created} == {"blocked"}


async def test_one_unknown_session_does_not_spoil_the_others_of_its_group(store: Store) -> None:
    good = [a_run() for _ in range(5)]
    bad = a_run(session_is_new=False)

    outcomes = await asyncio.gather(
        *(store.create(run) for run in (*good, bad)), return_exceptions=True
    )

    assert isinstance(outcomes[-1], NotFoundError)
    assert [item for item in outcomes[:-1] if isinstance(item, BaseException)] == []


async def test_requests_with_one_key_at_once_make_one_run(store: Store) -> None:
    request = Request("POST /v1/runs", "key-1", "hash")

    created = await asyncio.gather(*(store.create(a_run(request=request)) for _ in range(5)))

    assert len({item.run_id for item in created}) == 1
    assert sorted(item.replayed for item in created) == [False, True, True, True, True]


async def test_a_full_queue_refuses_but_what_fits_goes_in(engine: Engine) -> None:
    async with serving(Store(engine, queue_max=3)) as store:
        outcomes = await asyncio.gather(
            *(store.create(a_run()) for _ in range(5)), return_exceptions=True
        )

    refused = [item for item in outcomes if isinstance(item, OverloadedError)]
    assert len(refused) == 2
    assert all(error.retryable for error in refused)


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("keyed", [False, True])
async def test_a_create_whose_answer_was_lost_is_found_again(
    engine: Engine, others: int, *, keyed: bool
) -> None:
    breaking = BreakingEngine(engine)
    request = Request("POST /v1/runs", "key-1", "hash") if keyed else None
    wanted = [a_run(request=request), *(a_run() for _ in range(others))]
    async with serving(Store(breaking)) as store:
        breaking.breaks = 1

        created = await asyncio.gather(*(store.create(run) for run in wanted))

        assert [item.run_id for item in created] == [run.id for run in wanted]
        assert [types(await events(store, run.id)) for run in wanted] == [["run.queued"]] * len(
            wanted
        )


@pytest.mark.parametrize("make", [an_append, a_park, a_finish])
async def test_an_append_whose_answer_was_lost_is_written_once_and_not_called_fenced(
    engine: Engine, make: Callable[[Claim], Append]
) -> None:
    breaking = BreakingEngine(engine)
    async with serving(Store(breaking)) as store:
        claim = await held(store)
        item = make(claim)
        breaking.breaks = 1

        await store.append(item)

        assert types(await events(store, claim.run_id))[2:] == [item.entries[0].type]


async def test_an_append_outlasts_an_outage_of_any_length(engine: Engine) -> None:
    breaking = BreakingEngine(engine)
    async with serving(Store(breaking, waits_s=(0,))) as store:
        claim = await held(store)
        breaking.absences = 50

        await store.append(an_append(claim))

        assert types(await events(store, claim.run_id))[2:] == ["step.started"]


async def test_an_append_whose_answer_was_lost_is_looked_up_when_the_database_is_back(
    engine: Engine,
) -> None:
    """The repeated insert collides, and then the database is away again before the log is read."""

    class AwayAfterTheCollision(BreakingEngine):
        left = 3

        async def write(self, work: Work[T]) -> T:
            try:
                return await super().write(work)
            except CollisionError:
                self.absences, self.left = self.left, 0
                raise

    breaking = AwayAfterTheCollision(engine)
    async with serving(Store(breaking, waits_s=(0,))) as store:
        claim = await held(store)
        breaking.breaks = 1

        await store.append(an_append(claim))

        assert types(await events(store, claim.run_id))[2:] == ["step.started"]


async def test_who_was_taken_over_during_an_outage_is_told_so_after_it(engine: Engine) -> None:
    breaking = BreakingEngine(engine)
    async with serving(Store(breaking, waits_s=(0,))) as store:
        zombie = await held(store)
        await lost(store, zombie)
        breaking.absences = 20

        with pytest.raises(FencedError):
            await store.append(an_append(zombie))


async def test_the_inbox_is_read_when_the_database_is_back(engine: Engine) -> None:
    breaking = BreakingEngine(engine)
    async with serving(Store(breaking, waits_s=(0,))) as store:
        claim = await held(store)
        await store.write(runs.deliver(TENANT, claim.run_id, runs.Letter("x", "{}", "approval", 1)))
        breaking.absences = 20

        seen, found = await store.inbox(TENANT, claim.run_id, 0)

    assert (seen, [letter.kind for letter in found]) == (1, ["x"])


async def test_a_database_that_is_away_is_not_asked_again_at_once(engine: Engine) -> None:
    breaking = BreakingEngine(engine)
    async with serving(Store(breaking, waits_s=(3_600,))) as store:
        breaking.absences, asked_before = 1, breaking.asked
        asking = asyncio.create_task(store.inbox(TENANT, "run_1", 0))
        await breaking.back.wait()
        await asyncio.sleep(0)

        asked = breaking.asked - asked_before

        asking.cancel()
        await asyncio.wait({asking})
    assert asked == 1


async def test_an_append_that_landed_counts_even_when_its_run_went_on_since(
    engine: Engine,
) -> None:
    breaking = BreakingEngine(engine)
    async with serving(Store(breaking)) as store:
        claim = await held(store)
        parked = a_park(claim)
        await store.append(parked)
        await store.write(runs.deliver(TENANT, claim.run_id, runs.Letter("x", "{}", "approval", 1)))

        seen, _ = await store.append(parked)

        assert seen == 0


async def test_who_was_taken_over_is_fenced_and_its_group_is_written(store: Store) -> None:
    zombie = await held(store)
    successor = await lost(store, zombie)
    others = [await held(store) for _ in range(3)]

    outcomes = await asyncio.gather(
        *(store.append(an_append(claim)) for claim in (zombie, *others)), return_exceptions=True
    )

    assert isinstance(outcomes[0], FencedError)
    assert [item for item in outcomes[1:] if isinstance(item, BaseException)] == []
    assert len(await events(store, zombie.run_id)) == successor.head


async def test_a_message_that_came_in_sends_only_its_own_run_back(store: Store) -> None:
    first, second = await held(store), await held(store)
    await store.write(runs.deliver(TENANT, first.run_id, runs.Letter("x", "{}", "approval", 1)))

    outcomes = await asyncio.gather(
        *(store.append(a_park(claim)) for claim in (first, second)), return_exceptions=True
    )

    assert isinstance(outcomes[0], InboxMovedError)
    assert outcomes[1] == (0, ())
    assert await status(store, second.run_id) == "waiting"


async def test_ending_a_run_sets_the_next_of_its_session_free(store: Store) -> None:
    run = a_run()
    claim = await held(store, run)
    second, third = await queued(store, behind(run)), await queued(store, behind(run))

    _, freed = await store.append(a_finish(claim))

    assert freed == (second.id,)
    assert [await status(store, item.id) for item in (second, third)] == ["queued", "blocked"]


async def test_two_processes_share_a_session_s_turn(address: Address) -> None:
    async with (
        opened(address) as one_engine,
        opened(address) as other_engine,
        serving(Store(one_engine)) as one,
        serving(Store(other_engine)) as other,
    ):
        ended = await finished(one)
        run = a_run(session_id=ended.session_id, session_is_new=False)
        again = replace(run, id=run.id + "b")

        created = await asyncio.gather(one.create(run), other.create(again))

        assert sorted(item.status for item in created) == ["blocked", "queued"]
        assert len(await claims(one, await a_worker(one))) == 1


async def test_whether_the_database_does_what_it_is_asked_is_told(engine: Engine) -> None:
    breaking = BreakingEngine(engine)
    told: list[str | None] = []
    store = Store(breaking, told=lambda error: told.append(str(error) if error else None))
    breaking.absences = 2

    with pytest.raises(DatabaseUnavailableError):
        await store.read(runs.find(TENANT, "run_1"))
    with pytest.raises(DatabaseUnavailableError):
        await store.write(runs.find(TENANT, "run_1"))
    with pytest.raises(NotFoundError):  # An answer, if no news of the database's health.
        await store.read(runs.find(TENANT, "run_1"))
    async with serving(store):
        await store.create(a_run())

    assert told == ["the database is away", "the database is away", None]
