"""The queue: claims, leases, and what becomes of a dead worker's runs."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Literal

import orjson
import pytest
from sqlalchemy import update

from milepost.core.errors import FencedError
from milepost.core.events import (
    Event,
    Failure,
    MessageAborted,
    MessageCompleted,
    RunRetried,
    ToolCallCompleted,
    ToolCallFailed,
)
from milepost.core.evolve import evolve
from milepost.core.messages import ToolCall
from milepost.core.open_call import CallStatus, OpenCall
from milepost.core.state import State
from milepost.core.usage import Usage
from milepost.store import queue, runs, schema
from milepost.store.dialect import now_ms, number, text
from milepost.store.records import Claim, NewRun
from milepost.store.store import Store
from milepost.store.work import Statement, Work
from tests.store.making import (
    NOW_MS,
    TENANT,
    TTL_MS,
    a_finish,
    a_park,
    a_run,
    a_worker,
    an_append,
    an_entry,
    an_id,
    behind,
    claims,
    events,
    finished,
    held,
    lost,
    next_claim,
    queued,
    status,
    types,
    waiting,
)


async def test_a_claim_brings_what_a_worker_needs(store: Store) -> None:
    labels = {"user": "ann", "metadata": '{"a":"b"}', "trace_parent": "00-1"}
    run = await queued(store, a_run(**labels, lane=3))

    claim = await next_claim(store)

    assert claim == Claim(
        run_id=run.id,
        tenant=TENANT,
        session_id=run.session_id,
        agent_id="agt_1",
        agent_version=1,
        user="ann",
        epoch=1,
        head=2,
        inbox_seq=0,
        turns=0,
        metadata='{"a":"b"}',
        trace_parent="00-1",
        entries=tuple(await events(store, run.id)),
        lane=3,
    )


async def test_a_claim_is_an_event_that_names_the_worker(store: Store) -> None:
    run = await queued(store)
    worker = await a_worker(store)

    await claims(store, worker)

    started = (await events(store, run.id))[-1]
    assert started.type == "run.started"
    assert orjson.loads(started.data) == {"attempt": 1, "worker": worker}


async def test_a_later_claim_says_why_and_leaves_the_log_to_be_read(store: Store) -> None:
    claim = await held(store)

    again = await lost(store, claim)

    resumed = (await events(store, claim.run_id))[-1]
    assert (again.epoch, again.head, again.entries) == (2, 3, None)
    assert resumed.type == "run.resumed"
    assert orjson.loads(resumed.data)["why"] == "crash"


async def test_what_was_claimed_is_not_claimed_again(store: Store) -> None:
    await held(store)

    assert await claims(store, await a_worker(store)) == []


async def test_a_claim_takes_no_more_than_asked(store: Store) -> None:
    made = [(await queued(store)).id for _ in range(3)]
    worker = await a_worker(store)

    first = await claims(store, worker, limit=2)
    rest = await claims(store, worker, limit=2)

    assert [len(first), len(rest)] == [2, 1]
    assert sorted(claim.run_id for claim in (*first, *rest)) == made


async def test_many_workers_share_the_queue_and_take_each_run_once(store: Store) -> None:
    made = [(await queued(store)).id for _ in range(40)]
    workers = [await a_worker(store) for _ in range(8)]

    taken = await asyncio.gather(*(claims(store, worker) for worker in workers))

    ids = [claim.run_id for claimed in taken for claim in claimed]
    ids += [
        claim.run_id for worker in workers for claim in await claims(store, worker)
    ]  # what was locked by a neighbour was skipped
    assert sorted(ids) == made


async def test_a_claim_tells_how_many_turns_the_session_had(store: Store) -> None:
    run = a_run()
    await finished(store, run)
    await queued(store, behind(run))

    assert (await next_claim(store)).turns == 1


@pytest.mark.parametrize("make", [waiting, finished])
async def test_what_waits_or_is_over_is_not_claimed(
    store: Store, make: Callable[[Store], Awaitable[object]]
) -> None:
    await make(store)

    assert await claims(store, await a_worker(store)) == []


async def test_only_a_worker_whose_lease_stands_may_claim(store: Store) -> None:
    await queued(store)
    dismissed = await a_worker(store)
    await store.write(queue.dismiss(dismissed))
    await a_worker(store)

    for worker in (await a_worker(store, ttl_ms=-1), dismissed, "worker_none"):
        assert await claims(store, worker) == []


async def test_higher_lanes_go_first_except_in_a_fair_claim(store: Store) -> None:
    low = await queued(store, a_run(lane=0))
    high = await queued(store, a_run(lane=5))
    worker = await a_worker(store)

    fair = queue.claim(worker, 1, an_id("append"), NOW_MS, fair=True)
    (first,) = await store.write(fair)
    low_again = await queued(store, a_run(lane=0))
    (second,) = await claims(store, worker, limit=1)

    assert (first.run_id, second.run_id) == (low.id, high.id)
    assert (await next_claim(store)).run_id == low_again.id


async def test_runs_of_every_tenant_are_claimed_and_say_whose_they_are(store: Store) -> None:
    await queued(store, a_run(tenant="one"))
    await queued(store, a_run(tenant="two"))

    taken = await claims(store, await a_worker(store))

    assert sorted(claim.tenant for claim in taken) == ["one", "two"]


# --- Leases ---------------------------------------------------------------------------------


async def test_a_lease_that_lapsed_is_renewed_as_long_as_nobody_swept(store: Store) -> None:
    worker = await a_worker(store, ttl_ms=-1)

    await store.write(queue.renew(worker, TTL_MS))

    await queued(store)
    assert len(await claims(store, worker)) == 1


async def test_a_worker_renews_no_lease_but_its_own(store: Store) -> None:
    worker = await a_worker(store)
    run = await queued(store)
    await claims(store, worker)
    await store.write(queue.renew(worker, -1))

    await store.write(queue.renew(await a_worker(store), TTL_MS))

    assert await store.write(queue.sweep()) == [run.id]


async def test_who_was_declared_dead_cannot_renew(store: Store) -> None:
    worker = await a_worker(store, ttl_ms=-1)
    await store.write(queue.sweep())
    await a_worker(store)

    with pytest.raises(FencedError, match="go on under a new id"):
        await store.write(queue.renew(worker, TTL_MS))


async def test_an_unknown_worker_cannot_renew(store: Store) -> None:
    with pytest.raises(FencedError):
        await store.write(queue.renew("worker_none", TTL_MS))


async def test_the_only_process_declares_all_others_dead(store: Store) -> None:
    claim = await held(store)
    worker = await a_worker(store)

    await store.write(queue.dismiss_others(worker))

    assert await store.write(queue.sweep()) == [claim.run_id]
    assert [again.run_id for again in await claims(store, worker)] == [claim.run_id]


# --- Sweeping -------------------------------------------------------------------------------


async def test_runs_of_living_workers_are_left_alone(store: Store) -> None:
    claim = await held(store)

    assert await store.write(queue.sweep()) == []
    await store.append(an_append(claim))


async def test_runs_of_a_worker_that_vanished_are_queued_again(store: Store) -> None:
    worker = await a_worker(store)
    run = await queued(store)
    await claims(store, worker)
    await store.write(queue.dismiss(worker))

    assert await store.write(queue.sweep()) == [run.id]
    assert await status(store, run.id) == "queued"


async def test_a_run_that_crashes_its_workers_waits_longer_each_time(store: Store) -> None:
    run = await queued(store)
    claim = await next_claim(store)
    await lost(store, claim)

    await store.write(queue.dismiss_others("nobody"))
    await store.write(queue.sweep())

    row = await store.read(runs.find(TENANT, run.id))
    assert row.status == "queued"
    assert await claims(store, await a_worker(store)) == []  # its time has not come


@pytest.mark.parametrize("kind", sorted(queue.PROGRESS))
async def test_a_crash_after_something_was_achieved_is_a_first_one(store: Store, kind: str) -> None:
    claim = await held(store)
    again = await lost(store, claim)
    await store.append(an_append(again, an_entry(kind)))

    third = await lost(store, again)

    assert third.epoch == 3  # its time had come at once


async def test_what_another_run_achieved_makes_no_crash_a_first_one(store: Store) -> None:
    idle, busy = await queued(store), await queued(store)
    for _ in range(2):
        taken = {claim.run_id: claim for claim in await claims(store, await a_worker(store))}
        assert set(taken) == {idle.id, busy.id}
        await store.append(an_append(taken[busy.id], an_entry("message.completed")))
        await store.write(queue.dismiss_others("nobody"))
        await store.write(queue.sweep())

    assert (await next_claim(store)).run_id == busy.id


def test_what_counts_as_achieved_sets_the_state_s_count_back_too() -> None:
    call = ToolCall("c1", "charge", {})
    crashed = replace(
        State(), crashes=2, open_message="msg_1", calls={"c1": OpenCall(call, CallStatus.STARTED)}
    )
    achieved: list[Event] = [
        MessageCompleted("msg_1", "Hello.", "stop", Usage()),
        ToolCallCompleted("c1", "charged", 1),
        ToolCallFailed("c1", Failure("tool_failed", "no")),
        RunRetried("ann"),
    ]

    assert {event.type for event in achieved} == queue.PROGRESS
    assert [evolve(crashed, event).crashes for event in achieved] == [0, 0, 0, 0]
    assert evolve(crashed, MessageAborted("msg_1", "lost")).crashes == 2


async def test_what_was_achieved_before_the_last_crash_counts_for_that_one_only(
    store: Store,
) -> None:
    claim = await held(store)
    await store.append(an_append(claim, an_entry("message.completed")))
    await lost(store, claim)

    await store.write(queue.dismiss_others("nobody"))
    await store.write(queue.sweep())

    assert await claims(store, await a_worker(store)) == []


async def test_to_begin_anew_achieves_nothing(store: Store) -> None:
    claim = await held(store)
    again = await lost(store, claim)
    await store.append(an_append(again, an_entry("message.aborted"), an_entry("message.started")))

    await store.write(queue.dismiss_others("nobody"))
    await store.write(queue.sweep())

    assert await claims(store, await a_worker(store)) == []


@pytest.mark.parametrize("kind", sorted(queue.PROGRESS))
async def test_giving_up_after_something_was_achieved_brings_no_pause(
    store: Store, kind: str
) -> None:
    claim = await held(store)
    again = await lost(store, claim)
    await store.append(an_append(again, an_entry(kind)))
    worker = orjson.loads((await events(store, claim.run_id))[-2].data)["worker"]

    assert await store.write(queue.give_up(TENANT, claim.run_id, again.epoch, worker, "crash"))

    assert (await next_claim(store)).run_id == claim.run_id


# --- Whom a run is driven beside -------------------------------------------------------------


_SET = Statement(
    update(schema.runs)
    .where(schema.runs.c.id == text("run_id"))
    .values(crashes=number("times"), run_at_ms=now_ms() - number("ready_for_ms"))
)


def standing(run_id: str, times: int, ready_for_ms: int = 0) -> Work[None]:
    """Have the run be as after so many crashes, and ready for so long."""
    yield _SET(run_id=run_id, times=times, ready_for_ms=ready_for_ms)


async def crashed(store: Store, *, times: int, runs_of: int = 1) -> list[str]:
    """Queue runs that have crashed so often; return them."""
    made = [(await queued(store)).id for _ in range(runs_of)]
    for run_id in made:
        await store.write(standing(run_id, times))
    return made


async def taken(store: Store, *, crashes_max: int = queue.ANY_CRASHES) -> list[tuple[str, int]]:
    """Claim for a new worker; return which runs came, and how often each has crashed."""
    work = queue.claim(await a_worker(store), 10, an_id("append"), NOW_MS, crashes_max=crashes_max)
    return sorted((claim.run_id, claim.crashes) for claim in await store.write(work))


async def test_runs_that_have_crashed_once_are_taken_together(store: Store) -> None:
    made = await crashed(store, times=1, runs_of=3)
    fresh = await queued(store)

    assert await taken(store) == sorted([(fresh.id, 0), *((run_id, 1) for run_id in made)])


async def test_a_run_on_its_last_try_lets_others_that_have_crashed_go_first_and_comes_without_them(
    store: Store,
) -> None:
    last = await crashed(store, times=queue.LAST_TRY, runs_of=2)
    once = await crashed(store, times=1)
    fresh = await queued(store)

    first, second, third = [await taken(store) for _ in range(3)]

    assert first == sorted([(once[0], 1), (fresh.id, 0)])
    assert second == [(last[0], 2)]
    assert third == [(last[1], 2)]


@pytest.mark.parametrize(("in_hand", "with_it"), [(0, [0, 1]), (1, [0, 1]), (2, [0]), (3, [0])])
async def test_what_is_in_hand_says_what_may_be_taken_beside_it(
    store: Store, in_hand: int, with_it: list[int]
) -> None:
    await crashed(store, times=queue.LAST_TRY)
    await crashed(store, times=1)
    await queued(store)

    found = await taken(store, crashes_max=queue.bearable(in_hand))

    assert [crashes for _, crashes in sorted(found, key=lambda each: each[1])] == with_it


async def test_nobody_is_kept_apart_for_ever(store: Store) -> None:
    [last] = await crashed(store, times=queue.LAST_TRY)
    assert await taken(store, crashes_max=0) == []

    await store.write(standing(last, 2, queue.APART_MS))

    assert await taken(store, crashes_max=0) == [(last, 2)]


async def test_runs_that_are_asked_for_by_name_are_kept_apart_too(store: Store) -> None:
    last = await crashed(store, times=queue.LAST_TRY, runs_of=2)
    work = queue.claim_specific(await a_worker(store), last, an_id("append"), NOW_MS)

    assert [claim.run_id for claim in await store.write(work)] == last[:1]


async def test_runs_that_nobody_took_for_long_are_kept_apart_too(store: Store) -> None:
    last = await crashed(store, times=queue.LAST_TRY, runs_of=2)
    for run_id in last:
        await store.write(standing(run_id, 2, 5_000))
    work = queue.claim_overdue(
        await a_worker(store), 10, 1_000, an_id("append"), NOW_MS, crashes_max=1
    )

    assert await store.write(work) == []


# --- Giving up ------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["crash", "outage"])
async def test_a_run_whose_driving_failed_is_queued_again(
    store: Store, why: Literal["crash", "outage"]
) -> None:
    worker = await a_worker(store)
    run = await queued(store)
    await claims(store, worker)

    assert await store.write(queue.give_up(TENANT, run.id, 1, worker, why))

    again = await next_claim(store)
    assert (again.run_id, again.epoch) == (run.id, 2)


async def test_nobody_gives_up_what_is_not_his(store: Store) -> None:
    worker = await a_worker(store)
    run = await queued(store)
    await claims(store, worker)

    for work in (
        queue.give_up("other", run.id, 1, worker, "crash"),
        queue.give_up(TENANT, run.id, 2, worker, "crash"),
        queue.give_up(TENANT, run.id, 1, "worker_none", "crash"),
    ):
        assert not await store.write(work)
    assert await status(store, run.id) == "running"


async def test_who_gives_up_one_run_keeps_the_others(store: Store) -> None:
    worker = await a_worker(store)
    for _ in range(2):
        await queued(store)
    first, second = await claims(store, worker)

    await store.write(queue.give_up(TENANT, first.run_id, 1, worker, "crash"))

    assert await store.read(queue.owned(worker)) == [(TENANT, second.run_id, 1)]


# --- What a worker owns -----------------------------------------------------------------------


async def test_a_claim_whose_answer_was_lost_is_found_by_its_id(store: Store) -> None:
    run, other = await queued(store), await queued(store)
    worker = await a_worker(store)
    (first,) = await store.write(queue.claim(worker, 1, "append_a", NOW_MS))
    (second,) = await store.write(queue.claim(worker, 1, "append_b", NOW_MS))

    (found,) = await store.read(queue.claimed(worker, "append_b"))

    assert [first.run_id, second.run_id] == [run.id, other.id]
    assert found == replace(second, entries=None)
    assert await store.read(queue.claimed(worker, "append_c")) == []
    assert await store.read(queue.claimed("worker_none", "append_b")) == []


async def test_a_claim_that_somebody_else_took_over_since_is_not_found(store: Store) -> None:
    worker = await a_worker(store)
    await queued(store)
    (claim,) = await store.write(queue.claim(worker, 1, "append_a", NOW_MS))
    await lost(store, claim)

    assert await store.read(queue.claimed(worker, "append_a")) == []


async def test_a_claim_of_a_run_that_was_claimed_anew_since_is_not_found(store: Store) -> None:
    worker = await a_worker(store)
    run = await queued(store)
    await store.write(queue.claim(worker, 1, "append_a", NOW_MS))
    await store.write(queue.give_up(TENANT, run.id, 1, worker, "outage"))

    (again,) = await store.write(queue.claim(worker, 1, "append_b", NOW_MS))

    assert await store.read(queue.claimed(worker, "append_a")) == []
    assert await store.read(queue.claimed(worker, "append_b")) == [again]


async def test_what_a_worker_owns_is_what_it_claimed_and_did_not_let_go_of(store: Store) -> None:
    worker = await a_worker(store)
    for _ in range(3):
        await queued(store)
    kept, parked, ended = await claims(store, worker)
    await store.append(a_park(parked))
    await store.append(a_finish(ended))
    await held(store)

    assert await store.read(queue.owned(worker)) == [(TENANT, kept.run_id, kept.epoch)]


# --- Load -----------------------------------------------------------------------------------


async def test_the_load_counts_what_is_not_over_for_all_and_for_one(store: Store) -> None:
    for tenant in (TENANT, "other"):
        run = a_run(tenant=tenant)
        await held(store, run)
        await queued(store, behind(run, tenant=tenant))
    await waiting(store)
    await finished(store)
    await queued(store)
    await queued(store, a_run(scheduled_ms=100 * NOW_MS))
    for others in ({}, {"scheduled_ms": 100 * NOW_MS}):
        await queued(store, a_run(tenant="other", **others))

    everybody = await store.read(queue.load())
    mine = await store.read(queue.load_of(TENANT))

    assert mine == {"running": 1, "blocked": 1, "waiting": 1, "queued": 1, "scheduled": 1}
    assert everybody == {"running": 2, "blocked": 2, "waiting": 1, "queued": 2, "scheduled": 2}


async def test_the_log_of_a_much_claimed_run_has_no_gap(store: Store) -> None:
    claim = await held(store)
    again = await lost(store, claim)

    await store.append(an_append(again))

    assert types(await events(store, claim.run_id)) == [
        "run.queued", "run.started", "run.resumed", "step.started",
    ]  # fmt: skip


# --- For who is told what is ready, and who delivers it ---


def claiming(worker: str, *run_ids: str) -> Work[list[Claim]]:
    return queue.claim_specific(worker, run_ids, an_id("append"), NOW_MS)


async def test_a_claim_of_certain_runs_takes_these_and_no_others(store: Store) -> None:
    wanted, other, another = [await queued(store) for _ in range(3)]
    worker = await a_worker(store)

    taken = await store.write(claiming(worker, another.id, wanted.id))

    assert sorted(claim.run_id for claim in taken) == [wanted.id, another.id]
    assert all(claim.entries and claim.head == 2 for claim in taken)
    assert await status(store, other.id) == "queued"


@pytest.mark.parametrize("make", [waiting, held, finished])
async def test_what_is_not_ready_is_not_claimed_by_its_name(
    store: Store, make: Callable[[Store], Awaitable[Claim]]
) -> None:
    claim = await make(store)
    before = await status(store, claim.run_id)

    assert await store.write(claiming(await a_worker(store), claim.run_id, "run_none")) == []
    assert await status(store, claim.run_id) == before


async def test_a_run_at_rest_after_a_crash_is_not_claimed_by_its_name(store: Store) -> None:
    await held(store)
    await store.write(queue.dismiss_others("nobody"))
    await store.write(queue.sweep())
    worker = await a_worker(store)
    (claim,) = await claims(store, worker)
    await store.write(queue.give_up(TENANT, claim.run_id, claim.epoch, worker, "crash"))

    assert await store.write(claiming(await a_worker(store), claim.run_id)) == []


async def test_who_is_dead_claims_nothing_by_its_name(store: Store) -> None:
    run = await queued(store)
    worker = await a_worker(store)
    await store.write(queue.dismiss(worker))

    assert await store.write(claiming(worker, run.id)) == []


async def test_of_many_who_claim_one_run_by_its_name_one_gets_it(store: Store) -> None:
    run = await queued(store)
    workers = [await a_worker(store) for _ in range(8)]

    claimed = await asyncio.gather(*(store.write(claiming(each, run.id)) for each in workers))

    assert sorted(map(len, claimed)) == [0] * 7 + [1]
    assert types(await events(store, run.id)) == ["run.queued", "run.started"]


async def test_only_what_was_ready_for_so_long_is_overdue(store: Store) -> None:
    run = await queued(store)
    worker = await a_worker(store)

    def overdue(ready_for_ms: int) -> Work[list[Claim]]:
        return queue.claim_overdue(worker, 10, ready_for_ms, an_id("append"), NOW_MS)

    assert await store.write(overdue(3_600_000)) == []
    assert [claim.run_id for claim in await store.write(overdue(0))] == [run.id]


async def test_what_is_ready_is_told_in_the_order_of_the_claim(store: Store) -> None:
    await waiting(store)
    low = await queued(store, a_run(lane=-1))
    high = await queued(store, a_run(lane=2))
    resting = await queued(store, a_run(lane=5))
    await store.write(standing(resting.id, 1, -TTL_MS))

    found = await store.read(queue.ready(10))

    assert [(each.id, each.epoch, each.lane) for each in found] == [
        (high.id, 0, 2),
        (low.id, 0, -1),
    ]
    assert all(each.ready_for_ms >= 0 for each in found)
    assert [each.id for each in await store.read(queue.ready(1))] == [high.id]


async def test_those_that_live_have_each_a_seat_of_their_own(store: Store) -> None:
    gone, *workers = [await a_worker(store) for _ in range(4)]
    await store.write(queue.dismiss(gone))
    await a_worker(store, ttl_ms=-1)

    seats = [await store.read(queue.seat(worker)) for worker in workers]

    assert {seat.living for seat in seats} == {3}
    assert sorted(seat.before for seat in seats) == [0, 1, 2]


@pytest.mark.parametrize(
    ("make", "word", "over"),
    [
        (queued, "queued", False),
        (held, "running", False),
        (waiting, "waiting", False),
        (finished, "completed", True),
    ],
)
async def test_how_a_run_stands_is_told_without_its_tenant(
    store: Store, make: Callable[[Store], Awaitable[NewRun | Claim]], word: str, *, over: bool
) -> None:
    made = await make(store)
    run_id = made.id if isinstance(made, NewRun) else made.run_id

    standing = await store.read(queue.standing(run_id))

    assert standing is not None
    assert (standing.status, standing.over) == (word, over)
    assert standing.ready_in_ms <= 0
    assert await store.read(queue.standing("run_none")) is None
