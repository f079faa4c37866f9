"""Agents that call agents: each call a run of its own, whose answer comes back by letter."""

import asyncio
from dataclasses import replace

import orjson
import pytest

from milepost.core.agents import Agent, StopRule
from milepost.core.effects import CallTool
from milepost.core.errors import ConflictError
from milepost.core.events import (
    BudgetExceeded,
    ChildRunEnded,
    ChildRunStarted,
    Event,
    Failure,
    InputMessage,
    Output,
    RunCancelled,
    RunCompleted,
    RunExpired,
    RunQueued,
    RunWaiting,
    ToolCallCompleted,
    ToolCallFailed,
)
from milepost.core.evolve import evolve
from milepost.core.ids import child_run_id
from milepost.core.messages import Message, ToolCall
from milepost.core.model import Finished, TextDelta
from milepost.core.policy import Policy
from milepost.core.state import State
from milepost.core.usage import Usage
from milepost.providers.scripted import Scripted, calling, saying
from milepost.runtime.cancelling import Cancellation, cancel_run
from milepost.runtime.child_runs import child_of as wanted_child
from milepost.runtime.children import DEPTH_MAX
from milepost.runtime.definitions import encode_definition
from milepost.runtime.ending import end_run
from milepost.runtime.journal import Ports, ending
from milepost.runtime.loading import load
from milepost.runtime.steering import letter_of
from milepost.runtime.stored_children import StoredChildren
from milepost.store import agents, runs, sessions
from milepost.store.records import Claim, NewRun, Page, RunFilter
from milepost.store.runs import RunRow
from milepost.tools import tool
from milepost.worker.sweeper import Sweeper
from tests.runtime.tools import add
from tests.runtime.workshop import AT_ONCE, TENANT, Held, Turns, Workshop, in_background, of

HOUR_MS = 3_600_000
ASK = calling(("agent:scribe", {"input": "Write it down."}))
SCRIBE = Agent("agt_2", 1, "scribe", "test/model", metadata={"description": "Writes things down."})


@pytest.fixture
async def scribe(shop: Workshop) -> Agent:
    """An agent that others may call."""
    work = agents.create(
        TENANT, "scribe", encode_definition(SCRIBE), agent_id="agt_2", now_ms=shop.clock()
    )
    await shop.store.write(work)
    return SCRIBE


def lead(shop: Workshop, **rest: object) -> Agent:
    """Return an agent that may call the scribe."""
    return replace(shop.agent(**rest), tools=("agent:scribe",))  # type: ignore[arg-type]


async def child_of(shop: Workshop, run_id: str) -> RunRow:
    """Return the one run that this run has started."""
    wanted = RunFilter(parent_run_id=run_id)
    [row] = await shop.store.read(runs.search(TENANT, wanted, Page(limit=10)))
    return row


async def parked(shop: Workshop, agent: Agent) -> str:
    """Drive a run to where it waits for the scribe, and return its id."""
    return await shop.driven(Scripted([ASK]), agent=agent)


async def test_a_call_of_an_agent_is_a_run_of_its_own_and_its_answer_the_result(
    shop: Workshop, scribe: Agent
) -> None:
    agent = lead(shop)
    run_id = await parked(shop, agent)
    assert (await shop.row(run_id)).status == "waiting"

    await shop.go_on([saying("Written.")], agent=scribe)
    model = Scripted([saying("It is written.")])
    await shop.go_on(model, agent=agent)

    log = await shop.log(run_id)
    child = await child_of(shop, run_id)
    assert of(log, ChildRunStarted) == [ChildRunStarted("call_1_0", child.id, "scribe")]
    assert of(log, RunWaiting) == [RunWaiting("child_run", (child.id,))]
    [ended] = of(log, ChildRunEnded)
    assert (ended.run_id, ended.status) == (child.id, "completed")
    assert [each.result for each in of(log, ToolCallCompleted)] == ["Written."]
    assert model.requests[0].messages[-1] == Message("tool", "Written.", call_id="call_1_0")
    assert of(log, RunCompleted)


