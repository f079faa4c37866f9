"""The Chat Completions wire over a real socket, with servers of every temper."""

import asyncio
import codecs
import resource
import socket
import ssl
import traceback
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohappyeyeballs import AddrInfoType
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from milepost.core.errors import ConfigurationError, ProviderError
from milepost.core.messages import Message, Sealed, ToolCall
from milepost.core.model import (
    ModelRequest,
    Reply,
    RequestedCall,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers.assemble import Assembly
from milepost.providers.endpoint import Endpoint
from milepost.providers.failures import STREAM_CUT, was_at_work
from milepost.providers.http import Http
from milepost.providers.openai import openai
from milepost.providers.reading import Patience
from tests.stubs import openai_server
from tests.stubs.raw_server import SSE_HEAD, After, answer, chunk, dripping, event, serving

QUESTION = ModelRequest("tenant", "stub-model", (Message("user", "What is 17 + 25?"),))
IMPATIENT = Patience(first_s=0.05, between_s=0.05, tail_s=0.05)
KEY = "sk-very-secret"

HELLO = (SSE_HEAD, chunk({"content": "Hel"}), chunk({"content": "lo"}))
USAGE = event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}})
DONE = b"data: [DONE]\n\n"


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    async with Http() as session:
        yield session


async def replied(provider: Endpoint, request: ModelRequest = QUESTION) -> Reply:
    assembly = Assembly()
    async for delta in provider.stream(request):
        assembly.feed(delta)
    return assembly.reply()


async def refused(provider: Endpoint) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await asyncio.wait_for(replied(provider), 10)
    return caught.value


def provider(http: Http, base_url: str, patience: Patience | None = None) -> Endpoint:
    return openai(http, base_url=base_url, api_key=KEY, patience=patience)


# --- Well-behaved ------------------------------------------------------------------------------


async def test_a_tool_call_and_then_an_answer_are_streamed(http: Http) -> None:
    async with openai_server.serving(tokens=3) as base_url:
        openai = provider(http, base_url)
        first = await replied(openai)
        call = ToolCall("call_1_0", "add", {"a": 17, "b": 25}, first.calls[0].provider_id)
        messages = (
            *QUESTION.messages,
            Message("assistant", calls=(call,)),
            Message("tool", "42", call_id="call_1_0"),
        )
        second = await replied(openai, ModelRequest("tenant", "stub-model", messages))

    assert first.calls == (RequestedCall("call_add", "add", '{"a":17,"b":25}'),)
    assert first.finish_reason == "tool_calls"
    assert second.text == "token0 token1 token2 "
    assert (second.finish_reason, second.usage) == ("stop", Usage(50, 3))
    assert (second.response_id, second.model) == ("chatcmpl-stub", "stub-model")


async def test_a_call_for_which_no_file_is_left_to_open_waits_until_there_is_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    looked_up: list[str] = []

    async def one_left_later(host: str, port: int) -> Sequence[AddrInfoType]:
        looked_up.append(host)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft if looked_up[1:] else 3, hard))
        return await here(host, port)

    try:
        async with (
            openai_server.serving(tokens=1) as base_url,
            Http(resolve=one_left_later) as http,
        ):
            reply = await replied(provider(http, base_url))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert reply.calls == (RequestedCall("call_add", "add", '{"a":17,"b":25}'),)
    assert len(looked_up) == 2


@pytest.mark.parametrize("token_delay_s", [0, 0.002], ids=["at once", "in pieces"])
async def test_calls_one_after_another_share_a_connection(token_delay_s: float) -> None:
    connections: list[str] = []

    async def count(host: str, port: int) -> Sequence[AddrInfoType]:
        connections.append(host)
        return await here(host, port)

    async with (
        openai_server.serving(tokens=2, token_delay_s=token_delay_s) as base_url,
        Http(resolve=count) as http,
    ):
        for _ in range(3):
            await replied(provider(http, base_url))

    assert len(connections) == 1


async def test_a_kept_connection_that_is_gone_is_replaced_unnoticed() -> None:
    payload = b"".join((*HELLO[1:], DONE))
    head = SSE_HEAD.replace(b"connection: close", b"content-length: %d" % len(payload))
    async with (
        serving((head + payload,), after="drop") as stub,
        Http() as http,
    ):
        texts = [(await replied(provider(http, stub.base_url))).text for _ in range(3)]

    assert texts == ["Hello"] * 3
    assert len(stub.requests) == 3


