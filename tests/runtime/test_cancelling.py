"""A cancelled run says of all that it had in hand how it was stopped, or that it was not."""

import asyncio
import contextlib
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milepost.core.agents import Agent
from milepost.core.effects import SummarizeHistory
from milepost.core.events import (
    ChildRunEnded,
    ChildRunStarted,
    Event,
    MemorySummarizing,
    RunCancelled,
    RunCancelling,
    StoppedWork,
    ToolCallCompleted,
    ToolCallInterrupted,
)
from milepost.core.evolve import fold
from milepost.core.ids import child_run_id
from milepost.providers.scripted import calling
from milepost.runtime.definitions import encode_definition
from milepost.runtime.drive import Drive
from milepost.runtime.ending import end_run
from milepost.runtime.settle import in_hand
from milepost.runtime.stopping import BY_CLIENT, LOST, SENT, TOLD, stopped, work_of
from milepost.store import agents
from milepost.store.records import NewRun
from milepost.tools import Invoker, Registry, Tool, ToolProcesses, ToolThreads, tool, tool_of
from tests.core.logs import CRASHED, NOW_MS, asked, begun, requesting, running
from tests.runtime.workshop import TENANT, TIMEOUT_S, Held, Workshop, in_background, of
from tests.tools.isolated_tools import hang

SCRIBE = Agent("agt_2", 1, "scribe", "test/model", metadata={"description": "Writes."})


@tool(effect="read")
async def linger() -> str:
    """Linger until one is stopped."""
    await asyncio.Event().wait()
    return "never"


@pytest.fixture
async def scribe(shop: Workshop) -> Agent:
    """An agent that others may call."""
    work = agents.create(
        TENANT, "scribe", encode_definition(SCRIBE), agent_id="agt_2", now_ms=shop.clock()
    )
    await shop.store.write(work)
    return SCRIBE


def told(log: list[Event]) -> list[tuple[str, str, str, str, str | None]]:
    """Return what the end of a run says of what it had in hand, but for when."""
    [ended] = of(log, RunCancelled)
    return [(each.kind, each.id, each.name, each.how, each.why) for each in ended.work]


async def cancelled(shop: Workshop, run: NewRun, driven: Drive, begun: asyncio.Event) -> None:
    """Drive a run, and cancel it once its work has begun."""
    async with in_background(driven):
        await asyncio.wait_for(begun.wait(), TIMEOUT_S)
        await shop.cancel(run.id)


async def calling_of(shop: Workshop, run: NewRun, *tools: Any, **changes: Any) -> list[Event]:
    """Have a run call these tools, cancel it, and return its log."""
    script = [calling(*((tool_of(each).name, {}) for each in tools))]
    means = shop.means(script, *tools, **changes)
    driven = await shop.driving(await shop.claim(), shop.agent(*tools), means)
    async with in_background(driven):
        await shop.seen(run.id, "tool_call.started")
        await shop.cancel(run.id)
    return await shop.log(run.id)


async def with_only(shop: Workshop, only: Tool) -> Drive:
    """Return what drives the run that is ready, which calls a tool that is no function of ours."""
    means = shop.means([calling((only.name, {}))], tools=Registry([only]))
    return await shop.driving(await shop.claim(), replace(shop.agent(), tools=(only.name,)), means)


async def test_a_model_s_stream_is_closed(shop: Workshop) -> None:
    model, run = Held(), await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(model))
    before_ms = shop.clock()

    await cancelled(shop, run, driven, model.reached)

    log = await shop.log(run.id)
    assert model.closed.is_set()
    assert told(log) == [("message", "msg_1", "test/model", "closed", None)]
    assert before_ms <= of(log, RunCancelled)[0].work[0].at_ms <= shop.clock()


async def test_an_asynchronous_tool_is_cancelled(shop: Workshop) -> None:
    run = await shop.queue()

    log = await calling_of(shop, run, linger)

    assert told(log) == [("tool_call", "call_1_0", "linger", "cancelled", None)]
    assert of(log, RunCancelled)[0].stopped == ("call_1_0 linger",)


async def test_a_thread_cannot_be_stopped_and_one_that_has_not_begun_can(shop: Workshop) -> None:
    began, release = threading.Event(), threading.Event()

    @tool
    def dig() -> None:
        """Dig, whatever one is told."""
        began.set()
        release.wait(TIMEOUT_S)

    @tool
    def plant() -> None:
        """Plant, once there is a thread for it."""

    threads, run = ToolThreads(1), await shop.queue()
    means = shop.means(
        [calling(("dig", {}), ("plant", {}))], dig, plant,
        invoker=Invoker(threads, stop_waits_s=(0.01,)),
    )  # fmt: skip
    driven = await shop.driving(await shop.claim(), shop.agent(dig, plant), means)
    try:
        async with in_background(driven):
            assert await asyncio.to_thread(began.wait, TIMEOUT_S)
            await shop.cancel(run.id)
    finally:
        release.set()
        threads.close()

    assert told(await shop.log(run.id)) == [
        ("tool_call", "call_1_0", "dig", "left", "it runs in a thread, which cannot be stopped"),
        ("tool_call", "call_1_1", "plant", "cancelled", None),
    ]