async def test_the_child_sees_its_task_alone_and_knows_whose_it_is(
    shop: Workshop, scribe: Agent
) -> None:
    run_id = await parked(shop, lead(shop))

    model = Scripted([saying("Written.")])
    await shop.go_on(model, agent=scribe)

    child = await child_of(shop, run_id)
    assert model.requests[0].messages == (Message("user", "Write it down."),)
    [queued] = of(await shop.log(child.id), RunQueued)
    assert (queued.parent.run_id, queued.parent.call_id, queued.parent.depth) == (
        run_id, "call_1_0", 1,
    )  # fmt: skip


async def test_the_child_knows_who_told_its_parent_something(shop: Workshop, scribe: Agent) -> None:
    first, then = Held(rest=saying("Hello.")), Scripted([ASK])
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), lead(shop), shop.means(Turns(first, then)))

    async with in_background(driven):
        await first.reached.wait()
        said = letter_of(InputMessage("user", "Ask the scribe."), "ste_1", "Ann", "key_ann")
        await shop.deliver(run.id, "steer", orjson.loads(said), "steer")
        await shop.seen(run.id, "steer.received")
        first.go.set()

    [queued] = of(await shop.log((await child_of(shop, run.id)).id), RunQueued)
    assert queued.speakers == ("key_ann",)


async def test_the_child_stands_in_its_parents_lane(shop: Workshop, scribe: Agent) -> None:
    run_id = await shop.driven(Scripted([ASK]), agent=lead(shop), lane=-5)

    assert (await child_of(shop, run_id)).lane == -5


async def test_the_model_is_told_what_the_agent_is_for(shop: Workshop, scribe: Agent) -> None:
    model = Scripted([saying("Nothing to do.")])

    await shop.driven(model, agent=lead(shop))

    [tool] = model.requests[0].tools
    assert (tool.name, tool.description) == ("agent:scribe", "Writes things down.")


async def test_an_agent_that_is_not_there_is_no_tool(shop: Workshop) -> None:
    model = Scripted([ASK, saying("Then not.")])

    run_id = await shop.driven(model, agent=lead(shop))

    log = await shop.log(run_id)
    assert [each.error.code for each in of(log, ToolCallFailed)] == ["unknown_tool"]
    assert of(log, RunCompleted)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([TextDelta("Half"), Finished("length")], "it stopped at a limit (output_tokens)"),
        ([TextDelta("No"), Finished("content_filter")], "having said: No"),
    ],
)
async def test_a_child_that_does_not_answer_fails_its_call(
    shop: Workshop, scribe: Agent, said: list[object], why: str
) -> None:
    agent = lead(shop)
    run_id = await parked(shop, agent)

    await shop.go_on([said], agent=scribe)  # type: ignore[list-item]
    await shop.go_on([saying("Never mind.")], agent=agent)

    [failed] = of(await shop.log(run_id), ToolCallFailed)
    assert failed.error.code == "child_run_failed"
    assert why in failed.error.message


async def test_a_child_that_a_dead_worker_had_queued_is_the_calls_one_and_only(
    shop: Workshop, scribe: Agent
) -> None:
    agent = lead(shop)
    run = await shop.queue()
    claim = await shop.claim()
    call = ToolCall("call_1_0", "agent:scribe", {"input": "Write it down."}, kind="agent")
    effect = CallTool(call, call.arguments, "idempotent", attempt=1)
    queued = await wanted_child(effect, 5, claim, agent, State(), shop.ports)
    assert isinstance(queued, NewRun)
    await shop.store.create(queued)

    await shop.go_on(Scripted([ASK]), agent=agent, claim=claim)

    child = await child_of(shop, run.id)
    assert child.id == queued.id == child_run_id(run.id, "call_1_0")
    assert of(await shop.log(run.id), RunWaiting) == [RunWaiting("child_run", (child.id,))]


