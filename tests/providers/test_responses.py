"""The Responses wire over a real socket, with servers of every temper."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import orjson
import pytest

from milepost.core.errors import ProviderError
from milepost.core.messages import Message, ToolCall
from milepost.core.model import ModelRequest, Reply, RequestedCall, TextDelta
from milepost.core.usage import Usage
from milepost.providers.assemble import Assembly
from milepost.providers.endpoint import Endpoint
from milepost.providers.http import Http
from milepost.providers.reading import Patience
from milepost.providers.responses import responses
from tests.stubs import responses_server
from tests.stubs.raw_server import SSE_HEAD, After, answer, dripping, event, serving
from tests.stubs.responses_server import Script, usage, wire_event

QUESTION = ModelRequest("tenant", "stub-model", (Message("user", "What is 17 + 25?"),))
IMPATIENT = Patience(first_s=0.05, between_s=0.05, tail_s=0.05)
KEY = "sk-very-secret"


def saying(*words: str) -> list[bytes]:
    """Return a whole reply, event by event."""
    script = Script()
    script.message(*words)
    return [wire_event(event) for event in script.end(usage=usage(9, 2))]


def until(kind: str, events: list[bytes]) -> list[bytes]:
    """Return the events that come before the last one of that kind, and it."""
    of_that_kind = [n for n, event in enumerate(events) if f'"type":"{kind}"'.encode() in event]
    return events[: of_that_kind[-1] + 1]


HELLO = saying("Hel", "lo")
CUT = (SSE_HEAD, *until("response.output_text.delta", HELLO))


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    async with Http() as session:
        yield session


def provider(http: Http, base_url: str, patience: Patience | None = None) -> Endpoint:
    return responses(http, base_url=base_url, api_key=KEY, patience=patience)


async def replied(provider: Endpoint, request: ModelRequest = QUESTION) -> Reply:
    assembly = Assembly()
    async for delta in provider.stream(request):
        assembly.feed(delta)
    return assembly.reply()


async def refused(provider: Endpoint, request: ModelRequest = QUESTION) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await asyncio.wait_for(replied(provider, request), 10)
    return caught.value


# --- Well-behaved ------------------------------------------------------------------------------


@pytest.mark.parametrize("token_delay_s", [0, 0.002], ids=["at once", "in pieces"])
async def test_a_thought_a_tool_call_and_then_an_answer_are_streamed(
    http: Http, token_delay_s: float
) -> None:
    async with responses_server.serving(tokens=3, token_delay_s=token_delay_s) as base_url:
        openai = provider(http, base_url)
        first = await replied(openai)
        call = ToolCall("call_1_0", "add", {"a": 17, "b": 25}, first.calls[0].provider_id)
        messages = (
            *QUESTION.messages,
            Message("assistant", first.text, (call,), sealed=first.sealed),
            Message("tool", "42", call_id="call_1_0"),
        )
        second = await replied(openai, ModelRequest("tenant", "stub-model", messages))

    assert first.calls == (RequestedCall("call_add", "add", '{"a":17,"b":25}'),)
    assert (first.finish_reason, first.reasoning) == ("tool_calls", "Let me add.")
    assert first.usage == Usage(50, 15, reasoning_tokens=5)
    assert second.text == "token0 token1 token2 "
    assert (second.finish_reason, second.usage) == ("stop", Usage(50, 3))
    assert (second.response_id, second.model) == ("resp_stub", "stub-model")


async def test_a_thought_comes_back_to_the_provider_that_had_it_and_to_no_other(
    http: Http,
) -> None:
    async with responses_server.serving(tokens=1) as base_url:
        reply = await replied(provider(http, base_url))
    message = Message("assistant", calls=(ToolCall("call_1_0", "add", {}),), sealed=reply.sealed)
    request = ModelRequest("tenant", "stub-model", (message,))

    async with serving((SSE_HEAD, *HELLO)) as stub:
        for name in ("openai", "azure"):
            named = responses(http, base_url=stub.base_url, api_key=None, name=name)
            await replied(named, request)

    sent: list[Any] = [heard.body["input"] for heard in stub.requests]
    assert [item["type"] for item in sent[0]] == ["reasoning", "function_call"]
    assert sent[0][0]["encrypted_content"] == "gAAAA"
    assert [item["type"] for item in sent[1]] == ["function_call"]


async def test_the_request_goes_to_its_own_path_with_the_key(http: Http) -> None:
    async with serving((SSE_HEAD, *HELLO)) as stub:
        await replied(provider(http, stub.base_url + "/"))

    heard = stub.requests[0]
    assert heard.head.startswith("POST /v1/responses HTTP/1.1\r\n")
    assert f"Authorization: Bearer {KEY}\r\n" in heard.head
    assert (heard.body["store"], heard.body["stream"]) == (False, True)


async def test_a_server_without_keys_is_sent_none(http: Http) -> None:
    async with serving((SSE_HEAD, *HELLO)) as stub:
        await replied(responses(http, base_url=stub.base_url, api_key=None))

    assert "Authorization" not in stub.requests[0].head


async def test_summaries_of_thoughts_are_asked_for_when_they_are_wanted(
    http: Http,
) -> None:
    async with serving((SSE_HEAD, *HELLO)) as stub:
        await replied(
            responses(http, base_url=stub.base_url, api_key=None, reasoning_summary="auto")
        )

    assert stub.requests[0].body["reasoning"] == {"summary": "auto"}


async def test_an_agent_is_called_as_a_tool_under_a_name_that_the_vendor_takes(
    http: Http,
) -> None:
    called = ToolCall("call_1_0", "agent:a", {})
    request = ModelRequest("tenant", "m", (Message("assistant", calls=(called,)),))
    async with serving((SSE_HEAD, *HELLO)) as stub:
        await replied(provider(http, stub.base_url), request)
        sent: Any = stub.requests[0].body["input"]
        script = Script()
        script.call(sent[0]["name"], "{}")
        pieces = [wire_event(event) for event in script.end()]
    async with serving((SSE_HEAD, *pieces)) as stub:
        reply = await replied(provider(http, stub.base_url), request)

    assert [call.name for call in reply.calls] == ["agent:a"]


async def test_deltas_come_when_they_come_and_not_at_the_end(http: Http) -> None:
    async with serving(CUT, after="hold") as stub:
        deltas = provider(http, stub.base_url).stream(QUESTION)
        first = await asyncio.wait_for(anext(deltas), 5)
        await deltas.aclose()

    assert first == TextDelta("Hel")


async def test_where_the_server_counts_no_tokens_they_are_estimated(
    http: Http,
) -> None:
    script = Script()
    script.message("Hello")
    async with serving((SSE_HEAD, *map(wire_event, script.end()))) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.usage == Usage(input_tokens=4, output_tokens=2)


@pytest.mark.parametrize(
    "told",
    [
        {"input_tokens": 9},
        {"output_tokens": 2},
        {"input_tokens": 0, "output_tokens": 2},
        {"input_tokens": 9, "output_tokens": None},
        {"input_tokens": "9", "output_tokens": 2},
    ],
)
async def test_where_the_server_counts_half_of_the_tokens_all_are_estimated(
    http: Http, told: dict[str, object]
) -> None:
    script = Script()
    script.message("Hello")
    *said, last = script.end()
    ended = {**last, "response": {**last["response"], "usage": told}}
    async with serving((SSE_HEAD, *map(wire_event, said), event(ended))) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.usage == Usage(input_tokens=4, output_tokens=2)


async def test_a_server_that_says_neither_indices_nor_numbers_is_understood(
    http: Http,
) -> None:
    """As llama.cpp's does."""
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add"}
    events = [
        {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}},
        {"type": "response.output_item.added", "item": {**item, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": '{"a":'},
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": " 1}"},
        {"type": "response.output_item.done", "item": {**item, "arguments": '{"a": 1}'}},
        {
            "type": "response.completed",
            "response": {
                "id": "resp_1",
                "model": "smollm2",
                "status": "completed",
                "output": [{**item, "arguments": '{"a": 1}'}],
                "usage": {"input_tokens": 89, "output_tokens": 36},
            },
            "timings": {"prompt_n": 89},
        },
    ]
    async with serving((SSE_HEAD, *(b"data: %b\n\n" % orjson.dumps(e) for e in events))) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.calls == (RequestedCall("call_1", "add", '{"a": 1}'),)
    assert (reply.response_id, reply.model, reply.usage) == ("resp_1", "smollm2", Usage(89, 36))


