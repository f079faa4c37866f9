"""A run that is stopped: cancelled, out of time, or handed back."""

import asyncio
import contextlib

from milepost.core.admission import UNKNOWN_OUTCOME
from milepost.core.events import (
    RunCancelled,
    RunCompleted,
    RunExpired,
    RunResumed,
    ToolCallCompleted,
    ToolCallStarted,
)
from milepost.providers.scripted import Scripted, calling, saying
from milepost.runtime.drive import INBOX_POLL_S, SETTLE_TRIES_MAX
from milepost.tools import tool
from tests.runtime.workshop import (
    TIMEOUT_S,
    Held,
    Turns,
    Workshop,
    in_background,
    of,
)

DEADLINE_MS = 60_000

# --- Ends from outside ---


async def test_a_cancelled_run_closes_the_models_stream(shop: Workshop) -> None:
    model = Held()
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(model))

    async with in_background(driven):
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        await shop.cancel(run.id)

    assert model.closed.is_set()
    log = await shop.log(run.id)
    assert [event.type for event in log[-3:]] == ["run.cancelling", "message.aborted",
                                                  "run.cancelled"]  # fmt: skip
    [ended] = of(log, RunCancelled)
    assert (ended.by, ended.reason, ended.stopped) == ("ann", "typo", ("msg_1",))