async def test_a_child_that_the_queue_has_no_room_for_fails_its_call_and_may_be_tried_again(
    shop: Workshop, scribe: Agent
) -> None:
    run = await shop.queue()
    claim = await shop.claim()
    await shop.queue()
    shop.store.queue_max = 1

    await shop.go_on([ASK, saying("Then not.")], agent=lead(shop), claim=claim)

    log = await shop.log(run.id)
    [failed] = of(log, ToolCallFailed)
    assert (failed.error.code, failed.error.retryable) == ("queue_full", True)
    assert "1 runs are queued" in failed.error.message
    assert of(log, ChildRunStarted) == []
    assert of(log, RunCompleted)


async def test_a_child_that_a_dead_worker_had_queued_needs_no_room_in_the_queue(
    shop: Workshop, scribe: Agent
) -> None:
    run = await shop.queue()
    claim = await shop.claim()
    call = ToolCall("call_1_0", "agent:scribe", {"input": "Write it down."}, kind="agent")
    effect = CallTool(call, call.arguments, "idempotent", attempt=1)
    queued = await wanted_child(effect, 5, claim, lead(shop), State(), shop.ports)
    assert isinstance(queued, NewRun)
    await shop.store.create(queued)
    shop.store.queue_max = 1

    await shop.go_on(Scripted([ASK]), agent=lead(shop), claim=claim)

    assert of(await shop.log(run.id), RunWaiting) == [RunWaiting("child_run", (queued.id,))]


class Interrupted(StoredChildren):
    """Children that are queued, and of which nobody hears before `go`."""

    def __init__(self, ports: Ports) -> None:
        super().__init__(ports)
        self.queued, self.go = asyncio.Event(), asyncio.Event()

    async def start(
        self, effect: CallTool, seq: int, claim: Claim, agent: Agent, state: State
    ) -> Event:
        """Queue the run, and say so late."""
        started = await super().start(effect, seq, claim, agent, state)
        self.queued.set()
        await self.go.wait()
        return started


async def test_a_child_that_is_over_before_its_call_knows_of_it_is_heard_all_the_same(
    shop: Workshop, scribe: Agent
) -> None:
    agent, children = lead(shop), Interrupted(shop.ports)
    run = await shop.queue()
    means = replace(shop.means(Scripted([ASK, saying("It is written.")])), children=children)
    driven = await shop.driving(await shop.claim(), agent, means)

    async with in_background(driven):
        await children.queued.wait()
        await shop.go_on([saying("Written.")], agent=scribe)
        await shop.seen(run.id, "child_run.ended")
        children.go.set()

    log = await shop.log(run.id)
    assert len(of(log, ChildRunStarted)) == len(of(log, ChildRunEnded)) == 1
    assert of(log, RunCompleted)


class Refused(Interrupted):
    """Children that are queued, of which it is said late that they could not be started again."""

    async def start(
        self, effect: CallTool, seq: int, claim: Claim, agent: Agent, state: State
    ) -> Event:
        """Queue the run, and refuse it."""
        await super().start(effect, seq, claim, agent, state)
        return ToolCallFailed(effect.call.id, Failure("agent_not_found", "there is no such agent"))


@pytest.mark.parametrize("beside", [False, True])
async def test_a_child_that_has_answered_is_not_refused_after_that(
    shop: Workshop, scribe: Agent, *, beside: bool
) -> None:
    asked = [("agent:scribe", {"input": "Write it down."})]
    gate = asyncio.Event()

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        await gate.wait()
        return "seen"

    first = calling(*asked, ("look", {})) if beside else calling(*asked)
    agent = replace(shop.agent(), tools=("agent:scribe", "look"))
    children, last = Refused(shop.ports), Held(rest=saying("It is written."))
    run = await shop.queue()
    model = Turns(Scripted([first]), last)
    driven = await shop.driving(
        await shop.claim(), agent, replace(shop.means(model, look), children=children)
    )

    async with in_background(driven):
        await children.queued.wait()
        await shop.go_on([saying("Written.")], agent=scribe)
        await shop.seen(run.id, "child_run.ended")
        if not beside:
            await last.reached.wait()
        children.go.set()
        gate.set()
        last.go.set()

    log = await shop.log(run.id)
    assert of(log, ToolCallFailed) == []
    assert of(log, RunCompleted)