async def test_a_tool_in_a_process_of_its_own_is_killed(shop: Workshop, tmp_path: Path) -> None:
    pid_file, processes = tmp_path / "pid", ToolProcesses()
    means = shop.means(
        [calling(("hang", {"pid_file": str(pid_file)}))], hang,
        invoker=Invoker(shop.threads, processes=processes),
    )  # fmt: skip
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(hang), means)
    try:
        async with in_background(driven):
            async with asyncio.timeout(TIMEOUT_S):
                while not pid_file.exists() or not pid_file.read_text():
                    await asyncio.to_thread(threading.Event().wait, 0.01)
            await shop.cancel(run.id)
    finally:
        await processes.close()

    assert told(await shop.log(run.id)) == [("tool_call", "call_1_0", "hang", "killed", None)]


@pytest.mark.parametrize("kind", ["http", "mcp"])
async def test_a_request_that_was_sent_cannot_be_taken_back(shop: Workshop, kind: str) -> None:
    async def book() -> str:
        await asyncio.Event().wait()
        return "never"

    booking = Tool(
        name="book",
        description="Book.",
        function=book,
        kind=kind,  # type: ignore[arg-type]
    )
    run = await shop.queue()
    driven = await with_only(shop, booking)
    async with in_background(driven):
        await shop.seen(run.id, "tool_call.started")
        await shop.cancel(run.id)

    log = await shop.log(run.id)
    assert told(log) == [("tool_call", "call_1_0", "book", "left", SENT)]


async def test_a_tool_that_will_not_be_cancelled_is_left_and_the_end_says_so(
    shop: Workshop,
) -> None:
    release = asyncio.Event()

    @tool
    async def stubborn() -> None:
        """Go on, whatever one is told."""
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    run = await shop.queue()
    invoker = Invoker(shop.threads, stop_waits_s=(0.01, 0.01))

    log = await calling_of(shop, run, stubborn, invoker=invoker)

    release.set()
    assert told(log) == [("tool_call", "call_1_0", "stubborn", "left", "it would not be cancelled")]


async def test_a_call_that_its_client_runs_is_left_to_him(shop: Workshop) -> None:
    async def shop_for() -> None:
        raise AssertionError("the client runs it")

    his = Tool(name="shop_for", description="Go shopping.", function=shop_for, kind="client")
    run = await shop.queue()
    driven = await with_only(shop, his)
    await asyncio.wait_for(driven.run(), TIMEOUT_S)

    row = await shop.row(run.id)
    await end_run(shop.ports, row, lambda used: RunCancelled("ann", None, (), used))

    assert told(await shop.log(run.id)) == [
        ("tool_call", "call_1_0", "shop_for", "left", BY_CLIENT)
    ]


def test_only_what_is_not_over_was_in_hand() -> None:
    done = ToolCallCompleted("call_1_0", "ok", 3)
    child = ChildRunStarted("call_1_1", "run_2", "scribe")
    brought = replace(done, call_id="call_1_1")
    state = fold(requesting(running(), done, running(1), child, brought, asked(2), calls=4))

    assert work_of(state, "test/model", {}, NOW_MS) == ()
    assert in_hand(state) == []


@pytest.mark.parametrize(
    "since",
    [(CRASHED,), (CRASHED, ToolCallInterrupted("call_1_0", "check"))],
    ids=["lost", "checking"],
)
def test_a_call_whose_worker_died_is_told_of_as_long_as_nobody_knows_what_came_of_it(
    since: tuple[Event, ...],
) -> None:
    state = fold(requesting(running(), *since))

    assert work_of(state, "test/model", {}, NOW_MS) == (
        StoppedWork("tool_call", "call_1_0", "refund", "left", LOST, NOW_MS),
    )
    assert [name for name, _ in in_hand(state)] == ["call_1_0 refund"]


def test_a_call_of_which_people_are_asked_what_came_is_in_hand_of_nobody_any_more() -> None:
    question = replace(asked(), kind="outcome")
    state = fold(requesting(running(), CRASHED, ToolCallInterrupted("call_1_0", "ask"), question))

    assert work_of(state, "test/model", {}, NOW_MS) == (
        StoppedWork("tool_call", "call_1_0", "refund", "left", LOST, NOW_MS),
    )
    assert [name for name, _ in in_hand(state)] == ["call_1_0 refund"]