async def test_deltas_come_when_they_come_and_not_at_the_end(http: Http) -> None:
    async with serving(HELLO, after="hold") as stub:
        deltas = provider(http, stub.base_url).stream(QUESTION)
        first = await asyncio.wait_for(anext(deltas), 5)
        await deltas.aclose()

    assert first == TextDelta("Hel")


async def test_the_request_carries_the_key_and_our_name(http: Http) -> None:
    async with serving((*HELLO, DONE)) as stub:
        await replied(provider(http, stub.base_url + "/"))

    heard = stub.requests[0]
    assert heard.head.startswith("POST /v1/chat/completions HTTP/1.1\r\n")
    assert f"Authorization: Bearer {KEY}\r\n" in heard.head
    assert "User-Agent: milepost/" in heard.head
    assert heard.body["model"] == "stub-model"


async def test_a_server_without_keys_is_sent_none(http: Http) -> None:
    async with serving((*HELLO, DONE)) as stub:
        await replied(openai(http, base_url=stub.base_url, api_key=None))

    assert "Authorization" not in stub.requests[0].head


async def test_the_bound_on_tokens_has_the_name_that_the_server_knows(
    http: Http,
) -> None:
    request = ModelRequest("tenant", "stub-model", QUESTION.messages, tokens_max=5)
    async with serving((*HELLO, DONE)) as stub:
        await replied(provider(http, stub.base_url), request)
        modern = openai(
            http,
            base_url=stub.base_url,
            api_key=None,
            tokens_field="max_completion_tokens",
        )
        await replied(modern, request)

    assert [heard.body.get("max_tokens") for heard in stub.requests] == [5, None]
    assert stub.requests[1].body["max_completion_tokens"] == 5


async def here(_: str, port: int) -> Sequence[AddrInfoType]:
    """Find every host on this machine."""
    return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))]


async def heard_by(host: str, request: ModelRequest) -> dict[str, object]:
    """Return the body that a vendor's host gets."""
    async with (
        serving((*HELLO, DONE)) as stub,
        Http(resolve=here) as http,
    ):
        base_url = stub.base_url.replace("127.0.0.1", host)
        await replied(provider(http, base_url), request)
    return stub.requests[0].body


async def test_openais_own_host_is_told_the_bound_under_its_new_name() -> None:
    request = ModelRequest("tenant", "stub-model", QUESTION.messages, tokens_max=5)

    body = await heard_by("api.openai.com", request)

    assert body["max_completion_tokens"] == 5
    assert "max_tokens" not in body


@pytest.mark.parametrize("host", ["api.deepseek.com", "api.moonshot.ai", "api.openai.com"])
async def test_reasoning_goes_back_to_those_who_insist_on_it_and_to_nobody_else(host: str) -> None:
    call = ToolCall("call_1_0", "add", {"a": 17})
    thought = Sealed("openai", {"reasoning": "Let me add."})
    asked = Message("assistant", calls=(call,), sealed=(thought,))
    request = ModelRequest("tenant", "stub-model", (*QUESTION.messages, asked))

    body = await heard_by(host, request)

    sent: Any = body["messages"]
    insists = host != "api.openai.com"
    assert sent[1].get("reasoning_content") == ("Let me add." if insists else None)


async def test_a_server_may_be_given_reasoning_back_under_its_own_name(
    http: Http,
) -> None:
    call = {"index": 0, "id": "call_7", "function": {"name": "add", "arguments": "{}"}}
    thinking = (SSE_HEAD, chunk({"reasoning": "Let me add."}), chunk({"tool_calls": [call]}))
    async with serving((*thinking, chunk({}, "tool_calls"), DONE)) as stub:
        vllm = openai(http, base_url=stub.base_url, api_key=None, reasoning_field="reasoning")
        first = await replied(vllm)
        again = Message("assistant", calls=(ToolCall("call_1_0", "add", {}),), sealed=first.sealed)
        await replied(vllm, ModelRequest("tenant", "stub-model", (*QUESTION.messages, again)))

    sent: Any = stub.requests[1].body["messages"]
    assert sent[1]["reasoning"] == "Let me add."


