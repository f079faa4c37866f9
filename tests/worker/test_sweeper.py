"""What time brings, done by whoever comes first."""

import asyncio

import pytest

from milepost.core.agents import Limits
from milepost.core.events import (
    ApprovalExpired,
    ApprovalWithdrawn,
    MessageAborted,
    RunCancelled,
    RunExpired,
    ToolCallDenied,
)
from milepost.live.hub import QUEUE_BELL, inbox_bell
from milepost.providers.scripted import Scripted, calling, saying
from milepost.store import queue, runs
from milepost.tools import tool
from milepost.worker.sweeper import Sweeper
from tests.runtime.workshop import ASK, TENANT, TIMEOUT_S, Held, Workshop, of, putting


class Lease:
    """A lease that is steady when it is said to be."""

    def __init__(self, *, steady: bool = True) -> None:
        self.steady = steady
        self.pulses = 0

    def pulse(self) -> None:
        """Count it."""
        self.pulses += 1


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
    with shop.hub.bell(QUEUE_BELL) as rung:
        await sweeper.tick()
        assert rung.is_set()

    await shop.go_on([saying("On time.")])
    assert (await shop.row(run.id)).status == "completed"


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


async def test_a_worker_that_will_not_stop_is_fenced_off_after_its_grace(
    shop: Workshop, sweeper: Sweeper
) -> None:
    model = Held()
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(model))
    driving = asyncio.create_task(driven.run())
    await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
    letter = runs.Letter("cancel", '{"by":"ann","reason":"typo"}', "cancel", shop.clock(), 0)
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


async def test_a_cancellation_within_its_grace_is_left_to_the_worker(
    shop: Workshop, sweeper: Sweeper
) -> None:
    run = await shop.queue()
    await shop.claim()
    letter = runs.Letter("cancel", '{"by":"ann","reason":null}', "cancel", shop.clock(), 10_000)
    await shop.store.write(runs.deliver(TENANT, run.id, letter))

    await sweeper.tick()

    assert (await shop.row(run.id)).status == "running"


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


async def test_messages_are_not_touched_by_the_clock(shop: Workshop, sweeper: Sweeper) -> None:
    run = await shop.queue()
    await shop.claim()
    await shop.store.write(putting(run.id, "retry", {"by": "ann"}, "retry"))

    await sweeper.tick()

    assert len(await shop.inbox(run.id)) == 1
