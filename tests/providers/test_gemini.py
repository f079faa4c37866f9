"""The generateContent wire over a real socket, with servers of every temper."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable

import orjson
import pytest
from aiohttp import web

from milepost.core.errors import ProviderError
from milepost.core.messages import Message, ToolCall
from milepost.core.model import (
    ModelRequest,
    Provider,
    Reply,
    RequestedCall,
    TextDelta,
    ToolSchema,
)
from milepost.core.usage import Usage
from milepost.providers.assemble import Assembly
from milepost.providers.closing import closing
from milepost.providers.gemini import gemini
from milepost.providers.gemini_seals import sealed_call, sealed_text
from milepost.providers.http import Http
from milepost.providers.reading import Patience
from milepost.providers.sse import SSE_LINE_BYTES_MAX
from tests.stubs import gemini_server
from tests.stubs.gemini_server import (
    KEY,
    LAST_SIGNATURE,
    SIGNATURE,
    answers,
    refusal,
    usage,
)
from tests.stubs.raw_server import SSE_HEAD, After, answer, dripping, event, serving
from tests.stubs.web_server import web_server

MODEL = "gemini-3-stub"
ADD = ToolSchema("add", "Add", {"type": "object", "properties": {"a": {"type": "integer"}}})
QUESTION = ModelRequest("t", MODEL, (Message("user", "What is 17 + 25?"),), (ADD,))
IMPATIENT = Patience(first_s=0.05, between_s=0.05, tail_s=0.05)

HELLO = (SSE_HEAD, event(answers({"text": "Hel"})), event(answers({"text": "lo"})))
STOP = event(answers(reason="STOP", usageMetadata=usage(9, 2)))


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    async with Http() as session:
        yield session


def provider(http: Http, base_url: str, patience: Patience | None = None) -> Provider:
    return gemini(http, base_url=base_url, api_key=KEY, patience=patience)


async def replied(provider: Provider, request: ModelRequest = QUESTION) -> Reply:
    assembly = Assembly()
    async for delta in provider.stream(request):
        assembly.feed(delta)
    return assembly.reply()


async def refused(provider: Provider) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await asyncio.wait_for(replied(provider), 10)
    return caught.value


def continued(first: Reply, *said: Message) -> ModelRequest:
    """Return what is asked when the calls of `first` have their results."""
    calls = tuple(
        ToolCall(f"call_1_{n}", call.name, orjson.loads(call.arguments), call.provider_id)
        for n, call in enumerate(first.calls)
    )
    asked = Message("assistant", first.text, calls, sealed=first.sealed)
    return ModelRequest("t", MODEL, (*QUESTION.messages, asked, *said), (ADD,))


# --- Well-behaved ------------------------------------------------------------------------------


async def test_a_tool_call_and_then_an_answer_are_streamed(http: Http) -> None:
    async with gemini_server.serving(tokens=3) as stub:
        google = provider(http, stub.base_url)
        first = await replied(google)
        second = await replied(google, continued(first, Message("tool", "42", call_id="call_1_0")))

    assert first.reasoning == "I need a sum. "
    assert first.calls == (RequestedCall("fc_1", "add", '{"a":17,"b":25}'),)
    assert first.sealed == (sealed_call(0, SIGNATURE),)
    assert (first.finish_reason, first.usage) == ("tool_calls", Usage(50, 23, 0, 0, 8))
    assert second.text == "token0 token1 token2 "
    assert second.sealed == (sealed_text(21, 21, LAST_SIGNATURE),)
    assert (second.finish_reason, second.usage) == ("stop", Usage(50, 11, 32, 0, 8))
    assert (second.response_id, second.model) == ("response-1", MODEL)


async def test_each_signature_goes_back_with_its_own_part_turn_after_turn(
    http: Http,
) -> None:
    async with gemini_server.serving() as stub:
        google = provider(http, stub.base_url)
        asked = continued(await replied(google), Message("tool", "42", call_id="call_1_0"))
        second = await replied(google, asked)
        said = Message("assistant", second.text, sealed=second.sealed)
        messages = (*asked.messages, said, Message("user", "And 1 more?"))
        await replied(google, ModelRequest("t", MODEL, messages, (ADD,)))

    parts = [content["parts"] for content in stub.bodies[2]["contents"]]
    assert parts[1][0]["thoughtSignature"] == SIGNATURE
    assert parts[3] == [
        {"text": "token0 token1 token2 "},
        {"text": "", "thoughtSignature": LAST_SIGNATURE},
    ]


async def test_deltas_come_when_they_come_and_not_at_the_end(http: Http) -> None:
    async with (
        serving(HELLO, after="hold") as stub,
        closing(provider(http, stub.base_url).stream(QUESTION)) as deltas,
    ):
        first = await asyncio.wait_for(anext(deltas), 5)

    assert first == TextDelta("Hel")


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-3-pro", "/v1/models/gemini-3-pro:streamGenerateContent?alt=sse"),
        ("models/gemini-3-pro", "/v1/models/gemini-3-pro:streamGenerateContent?alt=sse"),
        ("tunedModels/mine", "/v1/tunedModels/mine:streamGenerateContent?alt=sse"),
        ("../files?x", "/v1/models/..%2Ffiles%3Fx:streamGenerateContent?alt=sse"),
    ],
)
async def test_the_model_is_part_of_the_address_and_of_nothing_else_there(
    http: Http, model: str, path: str
) -> None:
    async with serving((*HELLO, STOP)) as stub:
        await replied(provider(http, stub.base_url), ModelRequest("t", model, QUESTION.messages))

    assert stub.requests[0].head.startswith(f"POST {path} HTTP/1.1\r\n")


async def test_the_key_is_in_a_header_and_not_in_the_address(http: Http) -> None:
    async with serving((*HELLO, STOP)) as stub:
        await replied(provider(http, stub.base_url))

    line, _, headers = stub.requests[0].head.partition("\r\n")
    assert f"x-goog-api-key: {KEY}\r\n" in headers
    assert KEY not in line
    assert "User-Agent: milepost/" in headers


async def test_a_server_without_keys_is_sent_none(http: Http) -> None:
    async with serving((*HELLO, STOP)) as stub:
        await replied(gemini(http, base_url=stub.base_url, api_key=None))

    assert "x-goog-api-key" not in stub.requests[0].head


async def test_where_the_server_counts_no_tokens_they_are_estimated(
    http: Http,
) -> None:
    async with serving((*HELLO, event(answers(reason="STOP")))) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.usage == Usage(input_tokens=30, output_tokens=2), "an offered tool counts"


@pytest.mark.parametrize(
    "told",
    [
        {"candidatesTokenCount": 2},
        {"promptTokenCount": 0, "candidatesTokenCount": 2},
        {"promptTokenCount": "9", "candidatesTokenCount": 2},
        {"promptTokenCount": 9},
        {"promptTokenCount": 9, "thoughtsTokenCount": 8},
        {"promptTokenCount": 9, "candidatesTokenCount": None},
    ],
)
async def test_where_the_server_counts_half_of_the_tokens_all_are_estimated(
    http: Http, told: dict[str, object]
) -> None:
    async with serving((*HELLO, event(answers(reason="STOP", usageMetadata=told)))) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.usage == Usage(input_tokens=30, output_tokens=2)


async def test_an_answer_that_is_all_thought_is_counted_though_no_answer_is(http: Http) -> None:
    """What is 0 is left out: here the answer."""
    thought = answers({"text": "Hm.", "thought": True})
    bounded = answers(reason="MAX_TOKENS", usageMetadata=usage(9, thoughts=64))
    async with serving((SSE_HEAD, event(thought), event(bounded))) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.usage == Usage(9, 64, reasoning_tokens=64)


@pytest.mark.parametrize("chunk_delay_s", [0, 0.002], ids=["at once", "in pieces"])
async def test_a_server_that_streams_an_array_instead_is_understood(
    http: Http, chunk_delay_s: float
) -> None:
    async with gemini_server.serving(is_sse=False, chunk_delay_s=chunk_delay_s) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.calls == (RequestedCall("fc_1", "add", '{"a":17,"b":25}'),)
    assert reply.usage == Usage(50, 23, 0, 0, 8)


async def test_a_prompt_that_is_blocked_ends_as_filtered(http: Http) -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": usage(9)}
    async with gemini_server.serving([blocked]) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert (reply.text, reply.finish_reason, reply.usage) == ("", "content_filter", Usage(9))


async def test_a_tool_whose_name_google_refuses_goes_out_under_another_and_comes_back(
    http: Http,
) -> None:
    tool = ToolSchema("agent:support", "Ask support", {})

    async def answer_with_its_own_name(request: web.Request) -> web.StreamResponse:
        [declared] = (await request.json())["tools"][0]["functionDeclarations"]
        call = {"functionCall": {"name": declared["name"], "args": {}}}
        return web.Response(body=event(answers(call, reason="STOP")))

    async with web_server(answer_with_its_own_name) as server:
        request = ModelRequest("t", MODEL, QUESTION.messages, (tool,))
        reply = await replied(provider(http, f"{server.url}/v1beta"), request)

    [declared] = orjson.loads(server.asked[0].body)["tools"][0]["functionDeclarations"]
    assert re.fullmatch("[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", declared["name"])
    assert declared["name"] != tool.name
    assert reply.calls == (RequestedCall("", "agent:support", "{}"),)


# --- Ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ending",
    [
        (STOP,),
        (STOP.rstrip(),),
        (event(answers(reason="STOP")), event({"usageMetadata": usage(9, 2)})),
    ],
    ids=["as documented", "without a line end", "with the usage behind it"],
)
async def test_every_ending_is_an_end(http: Http, ending: tuple[bytes, ...]) -> None:
    async with serving((*HELLO, *ending)) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert (reply.text, reply.finish_reason, reply.usage) == ("Hello", "stop", Usage(9, 2))


async def test_a_connection_lost_after_the_reason_to_stop_loses_nothing(
    http: Http,
) -> None:
    async with serving((*HELLO, STOP), after="abort") as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.text == "Hello"


async def test_a_server_that_never_hangs_up_is_not_waited_for(http: Http) -> None:
    patience = Patience(first_s=30, between_s=30, tail_s=0.05)
    async with serving((*HELLO, STOP), after="hold") as stub:
        reply = await asyncio.wait_for(replied(provider(http, stub.base_url, patience)), 10)
        await asyncio.wait_for(stub.hung_up.wait(), 5)

    assert reply.text == "Hello"


async def test_leaving_early_closes_the_connection(http: Http) -> None:
    async with serving(HELLO, after="hold") as stub:
        async with closing(provider(http, stub.base_url).stream(QUESTION)) as deltas:
            await anext(deltas)

        await asyncio.wait_for(stub.hung_up.wait(), 5)


# --- Hostile -----------------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["close", "abort"])
async def test_a_stream_cut_in_the_middle_is_worth_a_retry(http: Http, after: After) -> None:
    async with serving(HELLO, after=after) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable) == ("provider_stream_cut", True)


@pytest.mark.parametrize(
    "pieces",
    [
        (SSE_HEAD,),
        (SSE_HEAD, b"[]"),
        (SSE_HEAD, b" \r\n"),
        (SSE_HEAD, b'[{"candidates": [{"content"'),
        (SSE_HEAD, event({"candidates": []})),
        (*HELLO, event({"candidates": []}), event({})),
    ],
    ids=["nothing", "no item", "blanks", "half an item", "no candidate", "no reason to stop"],
)
async def test_an_answer_without_an_end_is_none(http: Http, pieces: tuple[bytes, ...]) -> None:
    async with serving(pieces) as stub:
        error = await refused(provider(http, stub.base_url))

    assert error.code == "provider_stream_cut"


async def test_garbage_instead_of_an_event_is_an_error(http: Http) -> None:
    async with serving((*HELLO, b"data: \x00\xff{{{\n\n", STOP)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert error.code == "provider_error"
    assert "sent an event that is no JSON" in str(error)


async def test_garbage_between_events_and_parts_that_nobody_knows_are_skipped(
    http: Http,
) -> None:
    noise = b": ping\n\nevent: message\nid: 7\n\x00\xff\xfe\n\r\n"
    unknown = event(answers({"hologram": {"data": "AAAA"}}, {"inlineData": {"data": "AAAA"}}))
    async with serving((SSE_HEAD, noise, *HELLO[1:], unknown, noise, STOP)) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.text == "Hello"


@pytest.mark.parametrize("beginning", [b"data: ", b'[{"candidates": "'], ids=["event", "item"])
async def test_10_megabytes_without_an_end_are_refused_long_before_it(
    http: Http, beginning: bytes
) -> None:
    pieces = (SSE_HEAD, beginning, *[b"x" * 1_048_576] * 10)
    async with serving(pieces, after="hold") as stub:
        error = await refused(provider(http, stub.base_url))
        await asyncio.wait_for(stub.hung_up.wait(), 5)

    assert error.code == "provider_error"
    assert f"of more than {SSE_LINE_BYTES_MAX} bytes" in str(error)


OVERLOADED = refusal(503, "UNAVAILABLE", f"The model is overloaded, {KEY}")


@pytest.mark.parametrize(
    "pieces",
    [
        (SSE_HEAD, event(OVERLOADED)),
        (*HELLO, event(OVERLOADED)),
        (SSE_HEAD, orjson.dumps(OVERLOADED, option=orjson.OPT_INDENT_2)),
        (*HELLO, orjson.dumps(OVERLOADED, option=orjson.OPT_INDENT_2)),
        (SSE_HEAD, orjson.dumps([answers({"text": "Hi"}), OVERLOADED])),
        (answer("200 OK", orjson.dumps([OVERLOADED])),),
        (answer("200 OK", orjson.dumps(OVERLOADED)),),
        (answer("503 Busy", orjson.dumps(OVERLOADED)),),
        (answer("503 Busy", orjson.dumps([OVERLOADED])),),
    ],
    ids=[
        "the first event",
        "a later event",
        "instead of events",
        "after events",
        "a later item",
        "the first item",
        "a plain answer",
        "a status",
        "a status and a list",
    ],
)
async def test_an_error_is_the_same_wherever_it_stands(
    http: Http, pieces: tuple[bytes, ...]
) -> None:
    async with serving(pieces) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable) == ("provider_overloaded", True)
    assert "gemini answered 503: The model is overloaded, [key]" in str(error)


async def test_what_google_asks_us_to_wait_is_taken_along(http: Http) -> None:
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}
    body = orjson.dumps(refusal(429, "RESOURCE_EXHAUSTED", "Quota exceeded", retry))
    async with serving((answer("429 Too Many Requests", body),)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retry_after_s) == ("provider_rate_limited", 17)


async def test_a_wrong_key_is_told_as_one(http: Http) -> None:
    async with gemini_server.serving() as stub:
        error = await refused(gemini(http, base_url=stub.base_url, api_key="AIza-wrong"))

    assert (error.code, error.status) == ("provider_auth", 400)
    assert "AIza-wrong" not in str(error)


async def test_a_request_that_google_refuses_is_told_in_its_words(
    http: Http,
) -> None:
    lonely = ModelRequest("t", MODEL, (Message("assistant", "Hi"),))
    async with gemini_server.serving() as stub:
        with pytest.raises(ProviderError, match="alternate between user and model") as caught:
            await replied(provider(http, stub.base_url), lonely)

    assert caught.value.code == "provider_bad_request"


# --- Late --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (SSE_HEAD,),
        (SSE_HEAD, b"["),
        dripping(SSE_HEAD, b": wait\n\n"),
        dripping(SSE_HEAD, b"\n"),
    ],
    ids=["says nothing", "sends a head", "opens an array", "drips comments", "drips blanks"],
)
async def test_the_first_token_is_not_waited_for_forever(
    http: Http, pieces: Iterable[bytes]
) -> None:
    async with serving(pieces, after="hold") as stub:
        error = await refused(provider(http, stub.base_url, IMPATIENT))
        await asyncio.wait_for(stub.hung_up.wait(), 5)

    assert (error.code, error.retryable) == ("provider_timeout", True)


@pytest.mark.parametrize("drop", [b"x", event({"usageMetadata": usage(9)})])
async def test_a_slow_drip_is_no_next_token(http: Http, drop: bytes) -> None:
    head = b"".join(HELLO) + (b"data: " if drop == b"x" else b"")
    async with serving(dripping(head, drop)) as stub:
        error = await refused(provider(http, stub.base_url, IMPATIENT))
        await asyncio.wait_for(stub.hung_up.wait(), 5)

    assert error.code == "provider_timeout"
    assert "next token" in str(error)
