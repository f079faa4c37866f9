"""Runs from the outside: how they are found, spoken to, ended and started in time."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from milepost.core.errors import FencedError
from milepost.store import log, runs
from milepost.store.records import Change, Page, RunFilter
from milepost.store.store import Store
from tests.store.making import (
    NOW_MS,
    TENANT,
    a_finish,
    a_run,
    a_worker,
    an_append,
    an_approval,
    an_entry,
    an_id,
    asking,
    behind,
    claims,
    events,
    finished,
    held,
    letters,
    lost,
    next_claim,
    queued,
    status,
    types,
    waiting,
)

LATER_MS = 4 * NOW_MS
HOUR_MS = 3_600_000


def a_letter(why: str = "approval", **changes: Any) -> runs.Letter:
    return replace(runs.Letter("approval", "{}", why, NOW_MS), **changes)


async def end(
    store: Store, row: runs.RunRow, status: str = "cancelled", head: int | None = None
) -> tuple[int, list[str]]:
    """End the run from outside."""
    if head is None:
        head = await store.read(log.head(TENANT, row.id))
    entries = (an_entry(), an_entry(f"run.{status}"))
    ending = runs.Ending(status, '{"error":null}', entries, head)
    return await store.write(runs.end(row, ending, an_id("append")))


# --- Searching ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (RunFilter(), "abc"),
        (RunFilter(status="queued"), "abc"),
        (RunFilter(status="completed"), ""),
        (RunFilter(agent="clerk"), "ab"),
        (RunFilter(agent="agt_2"), "c"),
        (RunFilter(user="ann"), "a"),
        (RunFilter(created_after_ms=1), "bc"),
        (RunFilter(created_before_ms=3), "ab"),
        (RunFilter(metadata={"team": "red"}), "ab"),
        (RunFilter(metadata={"team": "red", "a.b c": "2"}), "b"),
        (RunFilter(metadata={"team": "blue"}), ""),
    ],
)
async def test_a_search_finds_what_was_asked_for(
    store: Store, wanted: RunFilter, found: str
) -> None:
    a = await queued(store, a_run(user="ann", metadata='{"team":"red"}', created_ms=1))
    b = await queued(store, a_run(metadata='{"team":"red","a.b c":"2"}', created_ms=2))
    c = await queued(store, a_run(agent="other", agent_id="agt_2", created_ms=3))
    await queued(store, a_run(tenant="other"))

    rows = await store.read(runs.search(TENANT, wanted, Page(10, ascending=True)))

    names = {a.id: "a", b.id: "b", c.id: "c"}
    assert "".join(names[row.id] for row in rows) == found


@pytest.mark.parametrize("key", ["a\\b", "a\\", "\\n", "\\u0041", "a\nb", "\x1f", "$.a[0]", "é'"])
async def test_a_search_finds_a_label_whatever_its_key_is_made_of(store: Store, key: str) -> None:
    labels = orjson.dumps({key: "red"}).decode()
    labelled = await queued(store, a_run(metadata=labels))
    await queued(store, a_run(metadata='{"A":"red","n":"red","b":"red"}'))

    rows = await store.read(runs.search(TENANT, RunFilter(metadata={key: "red"}), Page(10)))

    assert [row.id for row in rows] == [labelled.id]


async def test_a_search_by_session_finds_its_runs(store: Store) -> None:
    first = await queued(store)
    second = await queued(store, behind(first))
    await queued(store)

    rows = await store.read(runs.search(TENANT, RunFilter(session_id=first.session_id), Page(10)))

    assert [row.id for row in rows] == [second.id, first.id]


@pytest.mark.parametrize("ascending", [True, False])
async def test_pages_hold_every_run_once(store: Store, *, ascending: bool) -> None:
    made = [(await queued(store)).id for _ in range(5)]

    first = await store.read(runs.search(TENANT, RunFilter(), Page(2, None, ascending)))
    rest = await store.read(runs.search(TENANT, RunFilter(), Page(9, first[1].id, ascending)))

    assert len(first) == 3  # one more than the page holds: there are more
    seen = [row.id for row in (*first[:2], *rest)]
    assert seen == sorted(made, reverse=not ascending)


# --- Letters --------------------------------------------------------------------------------


async def test_a_letter_wakes_a_waiting_run(store: Store) -> None:
    claim = await waiting(store)

    now = await store.write(runs.deliver(TENANT, claim.run_id, a_letter("approval")))

    again = await next_claim(store)
    assert now == "queued"
    assert (again.epoch, again.inbox_seq) == (2, 1)
    assert '"approval"' in (await events(store, claim.run_id))[-1].data


async def test_a_letter_to_a_running_run_lies_in_its_inbox(store: Store) -> None:
    claim = await held(store)

    now = await store.write(runs.deliver(TENANT, claim.run_id, a_letter()))
    await store.write(runs.deliver(TENANT, claim.run_id, a_letter()))

    found = await letters(store, claim.run_id)
    assert now == "running"
    assert [(letter.seq, letter.kind) for letter in found] == [(1, "approval"), (2, "approval")]
    assert await letters(store, claim.run_id, after=1) == found[1:]


async def test_nobody_reads_a_letter_to_a_run_that_is_over(store: Store) -> None:
    claim = await finished(store)

    assert await store.write(runs.deliver(TENANT, claim.run_id, a_letter())) is None
    assert await letters(store, claim.run_id) == []


async def test_a_letter_from_another_tenant_does_not_arrive(store: Store) -> None:
    claim = await waiting(store)

    assert await store.write(runs.deliver("other", claim.run_id, a_letter())) is None
    assert await status(store, claim.run_id) == "waiting"


async def test_asking_again_to_cancel_gives_the_worker_no_more_time(store: Store) -> None:
    claim = await held(store)
    first = a_letter("cancel", now_ms=100, cancel_grace_ms=0)
    again = a_letter("cancel", now_ms=109, cancel_grace_ms=HOUR_MS)

    await store.write(runs.deliver(TENANT, claim.run_id, first))
    await store.write(runs.deliver(TENANT, claim.run_id, again))

    (due,) = await store.read(runs.due(110, 10))
    assert (due.id, due.cancel_ms) == (claim.run_id, 100)


async def test_other_letters_leave_the_time_of_a_cancel_alone(store: Store) -> None:
    claim = await held(store, a_run(deadline_ms=LATER_MS))
    await store.write(
        runs.deliver(TENANT, claim.run_id, a_letter("cancel", now_ms=100, cancel_grace_ms=0))
    )

    await store.write(runs.deliver(TENANT, claim.run_id, a_letter()))

    assert [row.id for row in await store.read(runs.due(110, 10))] == [claim.run_id]


# --- Ending from outside --------------------------------------------------------------------


async def test_a_queued_run_ends_where_it_is(store: Store) -> None:
    run = await queued(store)
    row = await store.read(runs.find(TENANT, run.id))

    first, freed = await end(store, row)

    ended = await store.read(runs.find(TENANT, run.id))
    assert (first, freed) == (2, [])
    assert (ended.status, ended.ended_ms, ended.outcome) == ("cancelled", NOW_MS, '{"error":null}')
    assert types(await events(store, run.id)) == ["run.queued", "step.started", "run.cancelled"]
    assert await claims(store, await a_worker(store)) == []


async def test_ending_a_run_by_force_fences_its_worker(store: Store) -> None:
    claim = await held(store)
    row = await store.read(runs.find(TENANT, claim.run_id))

    await end(store, row)

    with pytest.raises(FencedError):
        await store.append(an_append(claim))
    assert types(await events(store, claim.run_id))[-1] == "run.cancelled"


async def test_ending_a_run_frees_its_session_and_withdraws_its_questions(store: Store) -> None:
    run = a_run()
    claim = await held(store, run)
    await store.append(an_append(claim, approvals=(an_approval(claim),)))
    second = await queued(store, behind(run))
    row = await store.read(runs.find(TENANT, run.id))

    _, freed = await end(store, row)

    assert freed == [second.id]
    assert await status(store, second.id) == "queued"


async def test_ending_a_run_that_was_not_its_session_s_turn_sets_nobody_free(
    store: Store,
) -> None:
    run = a_run()
    await held(store, run)
    second, third = await queued(store, behind(run)), await queued(store, behind(run))
    row = await store.read(runs.find(TENANT, second.id))

    _, freed = await end(store, row)

    assert freed == []
    assert await status(store, third.id) == "blocked"


async def test_a_run_that_moved_since_it_was_looked_at_is_not_ended(store: Store) -> None:
    run = await queued(store)
    row = await store.read(runs.find(TENANT, run.id))
    await claims(store, await a_worker(store))

    with pytest.raises(runs.StaleError):
        await end(store, row)

    assert await status(store, run.id) == "running"
    assert len(await events(store, run.id)) == 2


async def test_a_run_that_got_a_message_since_it_was_looked_at_is_not_ended(store: Store) -> None:
    claim = await held(store)
    row = await store.read(runs.find(TENANT, claim.run_id))
    await store.write(runs.deliver(TENANT, claim.run_id, a_letter()))

    with pytest.raises(runs.StaleError):
        await end(store, row)

    assert await status(store, claim.run_id) == "running"


async def test_a_run_whose_message_was_seen_is_ended(store: Store) -> None:
    claim = await held(store)
    row = await store.read(runs.find(TENANT, claim.run_id))
    await store.write(runs.deliver(TENANT, claim.run_id, a_letter()))
    ending = runs.Ending("cancelled", "{}", (an_entry("run.cancelled"),), 2, inbox_seen=1)

    await store.write(runs.end(row, ending, an_id("append")))

    assert await status(store, claim.run_id) == "cancelled"


@pytest.mark.parametrize("head", [2, 4])
async def test_a_run_whose_log_is_not_as_it_was_read_is_not_ended(store: Store, head: int) -> None:
    claim = await held(store)
    await store.append(an_append(claim))
    row = await store.read(runs.find(TENANT, claim.run_id))

    with pytest.raises(runs.StaleError):
        await end(store, row, head=head)

    assert await status(store, claim.run_id) == "running"


async def test_turns_count_the_ended_runs_of_a_session(store: Store) -> None:
    run = a_run()
    await finished(store, run)
    second = await queued(store, behind(run))
    row = await store.read(runs.find(TENANT, second.id))
    await end(store, row)
    claim = await held(store, behind(run))

    await store.append(a_finish(claim))

    found = await store.read(runs.search(TENANT, RunFilter(session_id=run.session_id), Page(9)))
    assert [row.status for row in found] == ["completed", "cancelled", "completed"]


# --- Time -----------------------------------------------------------------------------------


async def test_a_scheduled_run_is_due_at_its_time_and_not_before(store: Store) -> None:
    run = await queued(store, a_run(scheduled_ms=500, deadline_ms=900))

    early = await store.read(runs.due(499, 10))
    (due,) = await store.read(runs.due(500, 10))

    assert early == []
    assert (due.id, due.status) == (run.id, "scheduled")


async def test_a_scheduled_run_starts_once_and_keeps_its_deadline(store: Store) -> None:
    run = await queued(store, a_run(scheduled_ms=500, deadline_ms=900))
    (due,) = await store.read(runs.due(500, 10))

    first = await store.write(runs.start_scheduled(due))
    again = await store.write(runs.start_scheduled(due))

    assert (first, again) == ("queued", None)
    assert await store.read(runs.due(899, 10)) == []
    assert [row.id for row in await store.read(runs.due(900, 10))] == [run.id]


async def test_a_scheduled_run_takes_its_turn_behind_an_active_one(store: Store) -> None:
    active = await queued(store)
    await queued(store, behind(active, scheduled_ms=500))
    (due,) = await store.read(runs.due(500, 10))

    assert await store.write(runs.start_scheduled(due)) == "blocked"


async def test_a_run_that_is_over_has_no_deadline_left(store: Store) -> None:
    await finished(store, a_run(deadline_ms=500))
    row = await store.read(runs.find(TENANT, (await queued(store, a_run(deadline_ms=500))).id))
    await end(store, row)

    assert await store.read(runs.due(LATER_MS, 10)) == []


async def test_a_waiting_run_keeps_its_deadline(store: Store) -> None:
    claim = await waiting(store, a_run(deadline_ms=500))

    assert [row.id for row in await store.read(runs.due(500, 10))] == [claim.run_id]


async def test_what_is_due_first_comes_first_and_the_page_has_a_bound(store: Store) -> None:
    late = await queued(store, a_run(deadline_ms=300))
    early = await queued(store, a_run(deadline_ms=100))
    middle = await queued(store, a_run(deadline_ms=200))

    found = await store.read(runs.due(LATER_MS, 2))

    assert [row.id for row in found] == [early.id, middle.id]
    assert late.id not in {row.id for row in found}


async def test_a_crashed_run_may_still_be_ended_by_force(store: Store) -> None:
    zombie = await held(store)
    await lost(store, zombie)
    row = await store.read(runs.find(TENANT, zombie.run_id))

    await end(store, row, "expired")

    assert await status(store, zombie.run_id) == "expired"


async def test_a_question_of_a_waiting_run_is_withdrawn_with_it(store: Store) -> None:
    asked = await asking(store)
    row = await store.read(runs.find(TENANT, asked.run_id))

    await end(store, row)

    assert await store.write(runs.deliver(TENANT, asked.run_id, a_letter())) is None


# --- Clocks ---------------------------------------------------------------------------------

AHEAD_MS = 100 * NOW_MS


async def test_a_run_from_a_process_whose_clock_is_ahead_starts_at_once(store: Store) -> None:
    run = await queued(store, a_run(created_ms=AHEAD_MS))

    assert (await next_claim(store)).run_id == run.id


async def test_a_letter_from_a_process_whose_clock_is_ahead_wakes_at_once(store: Store) -> None:
    claim = await waiting(store)

    await store.write(runs.deliver(TENANT, claim.run_id, a_letter(now_ms=AHEAD_MS)))

    assert (await next_claim(store)).run_id == claim.run_id


async def test_a_run_set_free_by_a_process_whose_clock_is_ahead_starts_at_once(
    store: Store,
) -> None:
    run = a_run()
    claim = await held(store, run)
    second = await queued(store, behind(run))

    await store.append(a_finish(claim, change=Change("completed", ended_ms=AHEAD_MS)))

    assert (await next_claim(store)).run_id == second.id


async def test_a_scheduled_run_starts_at_once_when_its_time_has_come(store: Store) -> None:
    run = await queued(store, a_run(scheduled_ms=AHEAD_MS))
    (due,) = await store.read(runs.due(AHEAD_MS, 10))

    await store.write(runs.start_scheduled(due))

    assert (await next_claim(store)).run_id == run.id


async def test_a_run_handed_back_by_a_process_whose_clock_is_ahead_goes_on_at_once(
    store: Store,
) -> None:
    claim = await held(store)
    retrying = replace(an_entry("run.retrying"), time_ms=AHEAD_MS)

    await store.append(an_append(claim, retrying, change=Change("queued", resume_why="drain")))

    assert (await next_claim(store)).run_id == claim.run_id
