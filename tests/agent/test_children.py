"""Agents as tools of agents: runs of their own, below the run that calls them."""

import asyncio
from typing import Any

import pytest

from milepost import Agent, RecordingObserver
from milepost.agent import observations as seen
from milepost.core.errors import ConfigurationError
from milepost.core.events import ChildRunEnded, ChildRunStarted, RunWaiting
from milepost.core.model import ModelRequest
from milepost.providers.scripted import Scripted, calling, saying
from milepost.runtime.children import DEPTH_MAX
from tests.agent.making import AT_ONCE, MODEL, add, agent, echo, function_agent

ASK = calling(("agent:scribe", {"input": "Write it down."}))


def scribe(*replies: Any, **fields: Any) -> Agent:
    """Return an agent that others may call."""
    return agent(*replies, **{"name": "scribe", "description": "Writes things down.", **fields})


def test_an_agent_that_is_a_tool_runs_for_itself_and_its_answer_is_the_result() -> None:
    model = Scripted([ASK, saying("It is written.")])
    child = function_agent(echo, name="scribe", description="Writes things down.")

    result = agent(model=model, tools=[child]).run("Please.")

    assert result.content == "It is written."
    assert [call.result for call in result.tool_calls] == ["1: Write it down."]
    [tool] = model.requests[0].tools
    assert (tool.name, tool.description) == ("agent:scribe", "Writes things down.")
    kinds = {type(event) for event in result.record.events}
    assert kinds >= {ChildRunStarted, RunWaiting, ChildRunEnded}
    [started] = [each for each in result.record.events if isinstance(each, ChildRunStarted)]
    assert started.agent == "scribe"


def test_a_child_knows_its_parent_and_what_it_took_is_counted_with_it() -> None:
    recorded = RecordingObserver()
    child = scribe(saying("Written."), observers=[recorded])

    result = agent(ASK, saying("Done."), tools=[child]).run("Please.")

    [below] = result.children
    assert below.trace.parent_run_id == result.run_id
    assert recorded.of(seen.RunStart)[0].parent_run_id == result.run_id
    assert (result.usage.model_calls, result.total_usage.model_calls) == (2, 3)
    assert child.usage.model_calls == 1
    assert below.spans[-1].trace_id == result.spans[-1].trace_id


def test_a_child_that_fails_fails_its_call_alone() -> None:
    child = function_agent(lambda _: 1 / 0, name="scribe")

    result = agent(ASK, saying("Never mind."), tools=[child]).run("Please.")

    assert result.content == "Never mind."
    assert "ZeroDivisionError" in (result.tool_calls[0].error or "")


async def test_children_run_side_by_side() -> None:
    both = asyncio.Barrier(2)

    async def together(request: ModelRequest) -> str:
        await both.wait()
        return request.messages[-1].content

    asked = calling(*[("agent:scribe", {"input": text}) for text in ("one", "two")])
    child = function_agent(together, name="scribe")

    result = await asyncio.wait_for(agent(asked, saying("Done."), tools=[child]).arun("Go."), 10)

    assert [call.result for call in result.tool_calls] == ["one", "two"]


async def test_a_child_ends_with_its_parent() -> None:
    reached, closed = asyncio.Event(), asyncio.Event()

    async def hang(_: ModelRequest) -> str:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()
        return "never"

    parent = agent(ASK, tools=[function_agent(hang, name="scribe")])
    run = asyncio.create_task(parent.arun("Go."))
    await reached.wait()

    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert closed.is_set()


async def test_a_parent_that_waits_ends_at_its_deadline() -> None:
    async def hang(_: ModelRequest) -> str:
        await asyncio.Event().wait()
        return "never"

    parent = agent(ASK, tools=[function_agent(hang, name="scribe")])

    result = await parent.arun("Go.", deadline_s=0.1)

    assert (result.status, result.finish_reason) == ("expired", "deadline")


def test_a_child_may_take_no_more_than_its_parent_has_left() -> None:
    child = scribe(*[calling(("none", {}))] * 5)
    parent = agent(
        ASK, saying("Done."), tools=[child], limits={**AT_ONCE, "max_model_calls": 4}
    )  # fmt: skip

    result = parent.run("Go.")

    [below] = result.children
    assert (below.finish_reason, below.usage.model_calls) == ("budget", 3)


def test_the_tools_that_a_child_calls_are_within_the_bounds_of_its_parent() -> None:
    child = scribe(calling(("add", {"a": 1, "b": 2})), saying("3."), tools=[add])
    parent = agent(
        ASK, calling(("add", {"a": 1, "b": 2})), tools=[child, add],
        limits={**AT_ONCE, "max_tool_calls": 2},
    )  # fmt: skip

    result = parent.run("Go.")

    assert result.children[0].tool_calls[0].result == 3
    assert result.finish_reason == "budget"


def test_agents_call_agents_no_deeper_than_may_be() -> None:
    deepest = agent(saying("Here."), name="a0")
    for level in range(1, DEPTH_MAX + 2):
        ask = calling((f"agent:a{level - 1}", {"input": "Go on."}))
        deepest = agent(ask, saying(f"{level}"), name=f"a{level}", tools=[deepest])

    result = deepest.run("Go.")
    depth = 0
    while result.children:
        depth, result = depth + 1, result.children[0]

    assert depth == DEPTH_MAX
    assert "deep" in (result.tool_calls[0].error or "")


def test_two_agents_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="agent:scribe"):
        Agent(MODEL, tools=[scribe(), scribe()], providers={"test": echo})