def test_a_summary_is_told_of_as_it_was_stopped_or_as_lost() -> None:
    summarizing = MemorySummarizing("sum_1", "1.0", "2.1", 4, "test/small")
    state = fold(begun(summarizing))
    lost = StoppedWork("summary", "sum_1", "test/small", "left", LOST, NOW_MS)
    closed = replace(lost, how="closed", why=None)

    assert work_of(state, "test/model", {}, NOW_MS) == (lost,)
    assert work_of(state, "test/model", {"sum_1": closed}, NOW_MS) == (closed,)


def test_a_summary_is_closed_or_left_for_a_reason() -> None:
    effect = SummarizeHistory(MemorySummarizing("sum_1", "1.0", "2.1", 4, "test/small"))
    closed = StoppedWork("summary", "sum_1", "test/small", "closed", None, NOW_MS)

    assert stopped(effect, "test/model", None, None, NOW_MS) == closed
    assert stopped(effect, "test/model", None, "it went on", NOW_MS) == replace(
        closed, how="left", why="it went on"
    )


async def test_a_run_that_is_taken_from_a_worker_that_hangs_says_that_nothing_was_stopped(
    shop: Workshop,
) -> None:
    model, run = Held(), await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(model))
    hangs = asyncio.create_task(driven.run())
    await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)

    row = await shop.row(run.id)
    await end_run(shop.ports, row, lambda used: RunCancelled("ann", None, (), used))

    hangs.cancel()
    await asyncio.wait({hangs})
    assert told(await shop.log(run.id)) == [("message", "msg_1", "test/model", "left", LOST)]


async def test_to_cancel_twice_ends_a_run_once(shop: Workshop) -> None:
    model, run = Held(), await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(model))

    async with in_background(driven):
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        await shop.put(run.id, "cancel", {"by": "ann", "reason": None}, "cancel")
        await shop.cancel(run.id)
    await shop.cancel(run.id)

    log = await shop.log(run.id)
    assert len(of(log, RunCancelling)) == len(of(log, RunCancelled)) == 1
    [work] = of(log, RunCancelled)[0].work
    assert isinstance(work, StoppedWork)


async def test_a_child_that_is_over_when_the_run_ends_was_stopped(
    shop: Workshop, scribe: Agent
) -> None:
    """The run is at work on another call while its child waits for a worker."""
    both = calling(("agent:scribe", {"input": "Write it down."}), ("linger", {}))
    agent = replace(shop.agent(linger), tools=("agent:scribe", "linger"))
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), agent, shop.means([both], linger))

    async with in_background(driven):
        await shop.seen(run.id, "child_run.started")
        await shop.cancel(run.id)

    log = await shop.log(run.id)
    child = child_run_id(run.id, "call_1_0")
    assert told(log) == [
        ("tool_call", "call_1_1", "linger", "cancelled", None),
        ("child_run", child, "agent:scribe", "cancelled", None),
    ]
    assert (await shop.row(child)).status == "cancelled"
    assert [each.status for each in of(log, ChildRunEnded)] == ["cancelled"]


async def test_a_child_whose_worker_does_not_let_go_is_left(shop: Workshop, scribe: Agent) -> None:
    both = calling(("agent:scribe", {"input": "Write it down."}), ("linger", {}))
    agent = replace(shop.agent(linger), tools=("agent:scribe", "linger"))
    run = await shop.queue()
    means = shop.means([both], linger, stop_s=0.05)
    driven = await shop.driving(await shop.claim(), agent, means)

    async with in_background(driven):
        await shop.seen(run.id, "child_run.started")
        await shop.claim()
        await shop.cancel(run.id)

    [_, child] = of(await shop.log(run.id), RunCancelled)[0].work
    assert (child.kind, child.how, child.why) == ("child_run", "left", TOLD)


async def test_a_child_whose_worker_lets_go_in_time_was_stopped(
    shop: Workshop, scribe: Agent
) -> None:
    both = calling(("agent:scribe", {"input": "Write it down."}), ("linger", {}))
    agent = replace(shop.agent(linger), tools=("agent:scribe", "linger"))
    run, model = await shop.queue(), Held()
    driven = await shop.driving(await shop.claim(), agent, shop.means([both], linger))

    async with in_background(driven):
        await shop.seen(run.id, "child_run.started")
        child = await shop.driving(await shop.claim(), scribe, shop.means(model))
        async with in_background(child):
            await model.reached.wait()
            await shop.cancel(run.id)

    [_, work] = of(await shop.log(run.id), RunCancelled)[0].work
    assert (work.kind, work.how, work.why) == ("child_run", "cancelled", None)
