"""What Ollama is known for on the Chat Completions wire, in the shapes that it sends."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from milepost.core.errors import ProviderError
from milepost.core.messages import Image, Message
from milepost.core.model import ModelRequest, Reply, RequestedCall
from milepost.core.usage import Usage
from milepost.providers.assemble import Assembly
from milepost.providers.http import Http
from milepost.providers.openai import openai
from tests.stubs.raw_server import SSE_HEAD, answer, event, serving

DONE = b"data: [DONE]\n\n"
ADD = {"name": "add", "arguments": '{"a":17,"b":25}'}
LOOK = {"name": "look", "arguments": '{"at":"clock"}'}
AGAIN = {"name": "add", "arguments": '{"a":1,"b":1}'}


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    async with Http() as session:
        yield session


def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
    """Return a chunk with all that Ollama puts into one: the role each time, and empty text."""
    said = {"role": "assistant", "content": "", **delta}
    return event(
        {
            "id": "chatcmpl-768",
            "object": "chat.completion.chunk",
            "created": 1744445346,
            "model": "qwen3:8b",
            "system_fingerprint": "fp_ollama",
            "choices": [{"index": 0, "delta": said, "finish_reason": reason}],
        }
    )


def usage_chunk(prompt: int, completion: int) -> bytes:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    return event({"id": "chatcmpl-768", "model": "qwen3:8b", "choices": [], "usage": usage})


async def heard(
    http: Http, *pieces: bytes, message: Message | None = None
) -> tuple[Reply, dict[str, Any]]:
    """Return the reply that `pieces` add up to, and the body that asked for it."""
    request = ModelRequest("t", "qwen3:8b", (message or Message("user", "Hi"),))
    assembly = Assembly()
    async with serving(pieces) as stub:
        async for delta in openai(http, base_url=stub.base_url, api_key=None).stream(request):
            assembly.feed(delta)
    return assembly.reply(), stub.requests[0].body


async def test_a_whole_answer_comes_with_its_reason_in_one_chunk(
    http: Http,
) -> None:
    reply, _ = await heard(
        http, SSE_HEAD, chunk({"content": "Hello."}, "stop"), usage_chunk(26, 3), DONE
    )

    assert (reply.text, reply.finish_reason, reply.usage) == ("Hello.", "stop", Usage(26, 3))


@pytest.mark.parametrize("reason", ["tool_calls", "stop"])
@pytest.mark.parametrize(
    ("first", "second", "ids"),
    [
        ({"id": "call_a", "index": 0}, {"id": "call_b", "index": 1}, ("call_a", "call_b")),
        ({"id": "call_a", "index": 0}, {"id": "call_b", "index": 0}, ("call_a", "call_b")),
        ({"id": "call_a"}, {"id": "call_b"}, ("call_a", "call_b")),
        ({"index": 0}, {"index": 1}, ("", "")),
        ({"index": 0}, {"index": 0}, ("", "")),
        ({}, {}, ("", "")),
    ],
    ids=["as documented", "one index", "no index", "no id", "one index, no id", "neither"],
)
async def test_whole_calls_are_told_apart_whatever_they_lack(
    http: Http,
    first: dict[str, Any],
    second: dict[str, Any],
    ids: tuple[str, str],
    reason: str,
) -> None:
    one = {"type": "function", "function": ADD, **first}
    for function in (LOOK, AGAIN):
        other = {"type": "function", "function": function, **second}
        reply, _ = await heard(
            http,
            SSE_HEAD,
            chunk({"tool_calls": [one]}),
            chunk({"tool_calls": [other]}),
            chunk({}, reason),
            DONE,
        )

        assert reply.calls == (
            RequestedCall(ids[0], "add", ADD["arguments"]),
            RequestedCall(ids[1], function["name"], function["arguments"]),
        )
        assert reply.finish_reason == "tool_calls"


async def test_several_calls_may_come_in_one_chunk(http: Http) -> None:
    both = [{"index": n, "function": function} for n, function in enumerate((ADD, LOOK))]

    reply, _ = await heard(http, SSE_HEAD, chunk({"tool_calls": both}, "tool_calls"), DONE)

    assert [call.name for call in reply.calls] == ["add", "look"]


async def test_arguments_may_come_as_an_object(http: Http) -> None:
    call = {"function": {"name": "add", "arguments": {"a": 17, "b": 25}}}

    reply, _ = await heard(http, SSE_HEAD, chunk({"tool_calls": [call]}, "stop"), DONE)

    assert reply.calls == (RequestedCall("", "add", '{"a":17,"b":25}'),)


async def test_thoughts_have_a_field_of_their_own(http: Http) -> None:
    reply, _ = await heard(
        http,
        SSE_HEAD,
        chunk({"reasoning": "The user "}),
        chunk({"reasoning": "greets."}),
        chunk({"content": "Hello."}),
        chunk({}, "stop"),
        DONE,
    )

    assert (reply.reasoning, reply.text) == ("The user greets.", "Hello.")
    assert reply.sealed == ()


async def test_what_only_keeps_the_connection_alive_is_nothing(
    http: Http,
) -> None:
    reply, _ = await heard(
        http,
        SSE_HEAD,
        b": keep-alive\n\n",
        b"data:\n\n",
        chunk({}),
        b"\n\n",
        chunk({"content": "Hello."}, "stop"),
        DONE,
    )

    assert reply.text == "Hello."


async def test_a_picture_goes_as_the_data_that_it_takes(http: Http) -> None:
    message = Message("user", "What is it?", images=(Image("data:image/png;base64,iVBORw0KGgo="),))

    _, body = await heard(http, SSE_HEAD, chunk({}, "stop"), DONE, message=message)

    assert body["messages"][0]["content"][0] == {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="},
    }


async def test_a_picture_that_it_would_have_to_fetch_is_refused_in_its_words(
    http: Http,
) -> None:
    message = Message("user", "What is it?", images=(Image("https://example.com/a.png"),))
    refusal = b'{"error":{"message":"invalid image input","type":"invalid_request_error"}}'

    with pytest.raises(ProviderError, match="invalid image input") as caught:
        await heard(http, answer("400 Bad Request", refusal), message=message)

    assert (caught.value.code, caught.value.retryable) == ("provider_bad_request", False)


async def test_a_model_that_dies_in_the_middle_leaves_a_stream_without_end(
    http: Http,
) -> None:
    """It then says nothing of what went wrong, in an empty chunk."""
    with pytest.raises(ProviderError) as caught:
        await heard(http, SSE_HEAD, chunk({"content": "Hel"}), chunk({}))

    assert (caught.value.code, caught.value.retryable) == ("provider_stream_cut", True)