class Late(Interrupted):
    """Children that are queued, of which it is said only as their call is stopped."""

    async def start(
        self, effect: CallTool, seq: int, claim: Claim, agent: Agent, state: State
    ) -> Event:
        """Queue the run, and say so once nobody wants to hear it any more."""
        starting = asyncio.ensure_future(super().start(effect, seq, claim, agent, state))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            self.go.set()
            return await starting


async def test_a_child_that_has_answered_is_not_begun_after_that_as_its_parent_expires(
    shop: Workshop, scribe: Agent
) -> None:
    """Its answer is read in the same moment, and counts: the call has one end."""
    agent, children, hours = lead(shop), Late(shop.ports), [0]
    run = await shop.queue(deadline_ms=shop.clock() + HOUR_MS // 2)
    ports = replace(shop.ports, clock=lambda: shop.clock() + hours[0] * HOUR_MS)
    means = replace(shop.means(Scripted([ASK])), children=children, ports=ports)
    driven = await shop.driving(await shop.claim(), agent, means)

    async with in_background(driven):
        await children.queued.wait()
        hours[0] = 1
        await shop.go_on([saying("Written.")], agent=scribe)

    log = await shop.log(run.id)
    assert len(of(log, ChildRunStarted)) == len(of(log, ChildRunEnded)) == 1
    assert (len(of(log, ToolCallCompleted)), of(log, ToolCallFailed)) == (1, [])
    assert of(log, RunExpired)


async def test_a_child_that_is_over_before_its_dead_parents_worker_said_so_is_heard(
    shop: Workshop, scribe: Agent
) -> None:
    agent, children = lead(shop), Interrupted(shop.ports)
    run = await shop.queue()
    means = replace(shop.means(Scripted([ASK])), children=children)
    driven = await shop.driving(await shop.claim(), agent, means)
    dying = asyncio.create_task(driven.run())
    await children.queued.wait()
    dying.cancel()
    await asyncio.wait([dying])
    await shop.go_on([saying("Written.")], agent=scribe)

    await shop.go_on([saying("It is written.")], agent=agent, claim=await shop.take_over())

    log = await shop.log(run.id)
    assert len(of(log, ChildRunStarted)) == len(of(log, ChildRunEnded)) == 1
    assert of(log, RunCompleted)


async def test_the_bounds_of_a_run_are_its_childrens_too(shop: Workshop, scribe: Agent) -> None:
    limits = replace(AT_ONCE, max_tokens=100, max_model_calls=9)
    used = Usage(input_tokens=30, output_tokens=10)
    asking = calling(("agent:scribe", {"input": "Write it down."}), usage=used)
    agent = lead(shop, limits=limits)
    run_id = await shop.driven(Scripted([asking]), agent=agent)

    answer = saying("Written.", usage=Usage(input_tokens=50, output_tokens=10))
    await shop.go_on([answer], agent=scribe)
    await shop.go_on([saying("Unsaid.")], agent=agent)

    child = await child_of(shop, run_id)
    [queued] = of(await shop.log(child.id), RunQueued)
    assert (queued.bounds.max_tokens, queued.bounds.max_model_calls) == (60, 8)
    row = await shop.row(run_id)
    assert row.status == "incomplete", "40 of its own and 60 of its child's are all that it may"
    assert (await shop.used(run_id)).input_tokens == 30, "and its bill is its own"


async def test_the_tools_that_children_call_are_within_the_bounds_of_a_run(
    shop: Workshop, scribe: Agent
) -> None:
    limits = replace(AT_ONCE, max_tool_calls=3)
    twice = calling(("agent:scribe", {"input": "One."}), ("agent:scribe", {"input": "Two."}))
    agent = lead(shop, limits=limits)
    adder = replace(scribe, tools=("add",), limits=AT_ONCE)
    run_id = await shop.driven(Scripted([ASK]), agent=agent)
    child = await child_of(shop, run_id)

    await shop.go_on([calling(("add", {"a": 1, "b": 2})), saying("3.")], add, agent=adder)
    await shop.go_on(Scripted([twice]), agent=agent)

    [queued] = of(await shop.log(child.id), RunQueued)
    assert queued.bounds.max_tool_calls == 2
    log = await shop.log(run_id)
    [ended] = of(log, ChildRunEnded)
    assert ended.tool_calls == 1
    assert len(of(log, ChildRunStarted)) == 2, "there was one call left for two"
    assert of(log, BudgetExceeded) == [BudgetExceeded("run", "max_tool_calls", 3, 3)]


async def test_children_leave_a_call_for_each_that_their_parent_may_still_make(
    shop: Workshop, scribe: Agent
) -> None:
    asking = calling(("agent:scribe", {"input": "Write it down."}), ("add", {"a": 1, "b": 2}))
    agent = replace(
        shop.agent(add, policy=Policy(ask=("add",), allow=("*",))),
        tools=("agent:scribe", "add"),
        limits=replace(AT_ONCE, max_tool_calls=5),
    )

    run_id = await shop.driven(Scripted([asking]), add, agent=agent)

    [queued] = of(await shop.log((await child_of(shop, run_id)).id), RunQueued)
    assert queued.bounds.max_tool_calls == 3


async def test_what_grandchildren_took_counts_for_all_above_them(
    shop: Workshop, scribe: Agent
) -> None:
    agent, middle = lead(shop), replace(scribe, tools=("agent:scribe",), limits=AT_ONCE)
    deepest = replace(scribe, tools=("add",), limits=AT_ONCE)
    used = Usage(input_tokens=30)
    run_id = await shop.driven(Scripted([ASK]), agent=agent)
    await shop.go_on(Scripted([ASK]), agent=middle)
    add_up = calling(("add", {"a": 1, "b": 2}), usage=used)
    await shop.go_on([add_up, saying("3.", usage=used)], add, agent=deepest)

    await shop.go_on(Scripted([saying("3, it says.")]), agent=middle)
    await shop.go_on(Scripted([saying("3.")]), agent=agent)

    [ended] = of(await shop.log(run_id), ChildRunEnded)
    assert (ended.tool_calls, ended.below.input_tokens) == (2, 60)
    assert ended.usage.input_tokens == 20, "that of its own two messages"


async def test_a_child_that_was_ended_from_outside_tells_what_it_took_all_the_same(
    shop: Workshop, scribe: Agent
) -> None:
    agent = lead(shop)
    run_id = await shop.driven(Scripted([ASK]), agent=agent)
    asking = replace(shop.agent(add, policy=Policy(ask=("*",))), name="scribe")
    await shop.go_on(Scripted([calling(("add", {"a": 1, "b": 2}))]), add, agent=asking)
    [asked] = await shop.pending()
    await shop.decide(asked)
    await shop.go_on(Scripted([calling(("add", {"a": 1, "b": 2}))]), add, agent=asking)

    await cancel_run(shop.ports, Cancellation(TENANT, (await child_of(shop, run_id)).id, "ann"))
    await shop.go_on(Scripted([saying("Never mind.")]), agent=agent)

    [ended] = of(await shop.log(run_id), ChildRunEnded)
    assert (ended.status, ended.tool_calls) == ("cancelled", 1)


async def test_a_run_that_is_cancelled_stops_its_children(shop: Workshop, scribe: Agent) -> None:
    run_id = await parked(shop, lead(shop))
    child = await child_of(shop, run_id)

    await cancel_run(shop.ports, Cancellation(TENANT, run_id, "ann"))

    assert (await shop.row(run_id)).status == "cancelled"
    assert (await shop.row(child.id)).status == "cancelled"
    [ended] = of(await shop.log(child.id), RunCancelled)
    assert ended.by == "parent"


async def test_a_run_that_ends_with_another_result_stops_its_children_at_once(
    shop: Workshop, scribe: Agent
) -> None:
    both = calling(("agent:scribe", {"input": "Write it down."}), ("add", {"a": 1, "b": 2}))
    agent = replace(shop.agent(add, stop_when=(StopRule("add"),)), tools=("agent:scribe", "add"))

    run_id = await shop.driven(Scripted([both]), add, agent=agent)

    assert (await shop.row(run_id)).status == "completed"
    assert (await shop.row((await child_of(shop, run_id)).id)).status == "cancelled"


async def test_what_a_child_took_counts_although_its_call_was_skipped(
    shop: Workshop, scribe: Agent
) -> None:
    both = calling(("agent:scribe", {"input": "Write it down."}), ("add", {"a": 1, "b": 2}))
    agent = replace(shop.agent(add, stop_when=(StopRule("add"),)), tools=("agent:scribe", "add"))
    first, then = Held(rest=both), Held(rest=saying("Fine."))
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), agent, shop.means(Turns(first, then), add))

    async with in_background(driven):
        await first.reached.wait()
        said = letter_of(InputMessage("user", "Go on."), "ste_1", "ann")
        await shop.deliver(run.id, "steer", orjson.loads(said), "steer")
        await shop.seen(run.id, "steer.received")
        first.go.set()
        await then.reached.wait()
        used = Usage(input_tokens=30, output_tokens=10)
        await shop.go_on([saying("Written.", usage=used)], agent=scribe)
        await shop.seen(run.id, "child_run.ended")
        then.go.set()

    log = await shop.log(run.id)
    [ended] = of(log, ChildRunEnded)
    assert (ended.status, ended.usage.input_tokens) == ("completed", 30)
    assert [each.error.code for each in of(log, ToolCallFailed)] == ["skipped"]
    outcome = orjson.loads((await shop.row(run.id)).outcome or "{}")
    assert outcome["below"]["input_tokens"] == 30


