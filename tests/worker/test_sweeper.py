"""What time brings, done by whoever comes first."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import update

from milepost.core.agents import Limits
from milepost.core.events import (
    ApprovalExpired,
    ApprovalWithdrawn,
    MessageAborted,
    RunCancelled,
    RunExpired,
    ToolCallDenied,
)
from milepost.live.hub import QUEUE_BELL, approvals_bell, inbox_bell, session_bell
from milepost.providers.scripted import Scripted, calling, saying
from milepost.store import idempotency, queue, runs, schema
from milepost.store.budget_counters import KEPT_MS
from milepost.store.budgets import BudgetRow
from milepost.store.idempotency import PURGE_MAX, TTL_MS, Asked
from milepost.store.records import Request
from milepost.store.work import Statement, Work
from milepost.tools import tool
from milepost.worker.sweeper import DUE_MAX, Sweeper
from tests.runtime.workshop import ASK, TENANT, TIMEOUT_S, Held, Workshop, of, putting
from tests.store.budgeting import a_call_of, counted, kept, place_in, reserving


class Lease:
    """A lease that is steady when it is said to be."""

    def __init__(self, *, steady: bool = True) -> None:
        self.steady = steady
        self.pulses = 0

    def pulse(self) -> None:
        """Count it."""
        self.pulses += 1


HOUR_MS = 3_600_000


@pytest.fixture
def sweeper(shop: Workshop) -> Sweeper:
    return Sweeper(shop.ports, Lease())


@tool
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


async def stranded(shop: Workshop) -> str:
    """Return a run whose worker is dead."""
    run = await shop.queue()
    claim = await shop.claim()
    await shop.store.write(queue.dismiss_others("nobody"))
    assert claim.run_id == run.id
    return run.id


async def asking(shop: Workshop, *, ttl_s: float = 60.0, deadline_ms: int | None = None) -> str:
    """Return a run that waits for a person."""
    agent = shop.agent(pay, policy=ASK, limits=Limits(approval_ttl_s=ttl_s))
    run = await shop.queue(deadline_ms=deadline_ms)
    await shop.go_on([calling(("pay", {"cents": 5}))], pay, agent=agent)
    return run.id


async def test_runs_of_the_dead_are_queued_again(shop: Workshop, sweeper: Sweeper) -> None:
    run_id = await stranded(shop)

    with shop.hub.bell(QUEUE_BELL) as rung:
        assert await sweeper.sweep() == [run_id]
        assert rung.is_set()

    assert (await shop.row(run_id)).status == "queued"
    assert await sweeper.sweep() == []


async def test_all_runs_of_the_dead_are_queued_again_at_once(
    shop: Workshop, sweeper: Sweeper
) -> None:
    queued = {(await shop.queue()).id for _ in range(2 * queue.SWEEP_MAX + 1)}
    worker = await shop.worker()
    while await shop.store.write(queue.claim(worker, queue.SWEEP_MAX, shop.new_id("apd"), 1)):
        pass
    await shop.store.write(queue.dismiss(worker))

    assert set(await sweeper.sweep()) == queued


async def test_who_is_not_steady_sweeps_nobody(shop: Workshop) -> None:
    run_id = await stranded(shop)
    sweeper = Sweeper(shop.ports, Lease(steady=False))

    assert await sweeper.sweep() == []
    assert (await shop.row(run_id)).status == "running"
    assert await sweeper.sweep_now() == [run_id]


async def test_a_scheduled_run_starts_when_its_time_has_come(
    shop: Workshop, sweeper: Sweeper
) -> None:
    run = await shop.queue(scheduled_ms=shop.clock() + 60_000)
    await sweeper.tick()
    assert (await shop.row(run.id)).status == "scheduled"

    shop.clock.ahead_ms = 60_001
    with (
        shop.hub.bell(QUEUE_BELL) as workers,
        shop.hub.bell(session_bell(run.session_id)) as listeners,
    ):
        await sweeper.tick()
        assert (workers.is_set(), listeners.is_set()) == (True, True)

    await shop.go_on([saying("On time.")])
    assert (await shop.row(run.id)).status == "completed"


async def test_all_that_is_due_is_done_in_one_turn(shop: Workshop, sweeper: Sweeper) -> None:
    due = [await shop.queue(scheduled_ms=1) for _ in range(2 * DUE_MAX + 1)]

    await sweeper.tick()

    assert {(await shop.row(run.id)).status for run in due} == {"queued"}


async def test_runs_that_still_run_behind_their_deadline_hold_up_nobody(
    shop: Workshop, sweeper: Sweeper
) -> None:
    """Their workers end them; until then they are due, and first."""
    for _ in range(DUE_MAX):
        await shop.queue(deadline_ms=1)
    await shop.store.write(queue.claim(await shop.worker(), DUE_MAX, shop.new_id("apd"), 1))
    late = await shop.queue(deadline_ms=2)

    await sweeper.tick()

    assert (await shop.row(late.id)).status == "expired"


async def test_a_run_that_waits_expires_at_its_deadline(shop: Workshop, sweeper: Sweeper) -> None:
    run_id = await asking(shop, deadline_ms=shop.clock() + 60_000)
    await sweeper.tick()
    assert (await shop.row(run_id)).status == "waiting"

    shop.clock.ahead_ms = 60_001
    await sweeper.tick()

    log = await shop.log(run_id)
    assert [event.type for event in log[-2:]] == ["approval.withdrawn", "run.expired"]
    assert of(log, RunExpired)[0].limit == "deadline"
    assert len(of(log, ApprovalWithdrawn)) == 1
    assert await shop.pending() == []


async def test_a_run_that_nobody_took_expires_at_its_deadline(
    shop: Workshop, sweeper: Sweeper
) -> None:
    run = await shop.queue(deadline_ms=shop.clock() + 60_000)

    shop.clock.ahead_ms = 60_001
    await sweeper.tick()

    assert await shop.types(run.id) == ["run.queued", "run.expired"]


async def test_many_runs_that_cannot_be_ended_hide_none_behind_them(
    shop: Workshop, sweeper: Sweeper
) -> None:
    for number in range(DUE_MAX):
        broken = await shop.queue(deadline_ms=1 + number // 2)
        await shop.store.write(broken_log(broken.id))
    sound = await shop.queue(deadline_ms=DUE_MAX)

    await sweeper.tick()

    assert (await shop.row(sound.id)).status == "expired"


async def test_many_children_that_cannot_be_ended_hide_none_behind_them(
    shop: Workshop, sweeper: Sweeper
) -> None:
    below: dict[str, Any] = {"parent_run_id": "run_gone", "parent_call_id": "call_1"}
    for _ in range(DUE_MAX):
        await shop.store.write(broken_log((await shop.queue(**below)).id))
    sound = [await shop.queue(**below) for _ in range(2)]

    await sweeper.reunite()

    assert {(await shop.row(run.id)).status for run in sound} == {"cancelled"}


async def test_a_run_whose_log_cannot_be_read_keeps_no_other_from_its_deadline(
    shop: Workshop, sweeper: Sweeper
) -> None:
    broken = await shop.queue(deadline_ms=shop.clock() + 1)
    sound = await shop.queue(deadline_ms=shop.clock() + 2)
    await shop.store.write(broken_log(broken.id))

    shop.clock.ahead_ms = 60_000
    await sweeper.tick()

    assert (await shop.row(broken.id)).status == "queued"
    assert (await shop.row(sound.id)).status == "expired"


def broken_log(run_id: str) -> Work[None]:
    """Leave no sense in what the run's log says."""
    yield Statement(
        update(schema.events).where(schema.events.c.run_id == run_id).values(data="not JSON")
    )()


