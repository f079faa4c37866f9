"""Runs from the outside: how they are queued, found, spoken to, ended and started in time."""

from dataclasses import replace
from typing import Any

import pytest

from milepost.core.errors import FencedError, NotFoundError, OverloadedError
from milepost.store import agents, idempotency, log, runs
from milepost.store.agents import AgentRow
from milepost.store.records import Change, NewRun, Page, Request, RunFilter
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
REQUEST = Request("POST /v1/runs", "key-1", "hash")


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


# --- Creating -------------------------------------------------------------------------------


async def test_a_run_is_found_as_it_was_created(store: Store) -> None:
    run = await queued(
        store,
        a_run(user="ann", metadata='{"team":"red"}', lane=3, trace_parent="00-1", deadline_ms=7),
    )

    row = await store.read(runs.find(TENANT, run.id))

    assert replace(row, run_at_ms=0) == runs.RunRow(
        id=run.id,
        tenant=TENANT,
        session_id=run.session_id,
        agent_id="agt_1",
        agent="clerk",
        agent_version=1,
        user="ann",
        status="queued",
        epoch=0,
        lane=3,
        created_ms=run.created_ms,
        ended_ms=None,
        deadline_ms=7,
        run_at_ms=0,
        metadata='{"team":"red"}',
        trace_parent="00-1",
        waiting_for=None,
        outcome=None,
        cancel_ms=None,
    )


async def test_another_tenant_s_run_looks_as_if_it_were_not_there(store: Store) -> None:
    run = await queued(store)

    with pytest.raises(NotFoundError) as caught:
        await store.read(runs.find("other", run.id))

    assert caught.value.code == "run_not_found"


async def test_another_tenant_s_session_cannot_be_joined(store: Store) -> None:
    run = await queued(store)

    with pytest.raises(NotFoundError) as caught:
        await store.create(behind(run, tenant="other"))

    assert caught.value.code == "session_not_found"
    assert await store.read(runs.search("other", RunFilter(), Page(10))) == []


async def test_a_run_behind_an_unfinished_one_is_blocked(store: Store) -> None:
    first = await queued(store)

    created = await store.create(behind(first))

    assert created.status == "blocked"


async def test_a_run_behind_a_finished_one_is_queued(store: Store) -> None:
    run = a_run()
    await finished(store, run)

    created = await store.create(behind(run))

    assert created.status == "queued"


async def test_a_run_for_later_is_scheduled_and_blocks_nobody(store: Store) -> None:
    later = a_run(scheduled_ms=LATER_MS)

    created = await store.create(later)
    next_one = await store.create(behind(later))

    assert created.status == "scheduled"
    assert next_one.status == "queued"


async def test_a_repeated_request_gets_the_run_that_it_made(store: Store) -> None:
    first = await queued(store, a_run(request=REQUEST))

    again = await store.create(a_run(request=REQUEST))

    assert again == runs.Created(first.id, "", replayed=True)


async def test_a_used_key_with_another_request_is_refused(store: Store) -> None:
    await queued(store, a_run(request=REQUEST))

    with pytest.raises(idempotency.RequestConflictError):
        await store.create(a_run(request=replace(REQUEST, hash="other")))


@pytest.mark.parametrize(
    "changes", [{"tenant": "other"}, {"request": replace(REQUEST, scope="POST /v1/agents")}]
)
async def test_a_key_is_one_tenant_s_and_one_path_s(
    store: Store, changes: dict[str, object]
) -> None:
    await queued(store, a_run(request=REQUEST))

    created = await store.create(a_run(**{"request": REQUEST, **changes}))

    assert not created.replayed


async def test_a_key_is_forgotten_after_a_day(store: Store) -> None:
    first = await queued(store, a_run(request=REQUEST))
    next_day = first.created_ms + idempotency.TTL_MS + 1

    created = await store.create(a_run(request=REQUEST, created_ms=next_day))

    assert not created.replayed


async def test_a_full_queue_counts_what_is_scheduled_and_blocked_too(store: Store) -> None:
    first = await queued(store)
    await queued(store, behind(first))
    await queued(store, a_run(scheduled_ms=LATER_MS))

    with pytest.raises(OverloadedError):
        await store.write(runs.create([a_run()], queue_max=3))

    assert await store.write(runs.create([a_run()], queue_max=4))


async def test_runs_that_are_in_hand_or_over_do_not_fill_the_queue(store: Store) -> None:
    await finished(store)
    await waiting(store)
    await held(store)

    (created,) = await store.write(runs.create([a_run()], queue_max=1))

    assert isinstance(created, runs.Created)


async def test_a_full_queue_answers_what_was_asked_before(store: Store) -> None:
    first = await queued(store, a_run(request=REQUEST))

    answered = await store.write(runs.create([a_run(request=REQUEST)], queue_max=1))

    assert answered == [runs.Created(first.id, "", replayed=True)]


