"""Runs that come to a session in which others are: refused, in their place, or said to them."""

from dataclasses import replace

import orjson
import pytest

from milepost.core.errors import NotFoundError
from milepost.store import arrivals, log, queue, runs
from milepost.store.new_runs import Created
from milepost.store.records import IfActive, NewRun, Request
from milepost.store.store import Store
from tests.store.making import (
    NOW_MS,
    TENANT,
    a_finish,
    a_run,
    a_worker,
    an_entry,
    an_id,
    behind,
    claims,
    finished,
    held,
    letters,
    queued,
    status,
    waiting,
)

REQUEST = Request("POST /v1/runs", "key-1", "hash")


def after(first: NewRun, then: str, **changes: object) -> NewRun:
    """Return a run of the same session that does this about those that are there."""
    said = (orjson.dumps({"message_id": an_id("ste")}).decode(),) if then == "steer" else ()
    ids = tuple(orjson.loads(each)["message_id"] for each in said)
    wish = IfActive(then, "ann", said, ids)  # type: ignore[arg-type]
    return behind(first, **{"if_active": wish, **changes})


async def kinds(store: Store, run_id: str) -> list[str]:
    return [letter.kind for letter in await letters(store, run_id)]


async def rolled_back(store: Store, run_id: str) -> str | None:
    return (await store.read(runs.find(TENANT, run_id))).rolled_back_by


async def time_until(store: Store, run_id: str) -> int | None:
    standing = await store.read(queue.standing(run_id))
    return standing.wake_at_ms if standing else None


async def refusal(store: Store, run: NewRun) -> str:
    with pytest.raises(arrivals.SessionBusyError) as caught:
        await store.create(run)
    return caught.value.code


# --- Refused ---


async def test_a_run_that_is_not_to_wait_is_refused_while_another_is_there(store: Store) -> None:
    first = await queued(store)
    second = after(first, "reject")

    assert await refusal(store, second) == "session_busy"

    with pytest.raises(NotFoundError):
        await store.read(runs.find(TENANT, second.id))


@pytest.mark.parametrize("then", ["reject", "interrupt", "rollback", "steer"])
async def test_a_run_that_comes_to_a_free_session_is_queued(store: Store, then: str) -> None:
    first = a_run()
    await finished(store, first)

    created = await store.create(after(first, then))

    assert (created.status, created.steered, created.replaces) == ("queued", (), ())


@pytest.mark.parametrize("then", ["reject", "interrupt", "rollback", "steer"])
async def test_a_run_that_makes_its_session_finds_nobody_there(store: Store, then: str) -> None:
    created = await store.create(
        a_run(if_active=IfActive(then, "ann", ("{}",)))  # type: ignore[arg-type]
    )

    assert created.status == "queued"


async def test_a_scheduled_run_is_not_there_yet(store: Store) -> None:
    first = a_run(scheduled_ms=4 * NOW_MS)
    await store.create(first)

    assert (await store.create(after(first, "reject"))).status == "queued"


# --- In the place of others ---


async def test_a_run_that_interrupts_has_all_ahead_of_it_told_to_stop(store: Store) -> None:
    first = a_run()
    await held(store, first)
    second = await queued(store, behind(first))

    created = await store.create(third := after(first, "interrupt"))

    assert (created.status, created.replaces) == ("blocked", (first.id, second.id))
    for run_id in (first.id, second.id):
        assert await kinds(store, run_id) == ["cancel"]
        assert await rolled_back(store, run_id) is None
    [letter] = await letters(store, first.id)
    assert orjson.loads(letter.data) == {"by": "ann", "reason": f"interrupted by {third.id}"}


async def test_its_log_says_whom_it_replaces(store: Store) -> None:
    first = await queued(store)

    created = await store.create(second := after(first, "interrupt"))

    (entry,) = await store.read(log.read_all(TENANT, second.id))
    assert orjson.loads(entry.data) == {"replaces": [first.id]}
    assert created.queued is not None
    assert created.queued.data == entry.data


