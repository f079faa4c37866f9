"""The line of a session: who came first is first, whatever the clocks of the processes say."""

from typing import Any

from sqlalchemy import null, update

from milepost.store import runs, schema
from milepost.store.dialect import text
from milepost.store.records import NewRun, Page, RunFilter
from milepost.store.store import Store
from milepost.store.work import Statement, Work
from tests.store.making import (
    TENANT,
    a_finish,
    a_run,
    a_worker,
    an_id,
    behind,
    claims,
    finished,
    held,
    next_claim,
    queued,
    status,
)

_OF_AN_EARLIER_VERSION = Statement(
    update(schema.runs).where(schema.runs.c.id == text("run_id")).values(place=null())
)


async def in_line(store: Store, first: NewRun, *ids: str) -> list[NewRun]:
    """Return runs of these ids that stand behind the first one, in this order."""
    return [await queued(store, behind(first, id=run_id)) for run_id in ids]


async def aheads(store: Store, *made: NewRun) -> list[int | None]:
    found = await store.read(runs.search(TENANT, RunFilter(), Page(100)))
    by_id = {row.id: row.ahead for row in found}
    return [by_id[run.id] for run in made]


async def order(store: Store, first: NewRun, count: int) -> list[str]:
    """Return the next runs of the session in which they are set free."""
    worker, found = await a_worker(store), []
    (claim,) = await claims(store, worker)
    for _ in range(count):
        await store.append(a_finish(claim))
        (claim,) = await claims(store, worker)
        assert claim.session_id == first.session_id
        found.append(claim.run_id)
    return found


async def test_runs_come_in_the_order_in_which_they_were_made_and_not_in_that_of_their_ids(
    store: Store,
) -> None:
    """An id has the time of the process that made it, whose clock may be behind."""
    first = await queued(store)
    late, early = an_id("run"), an_id("run")
    await in_line(store, first, early, late)

    assert await order(store, first, 2) == [early, late]


async def test_a_run_of_a_version_that_counted_nobody_is_first(store: Store) -> None:
    first = await queued(store)
    counted, uncounted = await in_line(store, first, an_id("run"), an_id("run"))
    await store.write(_done(_OF_AN_EARLIER_VERSION, run_id=uncounted.id))

    assert await aheads(store, uncounted, counted) == [1, 2]
    assert await order(store, first, 2) == [uncounted.id, counted.id]


async def test_a_run_that_waits_says_how_many_are_ahead_of_it(store: Store) -> None:
    first = await queued(store)
    made = await in_line(store, first, *(an_id("run") for _ in range(3)))
    other = await queued(store)

    assert await aheads(store, first, *made, other) == [None, 1, 2, 3, None]


async def test_who_is_ahead_is_gone_when_it_has_ended(store: Store) -> None:
    first = await queued(store)
    second, third = await in_line(store, first, an_id("run"), an_id("run"))

    (claim,) = await claims(store, await a_worker(store))
    await store.append(a_finish(claim))

    assert await aheads(store, first, second, third) == [None, None, 1]


async def test_a_scheduled_run_stands_in_line_from_when_its_time_has_come(store: Store) -> None:
    first = a_run()
    scheduled = behind(first, scheduled_ms=1)
    await held(store, first)
    await queued(store, scheduled)
    (second,) = await in_line(store, first, an_id("run"))
    due = await store.read(runs.find(TENANT, scheduled.id))

    assert await store.write(runs.start_scheduled(due)) == "blocked"

    assert due.ahead is None
    assert await aheads(store, second, scheduled) == [1, 2]


async def test_a_stranger_does_not_count_in_a_line(store: Store) -> None:
    first = a_run()
    await finished(store, first)

    outcome = await _refused(store, behind(first, tenant="other"))
    second = await queued(store, behind(first))

    assert outcome == "session_not_found"
    assert await status(store, second.id) == "queued"
    assert await _place(store, second) == 2
    assert (await next_claim(store)).run_id == second.id


async def _refused(store: Store, run: NewRun) -> str:
    try:
        await store.create(run)
    except Exception as error:
        return str(getattr(error, "code", error))
    return "nothing"


async def _place(store: Store, run: NewRun) -> Any:
    return await store.read(_place_of(run.id))


def _place_of(run_id: str) -> Work[int]:
    ((place,),) = yield _PLACE(run_id=run_id)
    return int(place)


_PLACE = Statement(
    schema.runs.select()
    .with_only_columns(schema.runs.c.place)
    .where(schema.runs.c.id == text("run_id"))
)


def _done(statement: Statement, **parameters: Any) -> Work[None]:
    yield statement(**parameters)