async def test_a_run_that_is_driven_expires_by_its_own_worker(
    shop: Workshop, sweeper: Sweeper
) -> None:
    run = await shop.queue(deadline_ms=shop.clock() + 60_000)
    await shop.claim()

    shop.clock.ahead_ms = 60_001
    await sweeper.tick()

    assert (await shop.row(run.id)).status == "running"


async def test_an_approval_that_nobody_answered_means_no(shop: Workshop, sweeper: Sweeper) -> None:
    run_id = await asking(shop, ttl_s=0.001)

    async with asyncio.timeout(TIMEOUT_S):
        while (await shop.row(run_id)).status == "waiting":
            await sweeper.tick()  # The database's own clock says when it is due.

    model = Scripted([saying("Then not.")])
    await shop.go_on(model, pay, agent=shop.agent(pay, policy=ASK))
    log = await shop.log(run_id)
    assert len(of(log, ApprovalExpired)) == 1
    assert of(log, ToolCallDenied)[0].reason == "nobody answered in time"
    assert (await shop.row(run_id)).status == "completed"


async def test_whoever_waits_hears_at_once_that_nobody_answered_in_time(
    shop: Workshop, sweeper: Sweeper
) -> None:
    run_id = await asking(shop, ttl_s=0.001)

    with (
        shop.hub.bell(approvals_bell(TENANT)) as people,
        shop.hub.bell(inbox_bell(run_id)) as driver,
        shop.hub.bell(QUEUE_BELL) as workers,
    ):
        async with asyncio.timeout(TIMEOUT_S):
            while (await shop.row(run_id)).status == "waiting":
                await sweeper.tick()  # The database's own clock says when it is due.

        assert [rung.is_set() for rung in (people, driver, workers)] == [True, True, True]


