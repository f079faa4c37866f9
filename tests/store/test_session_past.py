"""What of a session a run is shown, as the store tells it: turns, stretches, pins and forks."""

from dataclasses import replace

import pytest

from milepost.core.context import SUMMARIES_MAX
from milepost.core.errors import NotFoundError
from milepost.core.window import Place, Trimmed
from milepost.store import pins, session_forks, session_past, summaries
from milepost.store.records import Change, IfActive, NewSummary, Page
from milepost.store.session_past import PINS_MAX, Past
from milepost.store.sessions import NewSession
from milepost.store.store import Store
from milepost.store.summaries import SummaryCoveredError
from tests.store.making import (
    NOW_MS,
    TENANT,
    a_finish,
    a_run,
    an_append,
    finished,
    held,
    queued,
    session_of,
    status,
)


def a_summary(session_id: str, row_id: str, first: Place, last: Place) -> NewSummary:
    return NewSummary(row_id, session_id, *first, *last, f"told by {row_id}", "test/m", NOW_MS)


async def trim(store: Store, session_id: str, *stretches: NewSummary) -> None:
    """Have another turn, with which these stretches fall out of sight."""
    claim = await held(store, a_run(session_id=session_id, session_is_new=False))
    await store.append(an_append(claim, summaries=stretches))
    await store.append(a_finish(replace(claim, head=claim.head + 1)))


async def past(
    store: Store, session_id: str, through: int = 99, limit: int = 99, **more: int
) -> Past:
    return await store.read(session_past.past(TENANT, session_id, through, limit=limit, **more))


async def test_turns_come_in_their_order_up_to_the_one_asked_for(store: Store) -> None:
    session_id, runs = await session_of(store, 3)

    found = await past(store, session_id, through=2)

    assert found.turns == ((1, runs[0]), (2, runs[1]))
    assert (found.trimmed, found.pins, found.more) == ((), (), False)
    assert (await past(store, "ses_0")).turns == ()
    other = await store.read(session_past.past("other", session_id, 9, limit=9))
    assert other.turns == ()


async def test_the_last_turns_are_read_first_and_the_others_behind_them(store: Store) -> None:
    session_id, runs = await session_of(store, 3)

    last = await past(store, session_id, limit=2)
    first = await past(store, session_id, limit=2, before=2)

    assert (last.turns, last.more) == (((2, runs[1]), (3, runs[2])), True)
    assert (first.turns, first.more) == (((1, runs[0]),), False)


async def test_turns_begin_where_something_was_trimmed_last(store: Store) -> None:
    session_id, runs = await session_of(store, 4)
    await trim(
        store,
        session_id,
        a_summary(session_id, "sum_1", Place(1, 0), Place(2, 1)),
        a_summary(session_id, "sum_2", Place(3, 0), Place(3, 1)),
    )

    found = await past(store, session_id, through=4)

    assert found.turns == ((3, runs[2]), (4, runs[3]))
    assert found.trimmed == (
        Trimmed("sum_1", Place(1, 0), Place(2, 1), "told by sum_1"),
        Trimmed("sum_2", Place(3, 0), Place(3, 1), "told by sum_2"),
    )
    assert found.out_of_sight == Place(3, 1)
    assert (await past(store, session_id, through=4, since=2)).turns[0] == (2, runs[1])
    told = await store.read(session_past.told(TENANT, ["sum_2", "sum_0", "sum_1"]))
    assert told == ["told by sum_2", "told by sum_1"]