async def test_a_long_conversation_is_sent_whole(http: Http) -> None:
    story = "x" * 2_000_000
    async with serving((*HELLO, DONE)) as stub:
        await replied(
            provider(http, stub.base_url),
            ModelRequest("tenant", "stub-model", (Message("user", story),)),
        )

    assert stub.requests[0].body["messages"] == [{"role": "user", "content": story}]


async def test_where_the_server_counts_no_tokens_they_are_estimated(
    http: Http,
) -> None:
    async with serving((*HELLO, chunk({}, "stop"), DONE)) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.usage == Usage(input_tokens=4, output_tokens=2)


@pytest.mark.parametrize(
    "told",
    [
        {"prompt_tokens": 9},
        {"prompt_tokens": 0, "completion_tokens": 2},
        {"prompt_tokens": 9, "completion_tokens": None},
        {"prompt_tokens": -5, "completion_tokens": 2},
        {"prompt_tokens": 10**12, "completion_tokens": 2},
        {"prompt_tokens": "9", "completion_tokens": 2},
    ],
)
async def test_where_the_server_counts_half_of_the_tokens_all_are_estimated(
    http: Http, told: dict[str, object]
) -> None:
    half = b"data: " + orjson.dumps({"choices": [], "usage": told}) + b"\n\n"
    async with serving((*HELLO, chunk({}, "stop"), half, DONE)) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.usage == Usage(input_tokens=4, output_tokens=2)


# --- Ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ending",
    [
        (chunk({}, "stop"), USAGE, DONE),
        (chunk({}, "stop"), USAGE),
        (chunk({}, "stop"), USAGE, b"data: [DONE]"),
        (USAGE, DONE),
    ],
    ids=["as documented", "without the end mark", "without a line end", "without a reason"],
)
async def test_every_ending_that_servers_are_known_for_is_an_end(
    http: Http, ending: tuple[bytes, ...]
) -> None:
    async with serving((*HELLO, *ending)) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert (reply.text, reply.finish_reason, reply.usage) == ("Hello", "stop", Usage(9, 2))


@pytest.mark.parametrize("left", [b'data: {"usage":{}', b"data: {", b"da"])
async def test_a_line_that_broke_off_after_the_reason_to_stop_loses_nothing(
    http: Http, left: bytes
) -> None:
    async with serving((*HELLO, chunk({}, "stop"), left)) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.text == "Hello"


async def test_a_line_that_broke_off_behind_a_brace_is_a_stream_that_did(
    http: Http,
) -> None:
    async with serving((*HELLO, b'data: {"choices":[{"delta":{}')) as stub:
        error = await refused(provider(http, stub.base_url))

    assert error.code == STREAM_CUT


async def test_a_mark_of_the_byte_order_hides_no_event(http: Http) -> None:
    async with serving((SSE_HEAD + codecs.BOM_UTF8 + b"".join(HELLO[1:]), DONE)) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.text == "Hello"