async def test_stop_sequences_are_refused_before_anybody_is_asked(
    http: Http,
) -> None:
    request = ModelRequest("tenant", "m", QUESTION.messages, stop=("END",))
    async with serving((SSE_HEAD, *HELLO)) as stub:
        error = await refused(provider(http, stub.base_url), request)

    assert error.code == "provider_bad_request"
    assert stub.requests == []


# --- Ends --------------------------------------------------------------------------------------


async def test_a_server_that_never_hangs_up_is_not_waited_for(
    http: Http,
) -> None:
    async with serving((SSE_HEAD, *HELLO), after="hold") as stub:
        reply = await asyncio.wait_for(replied(provider(http, stub.base_url)), 10)
        await asyncio.wait_for(stub.hung_up.wait(), 5)

    assert (reply.text, reply.usage) == ("Hello", Usage(9, 2))


async def test_a_connection_lost_after_the_last_event_loses_nothing(
    http: Http,
) -> None:
    async with serving((SSE_HEAD, *HELLO), after="abort") as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.text == "Hello"


async def test_leaving_early_closes_the_connection(http: Http) -> None:
    async with serving(CUT, after="hold") as stub:
        deltas = provider(http, stub.base_url).stream(QUESTION)
        await anext(deltas)
        await deltas.aclose()

        await asyncio.wait_for(stub.hung_up.wait(), 5)


