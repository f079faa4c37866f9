"""What is told of runs that are erased goes with them, and nobody's view of a session changes."""

from dataclasses import replace

import orjson
import pytest

from milepost.core.window import Place
from milepost.store import removals, retention, session_forks, session_past, summaries
from milepost.store.records import Entry, NewSummary, Page
from milepost.store.retention import Rules
from milepost.store.sessions import NewSession
from milepost.store.store import Store
from tests.store.making import (
    NOW_MS,
    TENANT,
    a_finish,
    a_run,
    an_append,
    events,
    finished,
    held,
    session_of,
)

TOLD = "They met in secret."
MONTH_MS = 30 * 86_400_000


def a_summary(session_id: str, row_id: str, first: int, last: int) -> NewSummary:
    return NewSummary(row_id, session_id, first, 0, last, 1, TOLD, "test/m", NOW_MS)


async def trim(store: Store, session_id: str, *stretches: NewSummary) -> str:
    """Have another turn, with which these stretches fall out of sight; return its run."""
    claim = await held(store, a_run(session_id=session_id, session_is_new=False))
    told = [
        Entry(
            "memory.summarized",
            NOW_MS,
            orjson.dumps({"id": each.id, "content": each.content, "messages": 4}).decode(),
        )
        for each in stretches
    ]
    await store.append(an_append(claim, *told, summaries=stretches))
    await store.append(a_finish(replace(claim, head=claim.head + len(told))))
    return claim.run_id


async def told(store: Store, *session_ids: str) -> dict[str, str]:
    """Return what the summaries of these sessions tell."""
    found = [
        row
        for session_id in session_ids
        for row in await store.read(summaries.search(TENANT, session_id, Page(limit=9)))
    ]
    return {row.id: row.content for row in found}


async def test_a_summary_goes_silent_with_the_first_run_that_it_tells_of(store: Store) -> None:
    session_id, runs = await session_of(store, 4)
    maker = await trim(
        store,
        session_id,
        a_summary(session_id, "sum_1", 1, 2),
        a_summary(session_id, "sum_2", 3, 4),
    )

    await store.write(removals.remove_runs(TENANT, runs[:1]))

    assert await told(store, session_id) == {"sum_1": "", "sum_2": TOLD}
    written = [orjson.loads(each.data) for each in await events(store, maker)]
    assert [each["content"] for each in written if "content" in each] == ["", TOLD]


async def test_what_is_out_of_sight_stays_so_when_nothing_is_told_of_it(store: Store) -> None:
    session_id, runs = await session_of(store, 3)
    await trim(store, session_id, a_summary(session_id, "sum_1", 1, 2))

    await store.write(removals.remove_runs(TENANT, runs[:1]))
    past = await store.read(session_past.past(TENANT, session_id, 99, limit=99))

    assert past.out_of_sight == Place(2, 1)
    assert [turn for turn, _ in past.turns] == [2, 3, 4]
    assert await store.read(session_past.told(TENANT, ["sum_1"])) == []


async def test_forks_tell_no_more_of_what_they_shared(store: Store) -> None:
    session_id, runs = await session_of(store, 3)
    forks = [NewSession(f"ses_f{each}", TENANT, None, None, "{}", NOW_MS) for each in range(3)]
    await store.write(session_forks.fork(forks[0], session_id, Place(2, 1)))
    await store.write(session_forks.fork(forks[1], forks[0].id, Place(2, 1)))
    await store.write(session_forks.fork(forks[2], session_id, Place(1, 1)))
    for fork in forks:
        await finished(store, a_run(session_id=fork.id, session_is_new=False))
        await finished(store, a_run(session_id=fork.id, session_is_new=False))
        await trim(store, fork.id, a_summary(fork.id, f"of {fork.id}", 2, 3))

    await store.write(removals.remove_runs(TENANT, [runs[1]]))

    # The last one shares no more than the first turn: its second is its own.
    assert await told(store, *(fork.id for fork in forks)) == {
        "of ses_f0": "",
        "of ses_f1": "",
        "of ses_f2": TOLD,
    }


async def test_another_tenants_and_another_sessions_summaries_stay(store: Store) -> None:
    session_id, runs = await session_of(store, 2)
    other_id, _ = await session_of(store, 2)
    await trim(store, other_id, a_summary(other_id, "sum_1", 1, 2))
    await trim(store, session_id, a_summary(session_id, "sum_2", 1, 2))

    await store.write(removals.remove_runs("other", runs))
    await store.write(removals.remove_runs(TENANT, runs))

    assert await told(store, other_id, session_id) == {"sum_1": TOLD, "sum_2": ""}


@pytest.mark.parametrize("reverted", [False, True])
async def test_a_log_that_goes_before_its_run_takes_along_what_is_told_of_it(
    store: Store, *, reverted: bool
) -> None:
    session_id, _ = await session_of(store, 2)
    await trim(store, session_id, a_summary(session_id, "sum_1", 1, 2))
    if reverted:
        await store.write(summaries.revert(TENANT, session_id, "sum_1", NOW_MS))
    rules = await store.read(retention.get(TENANT))
    await store.write(retention.replace(rules, Rules(events_ms=1), NOW_MS))

    worn = await store.write(retention.wear(TENANT, "traces", None, NOW_MS + MONTH_MS))
    before = await told(store, session_id)
    await store.write(retention.wear(TENANT, "events", None, NOW_MS + MONTH_MS))

    assert worn.gone == 0
    assert before == {"sum_1": TOLD}
    assert await told(store, session_id) == {"sum_1": ""}


@pytest.mark.parametrize("gone", [True, False])
async def test_what_is_told_too_late_of_a_run_that_is_gone_is_not_kept(
    store: Store, gone: bool
) -> None:
    session_id, runs = await session_of(store, 2)
    maker = await held(store, a_run(session_id=session_id, session_is_new=False))
    said = orjson.dumps({"id": "sum_1", "content": TOLD, "messages": 4}).decode()
    late = an_append(
        maker,
        Entry("memory.summarized", NOW_MS, said),
        summaries=(a_summary(session_id, "sum_1", 1, 2),),
        told_of=tuple(runs),
    )
    if gone:
        await store.write(removals.remove_runs(TENANT, runs[:1]))

    await store.append(late)

    kept = "" if gone else TOLD
    assert await told(store, session_id) == {"sum_1": kept}
    written = [orjson.loads(each.data) for each in await events(store, maker.run_id)]
    assert [each["content"] for each in written if "content" in each] == [kept]