async def test_a_reverted_stretch_is_in_sight(store: Store) -> None:
    session_id, runs = await session_of(store, 2)
    await trim(
        store,
        session_id,
        a_summary(session_id, "sum_1", Place(1, 0), Place(1, 0)),
        a_summary(session_id, "sum_2", Place(1, 1), Place(1, 1)),
    )

    with pytest.raises(SummaryCoveredError):
        await store.write(summaries.revert(TENANT, session_id, "sum_1", 1))
    with pytest.raises(NotFoundError):
        await store.write(summaries.revert("other", session_id, "sum_2", 1))
    await store.write(summaries.revert(TENANT, session_id, "sum_2", 1))

    assert (await past(store, session_id)).out_of_sight == Place(1, 0)
    listed = await store.read(summaries.search(TENANT, session_id, Page(limit=9)))
    assert [(row.id, row.reverted_ms) for row in listed] == [("sum_2", 1), ("sum_1", None)]
    assert listed[0].run_id not in runs


async def test_pins_are_the_sessions(store: Store) -> None:
    session_id, _ = await session_of(store, 1)
    for place in (Place(1, 1), Place(1, 0), Place(1, 1)):
        await store.write(pins.put(TENANT, session_id, place, NOW_MS))

    assert (await past(store, session_id)).pins == (Place(1, 0), Place(1, 1))
    await store.write(pins.remove(TENANT, session_id, Place(1, 0)))
    assert await store.read(pins.find(TENANT, session_id)) == [Place(1, 1)]
    with pytest.raises(NotFoundError):
        await store.write(pins.put("other", session_id, Place(1, 0), NOW_MS))


async def test_a_fork_has_what_it_shares_and_its_own(store: Store) -> None:
    session_id, runs = await session_of(store, 3)
    await trim(store, session_id, a_summary(session_id, "sum_1", Place(1, 0), Place(1, 1)))
    await store.write(pins.put(TENANT, session_id, Place(1, 0), NOW_MS))
    await store.write(pins.put(TENANT, session_id, Place(3, 0), NOW_MS))
    fork = NewSession("ses_fork", TENANT, None, None, "{}", NOW_MS)
    await store.write(session_forks.fork(fork, session_id, Place(2, 0)))
    own = await finished(store, a_run(session_id=fork.id, session_is_new=False))

    found = await past(store, fork.id)

    assert found.turns == ((1, runs[0]), (2, runs[1]), (3, own.run_id))
    assert [each.id for each in found.trimmed] == ["sum_1"]
    assert found.pins == (Place(1, 0),)
    assert found.ends == {2: 0}
    assert found.lines == ((session_id, 2), (fork.id, 99))
    reached = await store.read(session_past.runs_at(TENANT, found.lines, [1, 3]))
    assert reached == {1: runs[0], 3: own.run_id}
    assert (await past(store, fork.id, limit=2)).turns == ((2, runs[1]), (3, own.run_id))
    assert (await past(store, fork.id, limit=1)).turns == ((3, own.run_id),)


async def test_runs_are_looked_up_in_the_lines_of_a_past_alone(store: Store) -> None:
    session_id, runs = await session_of(store, 3)
    await session_of(store, 4)
    fork = NewSession("ses_fork", TENANT, None, None, "{}", NOW_MS)
    await store.write(session_forks.fork(fork, session_id, Place(2, 0)))
    lines = (await past(store, fork.id)).lines

    found = await store.read(session_past.runs_at(TENANT, lines, [2, 3, 4]))

    assert found == {2: runs[1]}
    assert await store.read(session_past.runs_at("other", lines, [2])) == {}


async def test_a_run_that_was_rolled_back_is_at_no_turn(store: Store) -> None:
    session_id, runs = await session_of(store, 1)
    first = await held(store, a_run(session_id=session_id, session_is_new=False))
    instead = IfActive("rollback", "ann")
    await queued(store, a_run(session_id=session_id, session_is_new=False, if_active=instead))
    over = Change("cancelled", outcome="{}", ended_ms=NOW_MS)
    await store.append(a_finish(replace(first, inbox_seq=1), change=over))

    found = await store.read(session_past.runs_at(TENANT, [(session_id, 99)], [1, 2]))

    assert await status(store, first.run_id) == "cancelled"
    assert found == {1: runs[0]}


