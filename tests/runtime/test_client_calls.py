"""Calls that the client runs: they belong to no worker, so no worker's death touches them."""

import asyncio

from milepost.core.agents import Agent
from milepost.core.events import (
    RunResumed,
    RunWaiting,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallStarted,
)
from milepost.core.json import Json
from milepost.providers.scripted import Scripted, calling, saying
from milepost.runtime.client_calls import LETTER
from milepost.tools import Registry, ToolContext, tool, tool_of
from milepost.tools.client import client_tool
from tests.runtime.workshop import AT_ONCE, TIMEOUT_S, Workshop, in_background, of

LOOK = client_tool("look", "Look.", {"type": "object"})
ANSWER: dict[str, Json] = {
    "call_id": "call_1_0",
    "result": "a cat",
    "duration_ms": 5,
    "terminal": False,
}


def looking(*others: str) -> Agent:
    """Return an agent that may have its client look."""
    return Agent("agt_1", 1, "clerk", "test/model", tools=("look", *others), limits=AT_ONCE)


async def test_a_worker_that_dies_beside_a_client_s_call_leaves_it_awaited(
    shop: Workshop,
) -> None:
    """The client answers while nobody holds the run: its successor reads that."""
    began = asyncio.Event()

    @tool(effect="read")
    async def linger(context: ToolContext) -> str:
        """Linger; the first worker dies over it."""
        began.set()
        if context.attempt == 1:
            await asyncio.Event().wait()
        return "lingered"

    tools = Registry([LOOK, tool_of(linger)])
    run = await shop.queue()
    first = shop.means([calling(("look", {}), ("linger", {}))], tools=tools)
    driven = await shop.driving(await shop.claim(), looking("linger"), first)
    dying = asyncio.create_task(driven.run())
    await asyncio.wait_for(began.wait(), TIMEOUT_S)
    successor = await shop.take_over()
    dying.cancel()
    await asyncio.wait({dying})
    await shop.put(run.id, LETTER, ANSWER, "client_tool")

    second = shop.means(model := Scripted([saying("I see.")]), tools=tools)
    driven = await shop.driving(successor, looking("linger"), second)
    await asyncio.wait_for(driven.run(), TIMEOUT_S)

    log = await shop.log(run.id)
    assert [started.call_id for started in of(log, ToolCallStarted)] == [
        "call_1_0", "call_1_1", "call_1_1",
    ]  # fmt: skip
    assert [each.call_id for each in of(log, ToolCallInterrupted)] == ["call_1_1"]
    assert [turn.content for turn in model.requests[0].messages[-2:]] == ["a cat", "lingered"]


async def test_an_answer_wakes_the_run_that_waits_for_it(shop: Workshop) -> None:
    tools = Registry([LOOK])
    run = await shop.queue()
    driven = await shop.driving(
        await shop.claim(), looking(), shop.means([calling(("look", {}))], tools=tools)
    )
    await asyncio.wait_for(driven.run(), TIMEOUT_S)

    await shop.deliver(run.id, LETTER, ANSWER, "client_tool")
    again = shop.means([saying("I see.")], tools=tools)
    driven = await shop.driving(await shop.claim(), looking(), again)
    await asyncio.wait_for(driven.run(), TIMEOUT_S)

    log = await shop.log(run.id)
    (waiting,), (resumed,) = of(log, RunWaiting), of(log, RunResumed)
    assert (waiting.cause, waiting.pending) == ("client_tool", ("call_1_0",))
    assert resumed.why == "client_tool"
    assert [each.result for each in of(log, ToolCallCompleted)] == ["a cat"]
    assert (await shop.row(run.id)).status == "completed"


async def test_an_answer_that_comes_twice_counts_once(shop: Workshop) -> None:
    tools = Registry([LOOK])
    run = await shop.queue()
    driven = await shop.driving(
        await shop.claim(), looking(), shop.means([calling(("look", {}))], tools=tools)
    )
    await asyncio.wait_for(driven.run(), TIMEOUT_S)

    for result in ("a cat", "a dog"):
        await shop.put(run.id, LETTER, {**ANSWER, "result": result}, "client_tool")
    again = shop.means([saying("I see.")], tools=tools)
    driven = await shop.driving(await shop.claim(), looking(), again)
    await asyncio.wait_for(driven.run(), TIMEOUT_S)

    log = await shop.log(run.id)
    assert [each.result for each in of(log, ToolCallCompleted)] == ["a cat"]


async def test_an_answer_that_comes_as_the_run_goes_on_without_it_is_taken(shop: Workshop) -> None:
    """Whoever brought it was told so: the run reads it before it skips the call."""
    sold = asyncio.Event()

    @tool(terminal=True)
    async def sell() -> str:
        """Sell; meanwhile the client answers, and nobody tells the run."""
        await shop.put(run.id, LETTER, ANSWER, "client_tool")
        return "sold"

    @tool
    async def pay() -> str:
        """Pay, only when the run has gone on."""
        await sold.wait()
        return "paid"

    tools = Registry([LOOK, tool_of(sell), tool_of(pay)])
    run = await shop.queue()
    model = [calling(("look", {}), ("sell", {}), ("pay", {}))]
    agent = looking("sell", "pay")
    driven = await shop.driving(await shop.claim(), agent, shop.means(model, tools=tools))
    async with in_background(driven):
        await shop.seen(run.id, "tool_call.completed")
        sold.set()

    log = await shop.log(run.id)
    assert [each.result for each in of(log, ToolCallCompleted)] == ["sold", "a cat", "paid"]
    assert of(log, ToolCallFailed) == []
    assert (await shop.row(run.id)).status == "completed"