@pytest.mark.parametrize("ahead_ms", [0, HOUR_MS], ids=["clocks agree", "who asks is ahead"])
async def test_a_worker_that_will_not_stop_is_fenced_off_after_its_grace(
    shop: Workshop, sweeper: Sweeper, ahead_ms: int
) -> None:
    model = Held()
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(model))
    driving = asyncio.create_task(driven.run())
    await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
    asked_ms = shop.clock() + ahead_ms
    letter = runs.Letter("cancel", '{"by":"ann","reason":"typo"}', "cancel", asked_ms, 0)
    await shop.store.write(runs.deliver(TENANT, run.id, letter))

    with shop.hub.bell(inbox_bell(run.id)) as rung:
        await sweeper.tick()
        assert rung.is_set()

    log = await shop.log(run.id)
    assert len(of(log, MessageAborted)) == 1
    [ended] = of(log, RunCancelled)
    assert (ended.by, ended.reason, ended.stopped) == ("ann", "typo", ("msg_1",))
    await asyncio.wait({driving}, timeout=TIMEOUT_S)
    assert type(driving.exception()).__name__ == "FencedError"
    assert model.closed.is_set()
    assert await shop.log(run.id) == log


@pytest.mark.parametrize("behind_ms", [0, HOUR_MS], ids=["clocks agree", "who asks is behind"])
async def test_a_cancellation_within_its_grace_is_left_to_the_worker(
    shop: Workshop, sweeper: Sweeper, behind_ms: int
) -> None:
    run = await shop.queue()
    await shop.claim()
    asked_ms = shop.clock() - behind_ms
    letter = runs.Letter("cancel", '{"by":"ann","reason":null}', "cancel", asked_ms, 10_000)
    await shop.store.write(runs.deliver(TENANT, run.id, letter))

    await sweeper.tick()

    assert (await shop.row(run.id)).status == "running"


async def test_a_run_that_was_told_to_stop_and_that_nobody_takes_is_ended(
    shop: Workshop, sweeper: Sweeper
) -> None:
    """Its worker has died meanwhile, say, and there is no other."""
    run = await shop.queue()
    letter = runs.Letter("cancel", '{"by":"ann","reason":"typo"}', "cancel", shop.clock(), 0)
    await shop.store.write(runs.deliver(TENANT, run.id, letter))

    await sweeper.tick()

    assert await shop.types(run.id) == ["run.queued", "run.cancelling", "run.cancelled"]
    assert of(await shop.log(run.id), RunCancelled)[0].by == "ann"


async def test_a_run_that_is_ended_after_its_grace_names_who_wanted_that_whoever_wrote_before(
    shop: Workshop, sweeper: Sweeper
) -> None:
    run = await shop.queue()
    await shop.put(run.id, "retry", {"by": "bob", "reason": "again"}, "retry")
    letter = runs.Letter("cancel", '{"by":"ann","reason":"typo"}', "cancel", shop.clock(), 0)
    await shop.store.write(runs.deliver(TENANT, run.id, letter))

    await sweeper.tick()

    [ended] = of(await shop.log(run.id), RunCancelled)
    assert (ended.by, ended.reason) == ("ann", "typo")


async def test_a_run_that_was_told_to_stop_as_it_was_handed_back_is_ended_if_nobody_takes_it(
    shop: Workshop, sweeper: Sweeper
) -> None:
    model = Held()
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(model))
    driving = asyncio.create_task(driven.run())
    await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
    letter = runs.Letter("cancel", '{"by":"ann","reason":"typo"}', "cancel", shop.clock(), 0)
    await shop.store.write(runs.deliver(TENANT, run.id, letter))
    driven.drain()
    await asyncio.wait_for(driving, TIMEOUT_S)
    assert (await shop.row(run.id)).status == "queued"

    await sweeper.tick()

    assert (await shop.row(run.id)).status == "cancelled"
    assert of(await shop.log(run.id), RunCancelled)[0].by == "ann"


async def test_two_sweepers_end_a_run_once(shop: Workshop) -> None:
    run = await shop.queue(deadline_ms=shop.clock() - 1)
    sweepers = [Sweeper(shop.ports, Lease()) for _ in range(4)]

    await asyncio.gather(*(each.tick() for each in sweepers))

    assert await shop.types(run.id) == ["run.queued", "run.expired"]


