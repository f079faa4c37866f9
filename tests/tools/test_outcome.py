"""What came of a call, in one shape, and the ways of calling a tool without a service."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from milepost.core.errors import FencedError, ToolError, ToolValidationError
from milepost.tools import (
    Invoker,
    Outcome,
    ToolContext,
    ToolThreads,
    aexecute,
    execute,
    tool,
    tool_of,
)
from tests.tools import isolated_tools


@tool
def double(number: int) -> int:
    """Double it."""
    return 2 * number


@tool
async def double_later(number: int) -> int:
    """Double it."""
    await asyncio.sleep(0)
    return 2 * number


@tool
def count() -> Iterator[object]:
    """Count."""
    yield "one "
    yield 2


@tool
async def spell() -> AsyncIterator[str]:
    """Spell."""
    yield "a"
    yield "b"


@tool
def refuse() -> None:
    """Refuse."""
    raise ToolError("the hotel is full", retryable=True)


def test_a_call_is_validated_first_and_then_made() -> None:
    outcome = execute(double, {"number": "4"})

    assert (outcome.status, outcome.content, outcome.error) == ("ok", 8, None)
    assert outcome.raise_for_error() is outcome


def test_arguments_that_do_not_fit_are_an_outcome_too() -> None:
    outcome = execute(double, {"number": "four"})

    assert outcome.error is not None
    assert outcome.error.type == "invalid_arguments"
    with pytest.raises(ToolValidationError, match="must be an integer"):
        outcome.raise_for_error()


@pytest.mark.parametrize(("function", "chunks"), [(count, ["one ", "2"]), (spell, ["a", "b"])])
def test_each_chunk_is_passed_on_in_order_and_the_joined_text_returned(
    function: Any, chunks: list[str]
) -> None:
    heard: list[object] = []

    outcome = execute(function, {}, heard.append)

    assert heard == chunks
    assert outcome.content == "".join(chunks)


async def test_sync_tools_and_generators_work_where_a_loop_runs() -> None:
    heard: list[object] = []

    assert (await aexecute(double, {"number": 4})).content == 8
    assert (await aexecute(double_later, {"number": 4})).content == 8
    assert (await aexecute(count, {}, heard.append)).content == "one 2"
    assert heard == ["one ", "2"]


async def test_an_async_tool_works_from_synchronous_code_inside_of_a_loop_too() -> None:
    assert execute(double_later, {"number": 4}).content == 8
    assert (await asyncio.to_thread(execute, double_later, {"number": 4})).content == 8


def test_an_isolated_tool_is_called_in_its_process_and_leaves_none_behind() -> None:
    outcome = execute(isolated_tools.spell, {})

    assert outcome.content == "ab"


def test_what_a_tool_raises_is_wrapped_with_its_name_and_its_cause() -> None:
    outcome = execute(refuse, {})

    assert outcome.error is not None
    assert (outcome.status, outcome.content) == ("error", None)
    assert (outcome.error.type, outcome.error.retryable) == ("tool_failed", True)
    assert outcome.error.message == "refuse failed: the hotel is full"
    assert outcome.as_text() == "Error: refuse failed: the hotel is full"
    with pytest.raises(ToolError, match="refuse failed") as failure:
        outcome.raise_for_error()
    assert isinstance(failure.value.__cause__, ToolError)


@pytest.mark.parametrize(
    ("content", "text"), [(None, ""), ("a", "a"), ({"a": [1]}, '{"a":[1]}'), (True, "true")]
)
def test_a_result_reads_as_the_model_reads_it(content: Any, text: str) -> None:
    assert Outcome("ok", content).as_text() == text


async def test_the_time_is_taken_of_success_and_of_failure(
    threads: ToolThreads, context: ToolContext
) -> None:
    go_on = threading.Event()

    @tool(timeout_s=0.02)
    def hang() -> None:
        """Hang."""
        go_on.wait(10)

    invoker = Invoker(threads)

    late = await invoker.call(tool_of(hang), {}, context)
    go_on.set()
    quick = await invoker.call(tool_of(double), {"number": 1}, context)

    assert late.error is not None
    assert late.error.type == "tool_timeout"
    assert late.latency_ms >= 20
    assert quick.latency_ms >= 0


async def test_what_is_not_the_tools_own_gets_through(
    threads: ToolThreads, context: ToolContext
) -> None:
    def may_start() -> None:
        raise FencedError("too late")

    with pytest.raises(FencedError):
        await Invoker(threads, may_start=may_start).call(tool_of(double), {"number": 1}, context)