async def test_a_queue_that_is_nearly_full_makes_room_for_no_more_than_are_new(
    store: Store,
) -> None:
    await queued(store, a_run(request=REQUEST))
    wanted = [a_run(request=REQUEST), a_run()]

    replayed, created = await store.write(runs.create(wanted, queue_max=2))

    assert isinstance(replayed, runs.Created)
    assert isinstance(created, runs.Created)
    assert (replayed.replayed, created.replayed) == (True, False)


# --- With an agent that is remembered -------------------------------------------------------


async def an_agent(store: Store) -> AgentRow:
    return await store.write(
        agents.create(TENANT, an_id("clerk"), "{}", agent_id=an_id("agt"), now_ms=1)
    )


def remembering(agent: AgentRow, **changes: Any) -> NewRun:
    return a_run(
        agent_id=agent.id, agent_version=agent.version, agent_is_remembered=True, **changes
    )


async def test_an_agent_that_is_as_it_is_remembered_is_taken(store: Store) -> None:
    first, second = await an_agent(store), await an_agent(store)
    wanted = [remembering(first), remembering(second), remembering(first)]

    outcomes = await store.write(runs.create(wanted))

    assert [each.run_id for each in outcomes if isinstance(each, runs.Created)] == [
        run.id for run in wanted
    ]


@pytest.mark.parametrize("how", ["changed", "deleted", "never there", "another tenant's"])
async def test_one_that_moved_spoils_no_other_run_of_its_group(store: Store, how: str) -> None:
    good, bad = await an_agent(store), await an_agent(store)
    wanted = [remembering(good), remembering(bad, request=REQUEST), a_run()]
    match how:
        case "changed":
            await store.write(agents.revise(TENANT, bad.id, "[]", now_ms=2))
        case "deleted":
            await store.write(agents.delete(TENANT, bad.id, now_ms=2))
        case "never there":
            wanted[1] = replace(wanted[1], agent_id="agt_x")
        case _:
            wanted[1] = replace(wanted[1], tenant="other")

    outcomes = await store.write(runs.create(wanted))

    assert [type(each) for each in outcomes] == [
        runs.Created, runs.AgentMovedError, runs.Created,
    ]  # fmt: skip
    assert not (await store.create(a_run(request=REQUEST, tenant=wanted[1].tenant))).replayed


async def test_a_repeated_request_is_answered_although_its_agent_moved(store: Store) -> None:
    agent = await an_agent(store)
    first = await queued(store, remembering(agent, request=REQUEST))
    await store.write(agents.delete(TENANT, agent.id, now_ms=2))

    again = await store.create(remembering(agent, request=REQUEST))

    assert again == runs.Created(first.id, "", replayed=True)


async def test_a_run_that_is_refused_for_its_agent_takes_no_room_in_the_queue(
    store: Store,
) -> None:
    agent = await an_agent(store)
    wanted = [remembering(replace(agent, version=7)), remembering(agent)]

    refused, created = await store.write(runs.create(wanted, queue_max=1))

    assert isinstance(refused, runs.AgentMovedError)
    assert isinstance(created, runs.Created)


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
    first = a_letter("cancel", now_ms=100, cancel_grace_ms=10)
    again = a_letter("cancel", now_ms=109, cancel_grace_ms=10)

    await store.write(runs.deliver(TENANT, claim.run_id, first))
    await store.write(runs.deliver(TENANT, claim.run_id, again))

    (due,) = await store.read(runs.due(110, 10))
    assert (due.id, due.cancel_ms) == (claim.run_id, 100)


async def test_other_letters_leave_the_time_of_a_cancel_alone(store: Store) -> None:
    claim = await held(store, a_run(deadline_ms=LATER_MS))
    await store.write(
        runs.deliver(TENANT, claim.run_id, a_letter("cancel", now_ms=100, cancel_grace_ms=10))
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

    first = await store.write(runs.start_scheduled(due, 500))
    again = await store.write(runs.start_scheduled(due, 500))

    assert (first, again) == ("queued", None)
    assert await store.read(runs.due(899, 10)) == []
    assert [row.id for row in await store.read(runs.due(900, 10))] == [run.id]


async def test_a_scheduled_run_takes_its_turn_behind_an_active_one(store: Store) -> None:
    active = await queued(store)
    await queued(store, behind(active, scheduled_ms=500))
    (due,) = await store.read(runs.due(500, 10))

    assert await store.write(runs.start_scheduled(due, 500)) == "blocked"


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

    await store.write(runs.start_scheduled(due, AHEAD_MS))

    assert (await next_claim(store)).run_id == run.id


async def test_a_run_handed_back_by_a_process_whose_clock_is_ahead_goes_on_at_once(
    store: Store,
) -> None:
    claim = await held(store)
    retrying = replace(an_entry("run.retrying"), time_ms=AHEAD_MS)

    await store.append(an_append(claim, retrying, change=Change("queued", resume_why="drain")))

    assert (await next_claim(store)).run_id == claim.run_id
