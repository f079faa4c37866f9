"""Runs being made: in their turns, once for each request, and refused each in its place."""

from dataclasses import replace
from typing import Any

import pytest

from milepost.core.errors import NotFoundError, OverloadedError
from milepost.store import agents, erasures, idempotency, new_runs, runs
from milepost.store.agents import AgentRow
from milepost.store.erasures import NewErasure
from milepost.store.records import AuditRow, NewRun, Page, Request, RunFilter
from milepost.store.store import Store
from tests.store.making import (
    NOW_MS,
    TENANT,
    a_run,
    an_id,
    behind,
    finished,
    held,
    queued,
    waiting,
)

LATER_MS = 4 * NOW_MS
REQUEST = Request("POST /v1/runs", "key-1", "hash")


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
    assert "leave session_id out" in str(caught.value)
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

    assert again == new_runs.Created(first.id, "", replayed=True)


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
        await store.write(new_runs.create([a_run()], queue_max=3))

    assert await store.write(new_runs.create([a_run()], queue_max=4))


async def test_runs_that_are_in_hand_or_over_do_not_fill_the_queue(store: Store) -> None:
    await finished(store)
    await waiting(store)
    await held(store)

    (created,) = await store.write(new_runs.create([a_run()], queue_max=1))

    assert isinstance(created, new_runs.Created)


async def test_a_full_queue_answers_what_was_asked_before(store: Store) -> None:
    first = await queued(store, a_run(request=REQUEST))

    answered = await store.write(new_runs.create([a_run(request=REQUEST)], queue_max=1))

    assert answered == [new_runs.Created(first.id, "", replayed=True)]


async def test_a_queue_that_is_nearly_full_makes_room_for_no_more_than_are_new(
    store: Store,
) -> None:
    await queued(store, a_run(request=REQUEST))
    wanted = [a_run(request=REQUEST), a_run()]

    replayed, created = await store.write(new_runs.create(wanted, queue_max=2))

    assert isinstance(replayed, new_runs.Created)
    assert isinstance(created, new_runs.Created)
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

    outcomes = await store.write(new_runs.create(wanted))

    assert [each.run_id for each in outcomes if isinstance(each, new_runs.Created)] == [
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

    outcomes = await store.write(new_runs.create(wanted))

    assert [type(each) for each in outcomes] == [
        new_runs.Created, new_runs.AgentMovedError, new_runs.Created,
    ]  # fmt: skip
    assert not (await store.create(a_run(request=REQUEST, tenant=wanted[1].tenant))).replayed


async def test_a_repeated_request_is_answered_although_its_agent_moved(store: Store) -> None:
    agent = await an_agent(store)
    first = await queued(store, remembering(agent, request=REQUEST))
    await store.write(agents.delete(TENANT, agent.id, now_ms=2))

    again = await store.create(remembering(agent, request=REQUEST))

    assert again == new_runs.Created(first.id, "", replayed=True)


async def test_a_run_that_is_refused_for_its_agent_takes_no_room_in_the_queue(
    store: Store,
) -> None:
    agent = await an_agent(store)
    wanted = [remembering(replace(agent, version=7)), remembering(agent)]

    refused, created = await store.write(new_runs.create(wanted, queue_max=1))

    assert isinstance(refused, new_runs.AgentMovedError)
    assert isinstance(created, new_runs.Created)


async def test_nothing_is_taken_for_the_user_of_a_session_who_is_being_erased(
    store: Store,
) -> None:
    first = await finished(store, a_run(user="ann"))
    follower = a_run(session_id=first.session_id, session_is_new=False, follows_session=True)
    new = NewErasure(an_id("era"), TENANT, "owner", "key", "ann", NOW_MS)
    act = AuditRow(an_id("aud"), TENANT, "key", "user.erased", new.id, "{}", NOW_MS)
    await store.write(erasures.begin(new, act))

    with pytest.raises(erasures.UserBeingErasedError):
        await store.create(follower)

    theirs = await store.read(runs.search(TENANT, RunFilter(), Page(10)))
    assert [row.id for row in theirs] == [first.run_id]