async def test_a_page_in_place_of_a_stream_is_shown(http: Http) -> None:
    page = answer("200 OK", b"<!doctype html>\n<title>Welcome</title>\n")
    async with serving((page,)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert "a plain answer where a stream was asked for: <!doctype html> <title>Wel" in str(error)


async def test_an_answer_that_is_no_http_gives_no_key_away(http: Http) -> None:
    async with serving((f"HTTP/1.1 2x0 {KEY}\r\n\r\n".encode(),)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert "no proper HTTP" in str(error)
    assert KEY not in "".join(traceback.format_exception(error))


async def test_a_connection_lost_after_the_reason_to_stop_loses_nothing(
    http: Http,
) -> None:
    async with serving((*HELLO, chunk({}, "stop")), after="abort") as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.text == "Hello"


@pytest.mark.parametrize(
    "pieces",
    [(*HELLO, chunk({}, "stop")), (*HELLO[:-1], chunk({"content": "lo"}, "stop"))],
    ids=["a reason alone", "a reason with the last token"],
)
async def test_a_server_that_never_hangs_up_is_not_waited_for(
    http: Http, pieces: tuple[bytes, ...]
) -> None:
    patience = Patience(first_s=30, between_s=30, tail_s=0.05)
    async with serving(pieces, after="hold") as stub:
        reply = await asyncio.wait_for(replied(provider(http, stub.base_url, patience)), 10)
        await asyncio.wait_for(stub.hung_up.wait(), 5)

    assert reply.text == "Hello"


STOPPING = tuple(chunk({"content": piece}, "stop") for piece in ("Hel", "lo", " there"))


@pytest.mark.parametrize(
    "pieces",
    [
        (STOPPING[0] + STOPPING[1], STOPPING[2]),
        (chunk({}, "stop"), *(chunk({"content": piece}) for piece in ("Hel", "lo", " there"))),
    ],
    ids=["with every word", "before the first word"],
)
async def test_a_reason_to_stop_is_not_believed_of_who_goes_on(
    http: Http, pieces: tuple[bytes, ...]
) -> None:
    patience = Patience(first_s=30, between_s=30, tail_s=0.001)
    async with serving((SSE_HEAD, *pieces)) as stub:
        reply = await replied(provider(http, stub.base_url, patience))

    assert reply.text == "Hello there"


@pytest.mark.parametrize("pieces", [STOPPING, (chunk({}, "stop"),)], ids=["some", "nothing"])
async def test_who_stops_without_meaning_it_and_breaks_off_gave_no_reply(
    http: Http, pieces: tuple[bytes, ...]
) -> None:
    head = SSE_HEAD.replace(b"connection: close", b"content-length: 100000")
    async with serving((head, *pieces)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable) == (STREAM_CUT, True)


async def test_what_stays_open_after_the_end_mark_is_closed(http: Http) -> None:
    async with serving((*HELLO, DONE), after="hold") as stub:
        reply = await replied(provider(http, stub.base_url))
        await asyncio.wait_for(stub.hung_up.wait(), 5)

    assert reply.text == "Hello"


async def test_leaving_early_closes_the_connection(http: Http) -> None:
    async with serving(HELLO, after="hold") as stub:
        deltas = provider(http, stub.base_url).stream(QUESTION)
        await anext(deltas)
        await deltas.aclose()

        await asyncio.wait_for(stub.hung_up.wait(), 5)


async def test_a_cancelled_call_closes_the_connection(http: Http) -> None:
    async with serving(HELLO, after="hold") as stub:
        said = asyncio.Event()

        async def listen() -> None:
            async for _ in provider(http, stub.base_url).stream(QUESTION):
                said.set()

        listening = asyncio.create_task(listen())
        await said.wait()
        listening.cancel()

        await asyncio.wait_for(stub.hung_up.wait(), 5)
        with pytest.raises(asyncio.CancelledError):
            await listening


# --- Hostile -----------------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["close", "abort"])
async def test_a_stream_cut_in_the_middle_is_worth_a_retry(http: Http, after: After) -> None:
    async with serving(HELLO, after=after) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable) == ("provider_stream_cut", True)


async def test_a_stream_cut_in_the_middle_of_a_chunk_is_worth_a_retry(
    http: Http,
) -> None:
    head = SSE_HEAD.replace(b"connection: close", b"transfer-encoding: chunked")
    async with serving((head, b"ff\r\n" + chunk({"content": "Hel"}))) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable) == ("provider_stream_cut", True)


@pytest.mark.parametrize("after", ["close", "abort"])
async def test_a_stream_cut_in_the_middle_of_an_event_is_worth_a_retry(
    http: Http, after: After
) -> None:
    async with serving((*HELLO, chunk({"content": "!"})[:-9]), after=after) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable) == ("provider_stream_cut", True)