async def test_a_child_at_work_is_told_to_stop_when_its_parent_is_over(
    shop: Workshop, scribe: Agent
) -> None:
    run_id = await parked(shop, lead(shop))
    child = await child_of(shop, run_id)
    model = Held()
    driven = await shop.driving(await shop.claim(), scribe, shop.means(model))

    async with in_background(driven):
        await model.reached.wait()
        await cancel_run(shop.ports, Cancellation(TENANT, run_id, "ann"))

    assert (await shop.row(child.id)).status == "cancelled"
    assert model.closed.is_set()


class Steady:
    """A lease that has stood for long."""

    steady = True

    def pulse(self) -> None:
        """Turn."""


async def test_the_sweeper_tells_a_parent_whom_nobody_told(shop: Workshop, scribe: Agent) -> None:
    agent = lead(shop)
    run_id = await parked(shop, agent)
    journal = await load(await shop.claim(), scribe, shop.means([]))
    end = RunCompleted(Output("Written."), Usage())
    state = evolve(journal.state, end)
    change = ending(end, state, shop.clock())
    await journal.append(journal.stamp(end), state=state, change=change)
    assert (await shop.row(run_id)).status == "waiting", "the worker died before it could tell"
    with pytest.raises(ConflictError, match="wait for it"):
        await shop.store.write(sessions.delete(TENANT, journal.claim.session_id))

    for _ in range(2):
        await Sweeper(shop.ports, Steady()).reunite()
    await shop.go_on([saying("It is written.")], agent=agent)

    assert (await shop.row(run_id)).status == "completed"
    assert len(of(await shop.log(run_id), ChildRunEnded)) == 1


async def test_the_sweeper_stops_children_of_runs_that_are_over(
    shop: Workshop, scribe: Agent
) -> None:
    run_id = await parked(shop, lead(shop))
    child = await child_of(shop, run_id)
    await end_run(shop.ports, await shop.row(run_id), lambda used: RunExpired("deadline", used))
    assert (await shop.row(child.id)).status == "queued"

    await Sweeper(shop.ports, Steady()).reunite()

    assert (await shop.row(child.id)).status == "cancelled"


async def test_agents_call_agents_only_so_deep(shop: Workshop, scribe: Agent) -> None:
    deep = replace(scribe, tools=("agent:scribe",))
    run_id = await shop.driven(Scripted([ASK]), agent=lead(shop))
    for _ in range(DEPTH_MAX - 1):
        await shop.go_on(Scripted([ASK]), agent=deep)
    last = Scripted([ASK, saying("Deep enough.")])

    await shop.go_on(last, agent=deep)

    assert "too_deep" in last.requests[1].messages[-1].content
    assert (await shop.row(run_id)).status == "waiting"