# --- Hostile -----------------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["close", "abort"])
@pytest.mark.parametrize(
    "last", ["response.created", "response.output_text.delta", "response.output_item.done"]
)
async def test_a_stream_cut_anywhere_before_its_end_is_worth_a_retry(
    http: Http, last: str, after: After
) -> None:
    async with serving((SSE_HEAD, *until(last, HELLO)), after=after) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable) == ("provider_stream_cut", True)


async def test_a_stream_cut_in_the_middle_of_an_event_is_worth_a_retry(
    http: Http,
) -> None:
    async with serving((*CUT, b'event: x\ndata: {"type":"respo'), after="abort") as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable) == ("provider_stream_cut", True)


async def test_garbage_instead_of_an_event_is_an_error(http: Http) -> None:
    async with serving((*CUT, b"data: \x00\xff{{{\n\n")) as stub:
        error = await refused(provider(http, stub.base_url))

    assert error.code == "provider_error"
    assert "sent an event that is no JSON" in str(error)


async def test_garbage_between_events_is_skipped(http: Http) -> None:
    noise = b": ping\n\nevent: response.failed\nid: 7\n\x00\xff\xfe\n\r\n"
    pieces = (piece for event in HELLO for piece in (noise, event))
    async with serving((SSE_HEAD, *pieces)) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.text == "Hello"


async def test_a_line_of_10_megabytes_is_refused_long_before_its_end(
    http: Http,
) -> None:
    pieces = (*CUT, b"data: ", *[b"x" * 1_048_576] * 10)
    async with serving(pieces, after="hold") as stub:
        error = await refused(provider(http, stub.base_url))
        await asyncio.wait_for(stub.hung_up.wait(), 5)

    assert error.code == "provider_error"
    assert "a line of more than" in str(error)