async def test_an_empty_answer_is_no_answer(http: Http) -> None:
    async with serving((SSE_HEAD,)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert error.code == "provider_stream_cut"


async def test_garbage_instead_of_an_event_is_an_error(http: Http) -> None:
    async with serving((*HELLO, b"data: \x00\xff{{{\n\n", DONE)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert error.code == "provider_error"
    assert "sent an event that is no JSON" in str(error)


async def test_garbage_between_events_is_skipped(http: Http) -> None:
    noise = b": ping\n\nevent: message\nid: 7\n\x00\xff\xfe\n\r\n"
    async with serving((SSE_HEAD, noise, *HELLO[1:], noise, DONE)) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.text == "Hello"


async def test_a_line_of_10_megabytes_is_refused_long_before_its_end(
    http: Http,
) -> None:
    pieces = (*HELLO, b"data: ", *[b"x" * 1_048_576] * 10)
    async with serving(pieces, after="hold") as stub:
        error = await refused(provider(http, stub.base_url))
        await asyncio.wait_for(stub.hung_up.wait(), 5)

    assert error.code == "provider_error"
    assert "a line of more than" in str(error)


async def test_an_error_inside_of_a_stream_is_an_error(http: Http) -> None:
    inside = event({"error": {"message": f"overloaded, {KEY}", "code": 503}})
    async with serving((*HELLO, inside)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable) == ("provider_overloaded", True)
    assert "answered 503: overloaded, [key]" in str(error)


async def test_a_plain_error_with_status_200_is_an_error(http: Http) -> None:
    body = b'{"error": {"message": "no such model", "type": "invalid_request_error"}}'
    async with serving((answer("200 OK", body, "content-type: application/json"),)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable) == ("provider_bad_request", False)


async def test_a_plain_answer_instead_of_a_stream_is_an_error(http: Http) -> None:
    body = b'{"choices": [{"message": {"content": "Hello"}}]}'
    async with serving((answer("200 OK", body),)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert "a plain answer where a stream was asked for" in str(error)


async def test_a_server_that_does_not_speak_http_is_an_error(http: Http) -> None:
    async with serving((b"220 mail.example.com ESMTP\r\n",)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert "sent no proper HTTP" in str(error)


# --- Late --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pieces",
    [(), (SSE_HEAD,), (SSE_HEAD, chunk({"role": "assistant"})), dripping(SSE_HEAD, b": wait\n\n")],
    ids=["says nothing", "sends a head", "only greets", "drips comments"],
)
async def test_the_first_token_is_not_waited_for_forever(
    http: Http, pieces: Iterable[bytes]
) -> None:
    async with serving(pieces, after="hold") as stub:
        error = await refused(provider(http, stub.base_url, IMPATIENT))
        await asyncio.wait_for(stub.hung_up.wait(), 5)

    assert (error.code, error.retryable) == ("provider_timeout", True)
    assert "within 0.05 s" in str(error)


@pytest.mark.parametrize(
    "pieces",
    [HELLO, dripping(b"".join(HELLO), b": wait\n\n"), dripping(b"".join(HELLO), b"x")],
    ids=["falls silent", "drips comments", "drips a line"],
)
async def test_nor_is_the_next(http: Http, pieces: Iterable[bytes]) -> None:
    patience = Patience(first_s=5, between_s=0.05, tail_s=0.05)
    async with serving(pieces, after="hold") as stub:
        error = await refused(provider(http, stub.base_url, patience))
        await asyncio.wait_for(stub.hung_up.wait(), 5)

    assert (error.code, str(error)) == (
        "provider_timeout",
        "openai sent no next token within 0.05 s; try again later",
    )


async def test_a_slow_reader_is_not_the_vendors_fault(http: Http) -> None:
    loop = asyncio.get_running_loop()
    patience = Patience(first_s=5, between_s=0.2, tail_s=0.2)
    async with serving((*HELLO, chunk({}, "stop"), DONE)) as stub:
        text = ""
        async for delta in provider(http, stub.base_url, patience).stream(QUESTION):
            if isinstance(delta, TextDelta):
                busy = loop.create_future()
                loop.call_later(0.3, busy.set_result, None)
                await busy
                text += delta.text

    assert text == "Hello"


# --- Refused -----------------------------------------------------------------------------------


async def test_a_rate_limit_says_when_to_come_back(http: Http) -> None:
    body = b'{"error": {"message": "Too fast"}}'
    too_fast = answer("429 Too Many Requests", body, "retry-after: 7", "Retry-After-Ms: 1500")
    async with serving((too_fast,)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable, error.retry_after_s) == (
        "provider_rate_limited",
        True,
        1.5,
    )


async def test_a_refused_key_is_not_repeated(http: Http) -> None:
    body = f"Incorrect API key provided: {KEY}".encode()
    async with serving((answer("401 Unauthorized", body),)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.status) == ("provider_auth", 401)
    assert KEY not in str(error)


async def test_a_redirect_is_not_followed_with_our_key(http: Http) -> None:
    async with serving((*HELLO, DONE)) as other:
        moved = answer("307 Temporary Redirect", b"", f"location: {other.base_url}")
        async with serving((moved,)) as stub:
            error = await refused(provider(http, stub.base_url))

    assert (error.code, error.status) == ("provider_error", 307)
    assert f"redirects to {other.base_url}" in str(error)
    assert other.requests == []


async def test_an_error_that_never_ends_is_cut(http: Http) -> None:
    head = b"HTTP/1.1 500 Oh\r\nconnection: close\r\n\r\n"
    async with serving(dripping(head, b"x" * 10_000)) as stub:
        error = await refused(provider(http, stub.base_url))
        await asyncio.wait_for(stub.hung_up.wait(), 5)

    assert (error.code, error.retryable) == ("provider_overloaded", True)


async def test_an_error_that_breaks_off_keeps_its_status(http: Http) -> None:
    broken = b"HTTP/1.1 503 Busy\r\ncontent-length: 100\r\n\r\nToo bu"
    async with serving((broken,)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert str(error) == "openai answered 503: Too bu; try again later"


async def test_a_certificate_that_nobody_vouches_for_is_not_tried_again(
    http: Http, tmp_path: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(self_signed(tmp_path))

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        error = await refused(provider(http, f"https://127.0.0.1:{port}/v1"))

    assert (error.code, error.retryable) == ("provider_unreachable", False)


async def test_a_vendor_is_reached_whose_certificate_an_authority_of_one_s_own_vouches_for(
    http: Http, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)

    async def turn_down(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 402 No\r\ncontent-length: 5\r\n\r\nnever")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(turn_down, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        errors = [await refused(provider(http, f"https://127.0.0.1:{port}/v1")) for _ in range(2)]

    assert ["402: never" in str(error) for error in errors] == [True, True]


def self_signed(folder: Path) -> Path:
    """Write a key and its certificate, which no authority has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file.write_bytes(secret + certificate.public_bytes(serialization.Encoding.PEM))
    return file


async def test_nobody_at_the_address_is_unreachable(http: Http, unused_tcp_port: int) -> None:
    error = await refused(provider(http, f"http://127.0.0.1:{unused_tcp_port}/v1"))

    assert (error.code, error.retryable) == ("provider_unreachable", True)


async def test_a_connection_dropped_before_the_answer_is_unreachable_and_asked_no_more() -> None:
    async with (
        serving((), after="abort") as stub,
        Http() as http,
    ):
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable) == ("provider_unreachable", True)
    assert len(stub.requests) == 1


async def test_a_server_that_had_the_request_for_long_is_not_asked_again_unnoticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("milepost.providers.http.GONE_S_MAX", -1)
    payload = b"".join((*HELLO[1:], DONE))
    head = SSE_HEAD.replace(b"connection: close", b"content-length: %d" % len(payload))
    async with (
        serving((head + payload,), after="drop") as stub,
        Http() as http,
    ):
        await replied(provider(http, stub.base_url))
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable) == ("provider_stream_cut", True)
    assert was_at_work(error)
    assert len(stub.requests) == 1


async def test_who_hangs_up_within_the_head_of_an_answer_was_at_work() -> None:
    async with (
        serving((b"HTTP/1.1 200 OK\r\ncontent-ty",)) as stub,
        Http() as http,
    ):
        error = await refused(provider(http, stub.base_url))

    assert was_at_work(error)


# --- Misconfigured -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base_url",
    ["", "localhost:8080/v1", "ftp://127.0.0.1/v1", "http:///v1", "http://[::1", "http://a..b/v1"],
)
async def test_an_address_that_is_none_is_refused_at_once(http: Http, base_url: str) -> None:
    with pytest.raises(ConfigurationError, match="base URL of provider openai"):
        openai(http, base_url=base_url, api_key=None)


@pytest.mark.parametrize(
    "key", ["sk-secret\n", "sk secret", "sk-s\N{LATIN SMALL LETTER E WITH ACUTE}"]
)
async def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(
    http: Http, key: str
) -> None:
    with pytest.raises(ConfigurationError, match="API key of provider openai") as caught:
        openai(http, base_url="http://127.0.0.1/v1", api_key=key)

    assert key.strip() not in str(caught.value)