async def test_the_turns_tell_the_lease_that_the_loop_turns(shop: Workshop) -> None:
    lease = Lease()
    sweeper = Sweeper(shop.ports, lease, sweep_s=0.001)
    run = await shop.queue(deadline_ms=shop.clock() - 1)

    with shop.hub.listen(run.id) as (_, woken):
        turning = asyncio.create_task(sweeper.run())
        await asyncio.wait_for(woken.wait(), TIMEOUT_S)
        turning.cancel()

    assert lease.pulses >= 2
    assert (await shop.row(run.id)).status == "expired"


async def test_a_sweeper_queues_the_runs_of_the_dead_by_itself(shop: Workshop) -> None:
    run_id = await stranded(shop)

    with shop.hub.bell(QUEUE_BELL) as rung:
        sweeping = asyncio.create_task(Sweeper(shop.ports, Lease()).run())
        await asyncio.wait_for(rung.wait(), TIMEOUT_S)
        sweeping.cancel()

    assert (await shop.row(run_id)).status == "queued"


async def test_a_sweeper_stops_by_itself_what_has_no_parent_any_more(shop: Workshop) -> None:
    child = await shop.queue(parent_run_id="run_gone", parent_call_id="call_1")

    with shop.hub.listen(child.id) as (_, woken):
        sweeping = asyncio.create_task(Sweeper(shop.ports, Lease()).run())
        await asyncio.wait_for(woken.wait(), TIMEOUT_S)
        sweeping.cancel()

    assert (await shop.row(child.id)).status == "cancelled"


async def test_messages_are_not_touched_by_the_clock(shop: Workshop, sweeper: Sweeper) -> None:
    run = await shop.queue()
    await shop.claim()
    await shop.store.write(putting(run.id, "retry", {"by": "ann"}, "retry"))

    await sweeper.tick()

    assert len(await shop.inbox(run.id)) == 1


async def keyed(shop: Workshop, keys: range, *, time_ms: int) -> None:
    """Keep as many requests' keys."""
    asked = [
        Asked(TENANT, Request("POST /v1/agents", f"key-{n}", "hash"), f"agt_{n}", time_ms)
        for n in keys
    ]

    def work() -> Work[None]:
        yield idempotency.remember_all(asked)

    await shop.store.write(work())


async def test_keys_that_count_no_longer_are_forgotten_however_many(
    shop: Workshop, sweeper: Sweeper
) -> None:
    now = shop.ports.clock()
    await keyed(shop, range(PURGE_MAX + 5), time_ms=now - TTL_MS - 1_000)
    await keyed(shop, range(PURGE_MAX + 5, PURGE_MAX + 7), time_ms=now)

    assert await sweeper.purge() == PURGE_MAX + 5
    assert await sweeper.purge() == 0


async def test_a_sweeper_forgets_keys_by_itself(shop: Workshop) -> None:
    await keyed(shop, range(1), time_ms=shop.ports.clock() - TTL_MS - 1_000)
    asked = Asked(TENANT, Request("POST /v1/agents", "key-0", "hash"), "agt_new", 0)
    sweeper = Sweeper(shop.ports, Lease())
    assert await shop.store.write(idempotency.recall(asked)) == "agt_0"

    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(sweeper.run())
        while await shop.store.write(idempotency.recall(asked)) is not None:
            pass
        running.cancel()


# --- Budgets ---


async def reserved(shop: Workshop) -> BudgetRow:
    """Return a budget of which a run has reserved a call."""
    await shop.queue()
    claim, budget = await shop.claim(), await kept(shop.store)
    await shop.store.write(reserving(a_call_of(claim), place_in(budget)))
    return budget


async def test_what_a_dead_worker_had_reserved_is_given_back_though_nobody_asks_for_it(
    shop: Workshop, sweeper: Sweeper
) -> None:
    budget = await reserved(shop)
    assert await sweeper.free() == 0

    await shop.take_over()

    assert await sweeper.free() == 1
    assert await counted(shop.store, budget) == (0, 0)


async def test_a_sweeper_gives_back_by_itself(shop: Workshop) -> None:
    budget = await reserved(shop)
    await shop.take_over()
    sweeper = Sweeper(shop.ports, Lease())

    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(sweeper.run())
        while await counted(shop.store, budget) != (0, 0):
            pass
        running.cancel()


async def test_counters_of_the_past_are_forgotten_with_the_keys(
    shop: Workshop, sweeper: Sweeper
) -> None:
    await shop.queue()
    claim, budget = await shop.claim(), await kept(shop.store)
    now = shop.ports.clock()
    for resets_ms in (now - KEPT_MS - 1_000, now):
        place = place_in(budget, start_ms=resets_ms - 1, resets_ms=resets_ms)
        await shop.store.write(reserving(a_call_of(claim), place))

    assert await sweeper.purge() == 1