async def test_a_wrong_index_leads_no_call_astray(http: Http) -> None:
    script = Script()
    script.message("Hm.")
    script.calls(("add", ['{"a":1}']), ("look", ['{"b":2}']))
    wrong = [
        {**event, "output_index": 0} if "arguments" in str(event["type"]) else event
        for event in script.end()
    ]
    async with serving((SSE_HEAD, *map(wire_event, wrong))) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert [call.arguments for call in reply.calls] == ['{"a":1}', '{"b":2}']
    assert reply.text == "Hm."


async def test_two_calls_of_one_id_stay_two(http: Http) -> None:
    script = Script()
    script.calls(("add", ['{"a":', "1}"]), ("add", ['{"a":', "1}"]), call_id="call_same")
    same = [orjson.dumps(event).replace(b'"fc_1"', b'"fc_0"') for event in script.end()]
    async with serving((SSE_HEAD, *(b"data: %b\n\n" % event for event in same))) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.calls == (RequestedCall("call_same", "add", '{"a":1}'),) * 2


@pytest.mark.parametrize(
    "failing",
    [
        {"type": "error", "code": "server_error", "message": f"overloaded, {KEY}"},
        {
            "type": "response.failed",
            "response": {"error": {"code": "server_error", "message": f"overloaded, {KEY}"}},
        },
    ],
    ids=["an event", "a reply"],
)
async def test_an_error_inside_of_a_stream_is_an_error(http: Http, failing: dict[str, Any]) -> None:
    async with serving((*CUT, b"data: %b\n\n" % orjson.dumps(failing))) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable) == ("provider_overloaded", True)
    assert "answered 500: overloaded, [key]" in str(error)


async def test_a_plain_error_with_status_200_is_an_error(http: Http) -> None:
    body = b'{"error": {"message": "no such model", "type": "invalid_request_error"}}'
    async with serving((answer("200 OK", body, "content-type: application/json"),)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable) == ("provider_bad_request", False)


async def test_a_plain_answer_instead_of_a_stream_is_an_error(http: Http) -> None:
    body = b'{"object": "response", "output": []}'
    async with serving((answer("200 OK", body),)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert "a plain answer where a stream was asked for" in str(error)


async def test_a_request_that_is_too_much_waits_as_long_as_it_is_told(
    http: Http,
) -> None:
    body = b'{"error": {"message": "slow down", "code": "rate_limit_exceeded"}}'
    headers = ("retry-after-ms: 1500", "x-request-id: req_7")
    async with serving((answer("429 Slow Down", body, *headers),)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable) == ("provider_rate_limited", True)
    assert error.retry_after_s == 1.5
    assert "(request req_7)" in str(error)


# --- Late --------------------------------------------------------------------------------------

CREATED = until("response.in_progress", HELLO)


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (SSE_HEAD,),
        (SSE_HEAD, *CREATED),
        dripping(SSE_HEAD, b": wait\n\n"),
        dripping(SSE_HEAD, CREATED[-1]),
    ],
    ids=["says nothing", "sends a head", "only begins", "drips comments", "drips progress"],
)
async def test_the_first_token_is_not_waited_for_forever(
    http: Http, pieces: Iterable[bytes]
) -> None:
    async with serving(pieces, after="hold") as stub:
        error = await refused(provider(http, stub.base_url, IMPATIENT))
        await asyncio.wait_for(stub.hung_up.wait(), 5)

    assert (error.code, error.retryable) == ("provider_timeout", True)


async def test_the_next_token_is_not_waited_for_forever(http: Http) -> None:
    patience = Patience(first_s=30, between_s=0.05, tail_s=30)
    async with serving(CUT, after="hold") as stub:
        error = await refused(provider(http, stub.base_url, patience))
        await asyncio.wait_for(stub.hung_up.wait(), 5)

    assert "sent no next token within" in str(error)


async def test_a_slow_drip_of_tokens_is_heard_out(http: Http) -> None:
    script = Script()
    script.call("add", *'{"a":1}')
    whole = b"".join(map(wire_event, script.end()))
    drops = (whole[at : at + 50] for at in range(0, len(whole), 50))
    async with serving((SSE_HEAD, *drops)) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.calls == (RequestedCall("call_0", "add", '{"a":1}'),)
