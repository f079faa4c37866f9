"""A run that is streamed: the very same run, with its pieces on their way."""

import asyncio
import gc
from contextlib import aclosing
from typing import Any

import pytest
from pydantic import BaseModel

from milepost import Agent, AgentResult, StreamChunk, tool
from milepost.agent.partial import PARTIAL_CHARS_MAX, partial_value
from milepost.agent.stream import Pending
from milepost.core.model import (
    Finished,
    ModelRequest,
    ReasoningDelta,
    Reply,
    RequestedCall,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers.scripted import Scripted, calling, saying
from milepost.tools import ToolContext
from tests.agent.making import ADD, AT_ONCE, BUSY, MODEL, add, adding, agent, function_agent


class Point(BaseModel):
    """A place."""

    x: int
    y: int


async def streamed(asked: Agent, **options: Any) -> tuple[list[StreamChunk], AgentResult]:
    """Return what a run yields: chunks, and its result at the end."""
    items = [item async for item in asked.astream("Go.", **options)]
    *chunks, last = items
    assert isinstance(last, AgentResult)
    return [chunk for chunk in chunks if isinstance(chunk, StreamChunk)], last


def text_of(chunks: list[StreamChunk], kind: str = "text") -> str:
    return "".join(chunk.text for chunk in chunks if chunk.type == kind)


async def test_pieces_come_as_they_are_said_and_the_result_comes_last() -> None:
    asked = agent(ADD, [ReasoningDelta("Hm. "), *saying("It is 42.")], tools=[add])

    chunks, result = await streamed(asked)

    assert [chunk.type for chunk in chunks][:2] == ["tool_call", "tool_result"]
    assert (chunks[0].tool, dict(chunks[0].arguments), chunks[1].result) == (
        "add", {"a": 17, "b": 25}, 42,
    )  # fmt: skip
    assert (text_of(chunks), text_of(chunks, "reasoning")) == ("It is 42.", "Hm. ")
    assert (result.content, result.provider_used) == ("It is 42.", "test")


async def test_a_piece_is_there_before_the_rest_is_said() -> None:
    go_on = asyncio.Event()

    async def slowly(_: ModelRequest) -> Any:
        yield "First. "
        await go_on.wait()
        yield "Second."

    pieces = []
    async for item in function_agent(slowly).astream("Go."):
        if isinstance(item, StreamChunk):
            pieces.append(item.text)
            go_on.set()

    assert "".join(pieces) == "First. Second."
    assert pieces[0] == "First. "


async def test_a_streamed_run_is_the_run_that_is_not() -> None:
    def asked() -> Agent:
        return agent(
            BUSY,
            ADD,
            [ReasoningDelta("Hm."), *saying('{"x": 1}')],
            saying('{"x": 1, "y": 2}'),
            tools=[add],
            response_format=Point,
            guardrails={"tool_results": [{"type": "regex", "pattern": "42", "action": "warn"}]},
        )

    _, streaming = await streamed(asked())
    still = await asked().arun("Go.")

    assert [event.type for event in streaming.record.events] == [
        event.type for event in still.record.events
    ]
    assert (streaming.usage, streaming.parsed, streaming.reasoning) == (
        still.usage, Point(x=1, y=2), "Hm.",
    )  # fmt: skip


async def test_budgets_hold_in_a_streamed_run() -> None:
    asked = agent(*[ADD] * 3, tools=[add], limits={**AT_ONCE, "max_tokens": 20})

    _, result = await streamed(asked)

    assert (result.status, result.finish_reason) == ("incomplete", "budget")
    assert result.usage.input_tokens > 0


async def test_a_cached_reply_is_streamed_too() -> None:
    asked = agent(saying("It is 42."), cache_ttl_s=60)

    await asked.arun("Go.")
    chunks, result = await streamed(asked)

    assert (text_of(chunks), result.usage.model_calls) == ("It is 42.", 0)


async def test_a_message_that_breaks_off_is_void_and_said_anew() -> None:
    asked = agent([TextDelta("Well, "), BUSY], saying("Here."))

    chunks, _ = await streamed(asked)

    assert [chunk.type for chunk in chunks] == ["text", "aborted", "text"]
    void = chunks[1].id
    assert text_of([chunk for chunk in chunks if chunk.id != void]) == "Here."


async def test_what_tools_say_and_why_they_fail_is_streamed() -> None:
    @tool
    def talk(context: ToolContext) -> str:
        """Talk."""
        context.progress("working")
        raise ValueError("tired")

    chunks, _ = await streamed(agent(calling(("talk", {})), saying("Oh."), tools=[talk]))

    assert [(each.type, each.tool) for each in chunks][:3] == [
        ("tool_call", "talk"), ("tool_progress", "talk"), ("tool_error", "talk"),
    ]  # fmt: skip
    assert chunks[1].text == "working"
    assert "tired" in chunks[2].text


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: "All at once.",
        lambda _: Reply("All at once.", "", (), "stop", Usage(1, 1)),
        lambda _: iter(["All ", "at once."]),
    ],
)
async def test_a_provider_that_cannot_stream_is_called_in_a_thread(answer: Any) -> None:
    chunks, result = await streamed(function_agent(answer))

    assert (text_of(chunks), result.content) == ("All at once.", "All at once.")


