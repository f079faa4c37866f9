"""Streams of Chat Completions, summed up by us and by the vendor's own client."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk, ParsedChatCompletion

from milepost.core.messages import Message
from milepost.core.model import ModelRequest, Reply
from milepost.core.usage import Usage
from milepost.providers.assemble import Assembly
from milepost.providers.failures import Failures
from milepost.providers.http import Http
from milepost.providers.openai import openai
from milepost.providers.openai_chunks import Chunks
from milepost.providers.payload import TOKENS_MAX
from tests.providers.openai_sdk import client_of
from tests.stubs import openai_server


def chunk(
    delta: dict[str, Any] | None = None, reason: str | None = None, **more: Any
) -> ChatCompletionChunk:
    """Return one chunk, as the vendor's types have it."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": reason}
    whole = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-5-mini",
        "choices": [choice],
        **more,
    }
    return ChatCompletionChunk.model_validate(whole)


def by_us(chunks: Sequence[ChatCompletionChunk]) -> Reply:
    decoder, assembly = Chunks(Failures("openai", None)), Assembly()
    for each in chunks:
        for delta in decoder.decode(each.to_json(indent=None).encode()):
            assembly.feed(delta)
    assembly.feed(decoder.finish())
    return assembly.reply()


def by_the_client(chunks: Sequence[ChatCompletionChunk]) -> ParsedChatCompletion[object]:
    state = ChatCompletionStreamState[None]()
    for each in chunks:
        state.handle_chunk(each)
    return state.current_completion_snapshot


def assert_same(ours: Reply, theirs: ParsedChatCompletion[Any]) -> None:
    (choice,) = theirs.choices
    calls = choice.message.tool_calls or []
    assert ours.text == (choice.message.content or "") + (choice.message.refusal or "")
    assert [(call.provider_id, call.name, call.arguments) for call in ours.calls] == [
        (call.id, call.function.name, call.function.arguments.strip() or "{}") for call in calls
    ]
    assert ours.finish_reason == choice.finish_reason
    assert (ours.response_id, ours.model) == (theirs.id, theirs.model)
    if theirs.usage is not None:
        assert ours.usage == usage_of(theirs.usage.model_dump())


def usage_of(told: dict[str, Any]) -> Usage:
    prompt, completion = told["prompt_tokens_details"], told["completion_tokens_details"]
    return Usage(
        told["prompt_tokens"],
        told["completion_tokens"],
        prompt["cached_tokens"] if prompt else 0,
        0,
        completion["reasoning_tokens"] if completion else 0,
    )


PIECES = st.lists(st.text(max_size=5), max_size=4)
COUNTS = st.integers(0, TOKENS_MAX)
PROMPTS = st.integers(1, TOKENS_MAX)
NAMES = st.sampled_from(["add", "look"])
REASONS = ["stop", "length", "content_filter"]


@st.composite
def streams(draw: st.DrawFn) -> list[ChatCompletionChunk]:
    """A well-formed stream: an answer or a refusal, and calls whose pieces are interleaved."""
    spoken = draw(st.sampled_from(["content", "refusal"]))
    arguments = draw(st.lists(PIECES, max_size=3))
    order = draw(st.permutations([n for n, pieces in enumerate(arguments) for _ in pieces]))
    left = [iter(pieces) for pieces in arguments]
    reason = "tool_calls" if arguments else draw(st.sampled_from(REASONS))
    return [
        chunk({"role": "assistant"}),
        *(chunk({spoken: piece}) for piece in draw(PIECES)),
        *(call(n, id=f"id_{n}", type="function", name=draw(NAMES)) for n in range(len(arguments))),
        *(call(n, arguments=next(left[n])) for n in order),
        chunk(reason=reason),
        *draw(endings()),
    ]


def call(index: int, name: str = "", arguments: str = "", **more: str) -> ChatCompletionChunk:
    """Return a chunk with a piece of a call."""
    function = {**({"name": name} if name else {}), "arguments": arguments}
    return chunk({"tool_calls": [{"index": index, "function": function, **more}]})


@st.composite
def endings(draw: st.DrawFn) -> list[ChatCompletionChunk]:
    """The vendor's reasoning is a part of what completes the prompt, and its sum is one of both."""
    if not draw(st.booleans()):
        return []
    prompt, completion = draw(PROMPTS), draw(COUNTS)
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": draw(COUNTS)},
        "completion_tokens_details": {"reasoning_tokens": draw(st.integers(0, completion))},
    }
    return [chunk(choices=[], usage=usage)]


@given(streams())
def test_we_add_up_to_what_the_vendors_client_adds_up_to(
    chunks: list[ChatCompletionChunk],
) -> None:
    assert_same(by_us(chunks), by_the_client(chunks))


async def test_both_hear_the_same_from_one_server() -> None:
    request = ModelRequest("t", "m", (Message("user", "What is 17 + 25?"),))
    assembly = Assembly()
    async with (
        openai_server.serving(tokens=5) as base_url,
        Http() as http,
        client_of(base_url) as client,
    ):
        async for delta in openai(http, base_url=base_url, api_key=None).stream(request):
            assembly.feed(delta)
        async with client.chat.completions.stream(
            model="m", messages=[{"role": "user", "content": "What is 17 + 25?"}]
        ) as stream:
            theirs = await stream.get_final_completion()

    assert_same(assembly.reply(), theirs)
    assert assembly.reply().calls