async def test_what_fell_out_of_sight_in_a_fork_is_so_in_what_it_shares(store: Store) -> None:
    session_id, runs = await session_of(store, 3)
    fork = NewSession("ses_fork", TENANT, None, None, "{}", NOW_MS)
    await store.write(session_forks.fork(fork, session_id, Place(3, 1)))
    await trim(store, fork.id, a_summary(fork.id, "sum_1", Place(1, 0), Place(2, 1)))

    found = await past(store, fork.id)

    assert [turn for turn, _ in found.turns] == [2, 3, 4]
    assert found.out_of_sight == Place(2, 1)
    assert (await past(store, session_id)).turns[0] == (1, runs[0])


async def test_what_both_have_trimmed_since_they_parted_is_told_once(store: Store) -> None:
    session_id, _ = await session_of(store, 3)
    await trim(store, session_id, a_summary(session_id, "sum_before", Place(1, 0), Place(1, 1)))
    fork = NewSession("ses_fork", TENANT, None, None, "{}", NOW_MS)
    await store.write(session_forks.fork(fork, session_id, Place(3, 1)))
    await trim(store, fork.id, a_summary(fork.id, "sum_own", Place(2, 0), Place(2, 1)))
    await trim(store, session_id, a_summary(session_id, "sum_later", Place(2, 0), Place(3, 1)))

    found = await past(store, fork.id)

    assert [each.id for each in found.trimmed] == ["sum_before", "sum_own"]
    assert found.out_of_sight == Place(2, 1)
    assert [turn for turn, _ in found.turns] == [2, 3, 4]
    above = await past(store, session_id)
    assert [each.id for each in above.trimmed] == ["sum_before", "sum_later"]


async def test_a_fork_is_told_no_more_stretches_than_any_session(store: Store) -> None:
    session_id, _ = await session_of(store, 1)
    fork = NewSession("ses_fork", TENANT, None, None, "{}", NOW_MS)
    await store.write(session_forks.fork(fork, session_id, Place(1, SUMMARIES_MAX)))
    shared = [Place(1, at) for at in range(SUMMARIES_MAX)]
    await trim(
        store,
        session_id,
        *(a_summary(session_id, f"sum_{at.at:02}", at, at) for at in shared),
    )
    await trim(store, fork.id, a_summary(fork.id, "sum_own", Place(2, 0), Place(2, 1)))

    found = await past(store, fork.id)

    assert len(found.trimmed) == SUMMARIES_MAX
    assert (found.trimmed[0].id, found.trimmed[-1].id) == ("sum_01", "sum_own")


async def test_pins_of_a_fork_are_in_their_order_whoever_has_set_them(store: Store) -> None:
    session_id, _ = await session_of(store, 2)
    fork = NewSession("ses_fork", TENANT, None, None, "{}", NOW_MS)
    await store.write(session_forks.fork(fork, session_id, Place(2, 1)))
    for pinned_in, place in (
        (session_id, Place(1, 1)),
        (session_id, Place(2, 0)),
        (fork.id, Place(1, 0)),
        (fork.id, Place(2, 0)),
    ):
        await store.write(pins.put(TENANT, pinned_in, place, NOW_MS))

    assert (await past(store, fork.id)).pins == (Place(1, 0), Place(1, 1), Place(2, 0))


async def test_a_fork_has_its_own_pins_if_not_all_can_be_shown(store: Store) -> None:
    session_id, _ = await session_of(store, 1)
    fork = NewSession("ses_fork", TENANT, None, None, "{}", NOW_MS)
    await store.write(session_forks.fork(fork, session_id, Place(1, PINS_MAX)))
    for at in range(PINS_MAX):
        await store.write(pins.put(TENANT, session_id, Place(1, at), NOW_MS))
    await store.write(pins.put(TENANT, fork.id, Place(1, PINS_MAX), NOW_MS))

    found = await past(store, fork.id)

    assert found.pins == tuple(Place(1, at) for at in range(1, PINS_MAX + 1))