async def test_a_provider_may_yield_texts_and_whole_calls() -> None:
    async def said(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool":
            yield f"It is {request.messages[-1].content}."
            return
        yield RequestedCall("", "add", '{"a": 17, "b": 25}')

    chunks, result = await streamed(function_agent(said, tools=[add]))

    assert [chunk.type for chunk in chunks] == ["tool_call", "tool_result", "text"]
    assert result.content == "It is 42."


async def test_values_are_read_while_they_are_written() -> None:
    pieces: list[Any] = ['{"x": 1', ', "y": ', "2}"]
    gates = [asyncio.Event() for _ in pieces]

    async def said(_: ModelRequest) -> Any:
        for gate, piece in zip(gates, pieces, strict=True):
            yield piece
            await gate.wait()

    seen = []
    async for item in function_agent(said, response_format=Point).astream("Where?"):
        if isinstance(item, StreamChunk):
            seen.append(item.partial)
            gates[min(len(seen), len(gates)) - 1].set()
        else:
            assert item.parsed == Point(x=1, y=2)

    assert seen == [{"x": 1}, {"x": 1}, {"x": 1, "y": 2}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("Well", None),
        ('Well: {"a": "he', {"a": "he"}),
        ("[1, 2", [1, 2]),
        ("```json\n{}", {}),
        ("{]", None),
        ('{"a": ' + "1" * PARTIAL_CHARS_MAX, None),
    ],
)
def test_a_beginning_has_a_value_as_far_as_it_goes(text: str, value: object) -> None:
    assert partial_value(text) == value


async def test_leaving_a_stream_ends_its_run() -> None:
    closed = asyncio.Event()

    async def endless(_: ModelRequest) -> Any:
        try:
            while True:
                yield "on and on "
                await asyncio.sleep(0)
        finally:
            closed.set()

    async with aclosing(function_agent(endless).astream("Go.")) as items:
        async for _ in items:
            break

    await asyncio.wait_for(closed.wait(), 5)


async def test_what_a_run_raises_behind_whoever_has_left_is_told_to_nobody() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    broken = asyncio.Event()

    async def breaking(_: ModelRequest) -> Any:
        yield "Hello."
        broken.set()
        raise LookupError("broken itself")

    async with aclosing(function_agent(breaking).astream("Go.")) as items:
        async for _ in items:
            break
        await broken.wait()
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
    gc.collect()

    assert told == []


async def test_who_reads_slowly_gets_bigger_pieces_and_no_longer_queue() -> None:
    pending = Pending()
    for word in ["one", "two", "three"]:
        pending.put(StreamChunk("text", "msg_1", word))
    pending.put(StreamChunk("tool_call", "call_1_0", tool="add"))
    pending.put(StreamChunk("text", "msg_2", "four"))
    pending.close()

    taken = [await pending.take() for _ in range(4)]

    assert [each and each.text for each in taken] == ["onetwothree", "", "four", None]


async def test_a_stream_handler_hears_the_answer_as_it_comes() -> None:
    pieces: list[str] = []

    result = await adding().arun("Go.", stream_handler=pieces.append)

    assert "".join(pieces) == result.content == "It is 42."


async def test_what_a_stream_handler_raises_ends_the_run_and_is_raised() -> None:
    def broken(piece: str) -> None:
        raise LookupError(piece)

    endless = Scripted([[TextDelta("one "), *[TextDelta("more ")] * 50, Finished("stop")]])

    with pytest.raises(LookupError, match="one"):
        await Agent(MODEL, providers={"test": endless}).arun("Go.", stream_handler=broken)
