"""The order of a session's runs for who follows it: given once, whatever becomes of the runs."""

import pytest
from sqlalchemy import null, update

from milepost.store import runs, schema, session_order
from milepost.store.records import NewRun
from milepost.store.session_order import Spot
from milepost.store.store import Store
from milepost.store.work import Statement, Work
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
    queued,
)


async def order(store: Store, session_id: str) -> list[Spot]:
    """Return the session's runs as who follows it would come upon them."""
    found: list[Spot] = []
    while True:
        read = session_order.following(TENANT, session_id, found[-1] if found else None)
        spot = await store.read(read)
        if spot is None:
            return found
        found.append(spot)


async def ids(store: Store, first: NewRun) -> list[str]:
    return [spot.run_id for spot in await order(store, first.session_id)]


async def finish(store: Store, run: NewRun) -> None:
    """Let a worker end the run."""
    (claim,) = await claims(store, await a_worker(store))
    assert claim.run_id == run.id
    await store.append(a_finish(claim))


async def cancel(store: Store, run: NewRun) -> None:
    """End a run that no worker holds."""
    row = await store.read(runs.find(TENANT, run.id))
    ending = runs.Ending("cancelled", "{}", (an_entry("run.cancelled"),), head=1)
    await store.write(runs.end(row, ending, an_id("append")))


def without_places(session_id: str) -> Work[None]:
    """Make the session's runs as code that knows of no places has left them."""
    change = update(schema.runs).where(schema.runs.c.session_id == session_id)
    yield Statement(change.values(place=null()))()


async def test_runs_come_in_the_order_of_their_arrival(store: Store) -> None:
    first = await queued(store)
    second, third = await queued(store, behind(first)), await queued(store, behind(first))

    before = await order(store, first.session_id)
    await finish(store, first)
    after = await order(store, first.session_id)

    assert [spot.run_id for spot in before] == [first.id, second.id, third.id]
    assert [spot.run_id for spot in after] == [first.id, second.id, third.id]
    assert [spot.waits for spot in before] == [False, True, True]
    assert [spot.waits for spot in after] == [False, False, True]


async def test_a_run_that_is_cancelled_while_it_waits_stays_behind_the_one_before(
    store: Store,
) -> None:
    first = await queued(store)
    second, third = await queued(store, behind(first)), await queued(store, behind(first))

    await cancel(store, second)
    await finish(store, first)

    spots = await order(store, first.session_id)
    assert [spot.run_id for spot in spots] == [first.id, second.id, third.id]
    assert [spot.turn for spot in spots] == [2, 1, None]


async def test_a_scheduled_run_stands_nowhere_until_it_is_started_or_ends(store: Store) -> None:
    first = await queued(store)
    late = await queued(store, behind(first, scheduled_ms=2 * NOW_MS))
    never = await queued(store, behind(first, scheduled_ms=2 * NOW_MS))
    second = await queued(store, behind(first))
    before = await ids(store, first)

    await store.write(runs.start_scheduled(await store.read(runs.find(TENANT, late.id))))
    await cancel(store, never)

    assert before == [first.id, second.id]
    assert await ids(store, first) == [first.id, second.id, late.id, never.id]


@pytest.mark.parametrize("ended", [0, 1, 2])
async def test_runs_without_places_come_first_by_their_turns(store: Store, ended: int) -> None:
    old = [await queued(store)]
    old.append(await queued(store, behind(old[0])))
    for run in old[:ended]:
        await finish(store, run)
    await store.write(without_places(old[0].session_id))

    new = await queued(store, behind(old[0]))

    shown = [run.id for run in old][: ended + 1]
    assert await ids(store, old[0]) == [*shown, new.id]


async def test_a_run_without_a_place_is_followed_by_the_next_when_it_has_ended(
    store: Store,
) -> None:
    first = await queued(store)
    second = await queued(store, behind(first))
    await store.write(without_places(first.session_id))
    here = await store.read(session_order.following(TENANT, first.session_id, None))

    await finish(store, first)

    found = await store.read(session_order.following(TENANT, first.session_id, here))
    assert found is not None
    assert found.run_id == second.id


async def test_nothing_is_shown_to_another_tenant(store: Store) -> None:
    run = await queued(store)

    found = await store.read(session_order.following("other", run.session_id, None))
    spot = await store.read(session_order.spot("other", run.session_id, run.id))

    assert (found, spot) == (None, None)


async def test_what_comes_and_what_ends_shows_in_how_a_session_stands(store: Store) -> None:
    run, new = await queued(store), a_run()
    watched = [run.session_id, new.session_id]

    async def stands() -> dict[str, int]:
        return await store.read(session_order.stands(watched))

    first = await stands()
    await queued(store, behind(run))
    second = await stands()
    await finish(store, run)
    third = await stands()

    assert set(first) == {run.session_id}
    assert first[run.session_id] < second[run.session_id] < third[run.session_id]