async def test_a_cancelled_run_has_stopped_its_tools_before_it_says_so(shop: Workshop) -> None:
    began = asyncio.Event()
    shown: list[str] = []

    @tool
    async def linger() -> None:
        """Linger."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            shown.extend(frame.type for frame in tail.ring)

    run = await shop.queue()
    means = shop.means([calling(("linger", {}))], linger)
    driven = await shop.driving(await shop.claim(), shop.agent(linger), means)

    with shop.hub.hold(run.id) as tail:
        async with in_background(driven):
            await asyncio.wait_for(began.wait(), TIMEOUT_S)
            await shop.cancel(run.id)

    assert shown[-1] == "tool_call.started"
    [ended] = of(await shop.log(run.id), RunCancelled)
    assert ended.stopped == ("call_1_0 linger",)


async def test_a_tool_that_will_not_be_cancelled_is_left_behind(shop: Workshop) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> None:
        """Go on, whatever one is told."""
        began.set()
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    run = await shop.queue()
    means = shop.means([calling(("stubborn", {}))], stubborn, stop_s=0.01)
    driven = await shop.driving(await shop.claim(), shop.agent(stubborn), means)

    async with in_background(driven):
        await asyncio.wait_for(began.wait(), TIMEOUT_S)
        await shop.cancel(run.id)

    assert (await shop.row(run.id)).status == "cancelled"
    release.set()


async def test_a_cancellation_that_came_while_a_step_was_written_is_read_at_once(
    shop: Workshop,
) -> None:
    """Nobody rings: only the number that the append brought back tells."""
    model = Held()

    @tool(effect="read")
    async def betray() -> str:
        """Have the run cancelled while its result is on its way."""
        await shop.put(run.id, "cancel", {"by": "ann", "reason": None}, "cancel")
        return "done"

    run = await shop.queue()
    means = shop.means(Turns(Scripted([calling(("betray", {}))]), model), betray)
    driven = await shop.driving(await shop.claim(), shop.agent(betray), means)
    await asyncio.wait_for(driven.run(), INBOX_POLL_S / 2)

    assert (await shop.row(run.id)).status == "cancelled"


async def test_a_run_expires_at_its_deadline(shop: Workshop) -> None:
    model = Held()
    run = await shop.queue(deadline_ms=shop.clock() + 60_000)
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(model))
    shop.clock.ahead_ms += 59_700  # So that a slow machine reaches the model before it.

    async with in_background(driven):
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)

    assert model.closed.is_set()
    assert of(await shop.log(run.id), RunExpired)[0].limit == "deadline"
    assert (await shop.row(run.id)).status == "expired"


async def test_what_a_tool_brings_just_as_its_run_expires_is_told(shop: Workshop) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    @tool
    async def refund() -> str:
        """Refund."""
        began.set()
        await release.wait()
        return "refunded"

    run = await shop.queue(deadline_ms=shop.clock() + DEADLINE_MS)
    means = shop.means([calling(("refund", {}))], refund)
    driven = await shop.driving(await shop.claim(), shop.agent(refund), means)

    async with in_background(driven):
        await asyncio.wait_for(began.wait(), TIMEOUT_S)
        shop.clock.ahead_ms = DEADLINE_MS
        shop.ring(run.id)
        release.set()  # It is over while the run looks what it was woken for.

    log = await shop.log(run.id)
    assert [event.type for event in log[-3:]] == ["tool_call.started", "tool_call.completed",
                                                  "run.expired"]  # fmt: skip
    assert of(log, ToolCallCompleted)[0].result == "refunded"


async def test_a_run_whose_deadline_has_passed_begins_nothing(shop: Workshop) -> None:
    model = Scripted([saying("never")])
    run = await shop.queue(deadline_ms=shop.clock() - 1)

    await shop.go_on(model)

    assert model.requests == []
    assert await shop.types(run.id) == ["run.queued", "run.started", "run.expired"]


# --- Handing back ---


async def test_a_drained_run_is_handed_back_and_goes_on_elsewhere(shop: Workshop) -> None:
    model = Held()
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(model))
    async with in_background(driven):
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        driven.drain()

    assert model.closed.is_set()
    assert (await shop.types(run.id))[-2:] == ["message.aborted", "run.retrying"]
    assert (await shop.row(run.id)).status == "queued"

    await shop.go_on([saying("Here I am.")])

    log = await shop.log(run.id)
    assert of(log, RunResumed)[0].why == "drain"
    assert of(log, RunCompleted)[0].output.text == "Here I am."


async def test_a_reply_that_is_whole_as_its_run_is_handed_back_is_kept(shop: Workshop) -> None:
    model = Held(rest=saying("Here I am."))
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(model))
    async with in_background(driven):
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        shop.clock.interrupt(1, driven.drain)  # As the reply is taken in.
        model.go.set()

    log = await shop.log(run.id)
    assert [event.type for event in log[-3:]] == ["message.started", "message.completed",
                                                  "run.retrying"]  # fmt: skip

    await shop.go_on([])

    assert of(await shop.log(run.id), RunCompleted)[0].output.text == "Well, Here I am."


async def test_a_drain_lets_a_call_finish_that_must_not_be_repeated(shop: Workshop) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    @tool
    async def once() -> str:
        """Act."""
        began.set()
        await release.wait()
        return "acted"

    run = await shop.queue()
    means = shop.means([calling(("once", {}))], once)
    driven = await shop.driving(await shop.claim(), shop.agent(once), means)
    async with in_background(driven):
        await asyncio.wait_for(began.wait(), TIMEOUT_S)
        driven.drain()
        release.set()

    assert (await shop.types(run.id))[-2:] == ["tool_call.completed", "run.retrying"]


async def test_a_drain_does_not_wait_for_ever(shop: Workshop) -> None:
    began = asyncio.Event()

    @tool
    async def once() -> None:
        """Never come back."""
        began.set()
        await asyncio.Event().wait()

    run = await shop.queue()
    means = shop.means([calling(("once", {}))], once, drain_s=0.01)
    driven = await shop.driving(await shop.claim(), shop.agent(once), means)
    async with in_background(driven):
        await asyncio.wait_for(began.wait(), TIMEOUT_S)
        driven.drain()

    model = Scripted([saying("I do not know.")])
    await shop.go_on(model, once)
    assert UNKNOWN_OUTCOME.message in model.requests[0].messages[-1].content
    assert len(of(await shop.log(run.id), ToolCallStarted)) == 1


async def test_a_drain_stands_although_messages_come_in_meanwhile(shop: Workshop) -> None:
    model = Held()
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(model))
    async with in_background(driven):
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        for _ in range(3):
            await shop.put(run.id, "cancel", {"by": "ann", "reason": None}, "cancel")
        driven.drain()

    assert (await shop.row(run.id)).status == "queued"
    await shop.go_on([])
    assert (await shop.row(run.id)).status == "cancelled"


async def test_a_drain_stands_however_much_has_come_in_before(shop: Workshop) -> None:
    """A run that has heard a lot is taken up by a worker that is to leave at once."""
    run = await shop.queue()
    for _ in range(SETTLE_TRIES_MAX + 1):
        await shop.put(run.id, "retry", {"by": "ann"}, "retry")
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means([]))
    driven.drain()
    await asyncio.wait_for(driven.run(), TIMEOUT_S)

    assert (await shop.row(run.id)).status == "queued"
    assert (await shop.claim()).crashes == 0