async def test_a_run_that_rolls_back_says_so_at_those_it_replaces(store: Store) -> None:
    first = a_run()
    before = await finished(store, first)
    second, third = await queued(store, behind(first)), await queued(store, behind(first))

    await store.create(last := after(first, "rollback"))

    assert await rolled_back(store, before.run_id) is None, "what is over stays as it was"
    assert await rolled_back(store, second.id) == last.id
    assert await rolled_back(store, third.id) == last.id


async def test_what_was_rolled_back_stays_so_when_it_is_interrupted_as_well(store: Store) -> None:
    first = await queued(store)
    second = after(first, "rollback")
    await store.create(second)

    third = await store.create(after(first, "interrupt"))

    assert third.replaces == (first.id, second.id)
    assert await rolled_back(store, first.id) == second.id
    assert await rolled_back(store, second.id) is None


async def test_a_run_that_waits_for_a_person_is_queued_to_be_stopped(store: Store) -> None:
    first = a_run()
    await waiting(store, first)

    await store.create(after(first, "interrupt"))

    row = await store.read(runs.find(TENANT, first.id))
    assert (row.status, row.waiting_for) == ("queued", None)
    (claim,) = await claims(store, await a_worker(store))
    assert (claim.run_id, claim.inbox_seq) == (first.id, 1)


async def test_who_is_told_to_stop_has_his_time_from_when_he_is_under_way(store: Store) -> None:
    first = a_run()
    claim = await held(store, first)
    second = await queued(store, behind(first))
    await store.create(after(first, "interrupt"))

    before = await time_until(store, first.id)
    assert await time_until(store, second.id) is None
    await store.append(a_finish(claim, inbox_seen=1))

    assert await status(store, second.id) == "queued"
    assert await time_until(store, first.id) is None
    since = await time_until(store, second.id)
    assert before is not None
    assert since is not None
    assert since >= before


async def test_the_one_that_replaces_others_is_next_behind_them(store: Store) -> None:
    first = a_run()
    claim = await held(store, first)
    second = await queued(store, behind(first))
    third = after(first, "interrupt")
    await store.create(third)
    fourth = await queued(store, behind(first))
    found = []
    for _ in range(3):
        seen = len(await letters(store, claim.run_id))
        await store.append(a_finish(claim, inbox_seen=seen))
        (claim,) = await claims(store, await a_worker(store))
        found.append(claim.run_id)

    assert found == [second.id, third.id, fourth.id]


# --- Said to the one that is there ---


async def test_what_is_to_be_said_is_brought_to_the_run_under_way(store: Store) -> None:
    first = a_run()
    await held(store, first)
    second = after(first, "steer")

    created = await store.create(second)

    assert second.if_active is not None
    assert created == Created(first.id, "", steered=second.if_active.message_ids)
    [letter] = await letters(store, first.id)
    assert (letter.kind, letter.data) == ("steer", second.if_active.said[0])


async def test_nothing_is_said_to_a_run_that_was_told_to_stop(store: Store) -> None:
    first = a_run()
    await held(store, first)
    await store.create(after(first, "interrupt"))

    created = await store.create(second := after(first, "steer"))

    assert (created.run_id, created.status) == (second.id, "blocked")
    assert await kinds(store, first.id) == ["cancel"]


async def test_the_same_request_says_it_once(store: Store) -> None:
    first = a_run()
    await held(store, first)

    one = await store.create(after(first, "steer", request=REQUEST))
    again = await store.create(after(first, "steer", request=REQUEST))

    assert one.steered
    assert again == Created(first.id, "", replayed=True, steered=one.steered)
    assert await kinds(store, first.id) == ["steer"]


async def test_what_was_said_is_found_again_by_whoever_lost_the_answer(store: Store) -> None:
    first = a_run()
    claim = await held(store, first)
    unread, read, never = (after(first, "steer") for _ in range(3))
    await store.create(unread)
    assert await store.read(arrivals.heard(unread)) == arrivals.Joined(first.id)

    await store.create(read)
    assert read.if_active is not None
    data = read.if_active.said[0]
    entry = an_entry("steer.received")
    await store.append(
        a_finish(claim, inbox_seen=2, inbox_consumed=True, entries=(replace(entry, data=data),))
    )

    assert await store.read(arrivals.heard(read)) == arrivals.Joined(first.id)
    assert await store.read(arrivals.heard(never)) is None
