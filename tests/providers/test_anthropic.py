"""The Messages wire over a real socket, with servers of every temper."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace

import orjson
import pytest
from anthropic import AsyncAnthropic

from milepost.core.errors import ConfigurationError, ProviderError
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
from milepost.providers.anthropic import anthropic
from milepost.providers.anthropic_request import Dialect
from milepost.providers.assemble import Assembly
from milepost.providers.closing import closing
from milepost.providers.http import Http
from milepost.providers.pricing import Pricing
from milepost.providers.reading import Patience
from tests.stubs import anthropic_server
from tests.stubs.anthropic_events import (
    PING,
    STOP,
    begin,
    call,
    conclusion,
    delta,
    framed,
    start,
    text,
    whole,
)
from tests.stubs.anthropic_server import AnthropicServer
from tests.stubs.raw_server import SSE_HEAD, After, answer, dripping, serving

KEY = "sk-ant-very-secret"
QUESTION = ModelRequest("tenant", "claude-stub", (Message("user", "What is 17 + 25?"),))
ADD = ToolSchema(
    "add",
    "Add two numbers",
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
)
TASK = replace(QUESTION, messages=(Message("system", "Be kind."), *QUESTION.messages), tools=(ADD,))

HELLO = (SSE_HEAD, *map(framed, (start(), PING, *text(0, "Hel", "lo"))))
REASON = framed(conclusion("end_turn"))
END = framed(STOP)


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    async with Http() as session:
        yield session


async def replied(provider: Provider, request: ModelRequest = QUESTION) -> Reply:
    assembly = Assembly()
    async for made in provider.stream(request):
        assembly.feed(made)
    return assembly.reply()


async def refused(provider: Provider, request: ModelRequest = QUESTION) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await asyncio.wait_for(replied(provider, request), 10)
    return caught.value


def provider(http: Http, base_url: str, patience: Patience | None = None) -> Provider:
    return anthropic(http, base_url=base_url, api_key=KEY, patience=patience)


def grown(request: ModelRequest, reply: Reply, step: int) -> ModelRequest:
    """Return the request that follows `reply`: with its calls' results, or another question."""
    calls = tuple(
        ToolCall(f"call_{step}_{n}", made.name, json.loads(made.arguments), made.provider_id)
        for n, made in enumerate(reply.calls)
    )
    said = Message("assistant", reply.text, calls, sealed=reply.sealed)
    results = [Message("tool", "42" * 50, call_id=made.id) for made in calls]
    after = results or [Message("user", "And 17 + 26?")]
    return replace(request, messages=(*request.messages, said, *after))


# --- Well-behaved ------------------------------------------------------------------------------


async def test_a_thought_a_tool_call_and_then_an_answer_are_streamed(
    http: Http,
) -> None:
    async with anthropic_server.serving(calls=2) as stub:
        first = await replied(provider(http, stub.base_url), TASK)
        second = await replied(provider(http, stub.base_url), grown(TASK, first, 1))

    assert first.reasoning == "They want a sum."
    assert first.calls == (
        RequestedCall("toolu_1_1", "add", '{"a":17,"b":25}'),
        RequestedCall("toolu_1_2", "add", '{"a":17,"b":25}'),
    )
    assert (first.finish_reason, first.response_id) == ("tool_calls", "msg_stub")
    assert (second.text, second.finish_reason) == ("token0 token1 token2 ", "stop")
    assert second.model == "claude-stub"


async def test_the_official_client_hears_the_same(http: Http) -> None:
    async with anthropic_server.serving() as stub:
        reply = await replied(provider(http, stub.base_url), TASK)
        async with (
            AsyncAnthropic(base_url=stub.base_url, api_key=KEY, max_retries=0) as client,
            client.messages.stream(
                model="claude-stub",
                max_tokens=100,
                messages=[{"role": "user", "content": [{"type": "text", "text": "17 + 25?"}]}],
                tools=[{"name": "add", "input_schema": {"type": "object"}}],
            ) as stream,
        ):
            message = await stream.get_final_message()

    thought, called = message.content
    assert thought.type == "thinking"
    assert called.type == "tool_use"
    assert thought.thinking == reply.reasoning
    assert [(called.id, called.name, called.input)] == [
        (made.provider_id, made.name, json.loads(made.arguments)) for made in reply.calls
    ]
    assert message.id == reply.response_id


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
async def test_the_base_url_may_end_with_the_version(http: Http, ending: str) -> None:
    async with anthropic_server.serving() as stub:
        await replied(provider(http, stub.base_url + ending))

    assert stub.requests[0].head.startswith("POST /v1/messages HTTP/1.1\r\n")


async def test_the_request_carries_the_version_the_key_and_our_name(
    http: Http,
) -> None:
    async with anthropic_server.serving() as stub:
        await replied(provider(http, stub.base_url))

    head = stub.requests[0].head
    assert "anthropic-version: 2026-10-21\r\n" in head
    assert f"Authorization: Bearer {KEY}\r\n" in head
    assert "x-api-key" not in head
    assert "User-Agent: milepost/" in head


async def test_a_server_may_know_the_key_under_its_old_name(http: Http) -> None:
    old = Dialect(key_header="x-api-key")
    async with anthropic_server.serving() as stub:
        await replied(anthropic(http, base_url=stub.base_url, api_key=KEY, dialect=old))

    assert f"x-api-key: {KEY}\r\n" in stub.requests[0].head
    assert "Authorization" not in stub.requests[0].head


async def test_a_server_without_keys_is_sent_none(http: Http) -> None:
    async with anthropic_server.serving() as stub:
        await replied(anthropic(http, base_url=stub.base_url, api_key=None))

    assert "authorization" not in stub.requests[0].head.lower()


async def test_tools_whose_names_the_vendor_refuses_go_out_under_others(
    http: Http,
) -> None:
    agent = replace(ADD, name="agent:sums")
    made_up = ToolCall("call_1_0", "functions.add now!", {}, "toolu_1")
    messages = (
        *TASK.messages,
        Message("assistant", calls=(made_up,)),
        Message("tool", "No such tool", call_id="call_1_0"),
    )
    async with anthropic_server.serving(steps=0) as stub:
        reply = await replied(
            provider(http, stub.base_url), replace(TASK, tools=(agent,), messages=messages)
        )
        [name] = [tool["name"] for tool in json_of(stub)["tools"]]

    async with serving((SSE_HEAD, *map(framed, whole([call(0, "t", name)], "tool_use")))) as stub:
        asked = await replied(provider(http, stub.base_url), replace(TASK, tools=(agent,)))

    assert reply.text
    assert [made.name for made in asked.calls] == ["agent:sums"]


def json_of(stub: AnthropicServer) -> dict[str, list[dict[str, str]]]:
    body: dict[str, list[dict[str, str]]] = orjson.loads(orjson.dumps(stub.requests[-1].body))
    return body


# --- What is cached, and what is thought -------------------------------------------------------


async def loop(http: Http, stub: AnthropicServer, steps: int) -> tuple[ModelRequest, list[Usage]]:
    """Go on with a conversation for some steps; return the next request, and what each took."""
    request, usages = TASK, []
    for step in range(steps):
        reply = await replied(provider(http, stub.base_url), request)
        usages.append(reply.usage)
        request = grown(request, reply, step)
    return request, usages


@pytest.mark.parametrize("calls", [1, 30])
async def test_each_step_reads_all_that_was_sent_before_from_the_cache(
    http: Http, calls: int
) -> None:
    async with anthropic_server.serving(steps=4, calls=calls) as stub:
        _, usages = await loop(http, stub, 7)

    read = [usage.cache_read_tokens for usage in usages]
    assert read == [0, *(usage.input_tokens for usage in usages[:-1])]
    assert all(u.cache_read_tokens + u.cache_write_tokens == u.input_tokens for u in usages)


async def test_another_run_of_the_agent_reads_its_tools_and_instructions(
    http: Http,
) -> None:
    async with anthropic_server.serving() as stub:
        first = await replied(provider(http, stub.base_url), TASK)
        other = replace(TASK, messages=(TASK.messages[0], Message("user", "What is 1 + 1?")))
        second = await replied(provider(http, stub.base_url), other)

    assert first.usage.cache_read_tokens == 0
    assert 0 < second.usage.cache_read_tokens < second.usage.input_tokens


async def test_what_was_read_from_the_cache_costs_what_the_vendor_takes_for_it(
    http: Http,
) -> None:
    async with anthropic_server.serving() as stub:
        _, [_, second] = await loop(http, stub, 2)

    plain = second.input_tokens - second.cache_read_tokens - second.cache_write_tokens
    dollars = (
        plain * 5 + second.cache_read_tokens * 0.5 + second.cache_write_tokens * 6.25
        + second.output_tokens * 25
    ) / 1e6  # fmt: skip
    cost = Pricing().cost_nanos("anthropic", "claude-opus-5", second)
    assert cost == pytest.approx(dollars * 1e9, abs=1)


async def test_thoughts_go_back_signed_and_in_their_place_through_all_of_a_session(
    http: Http,
) -> None:
    async with anthropic_server.serving(steps=2) as stub:
        request, _ = await loop(http, stub, 6)
        await replied(provider(http, stub.base_url), request)

    sent = json_of(stub)["messages"]
    kinds = [orjson.dumps(turn["content"]).count(b'"type":"thinking"') for turn in sent]
    assert sum(kinds) == 4


def unkind(request: ModelRequest) -> ModelRequest:
    return replace(request, messages=(Message("system", "Be unkind."), *request.messages[1:]))


@pytest.mark.parametrize(
    "changed",
    [
        lambda request: replace(request, tools=(replace(ADD, name="multiply"), ADD)),
        lambda request: replace(request, model="claude-other"),
        unkind,
    ],
    ids=["tools", "model", "instructions"],
)
async def test_a_conversation_that_changed_goes_on_without_the_thoughts_it_had(
    http: Http, changed: Callable[[ModelRequest], ModelRequest]
) -> None:
    async with anthropic_server.serving() as stub:
        request, _ = await loop(http, stub, 2)
        other = changed(request)
        reply = await replied(provider(http, stub.base_url), other)
        again = await replied(provider(http, stub.base_url), grown(other, reply, 3))

    assert (len(reply.calls), again.text) == (1, "token0 token1 token2 ")


# --- Ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ending",
    [(REASON, END), (REASON,), (REASON, b"data: [DONE]\n\n"), (END[:-2],)],
    ids=["as documented", "without the end mark", "with another's end mark", "without a reason"],
)
async def test_every_ending_is_an_end(http: Http, ending: tuple[bytes, ...]) -> None:
    async with serving((*HELLO, *ending)) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert (reply.text, reply.finish_reason) == ("Hello", "stop")


@pytest.mark.parametrize("pieces", [(REASON,), (REASON, END)], ids=["no end mark", "an end mark"])
async def test_a_server_that_never_hangs_up_is_not_waited_for(
    http: Http, pieces: tuple[bytes, ...]
) -> None:
    patience = Patience(first_s=30, between_s=30, tail_s=0.05)
    async with serving((*HELLO, *pieces), after="hold") as stub:
        reply = await asyncio.wait_for(replied(provider(http, stub.base_url, patience)), 10)
        await asyncio.wait_for(stub.hung_up.wait(), 5)

    assert reply.text == "Hello"


async def test_leaving_early_closes_the_connection(http: Http) -> None:
    async with serving(HELLO, after="hold") as stub:
        async with closing(provider(http, stub.base_url).stream(QUESTION)) as deltas:
            assert await anext(deltas) == TextDelta("Hel")

        await asyncio.wait_for(stub.hung_up.wait(), 5)


async def test_where_the_server_counts_no_tokens_they_are_estimated(
    http: Http,
) -> None:
    ending = framed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    async with serving((*HELLO, ending, END)) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.usage == Usage(input_tokens=4, output_tokens=2)


@pytest.mark.parametrize(
    ("began", "ended"),
    [
        ({}, {"output_tokens": 15}),
        ({"input_tokens": 0, "output_tokens": 0}, {"output_tokens": 15}),
        ({"input_tokens": "50"}, {"output_tokens": 15}),
        ({"input_tokens": 50}, {"output_tokens": -1}),
        ({"input_tokens": 50, "output_tokens": 1}, {"input_tokens": 50, "output_tokens": None}),
    ],
)
async def test_where_the_server_counts_half_of_the_tokens_all_are_estimated(
    http: Http, began: dict[str, object], ended: dict[str, object]
) -> None:
    said = (start(began), *text(0, "Hello"), conclusion("end_turn", ended), STOP)
    async with serving((SSE_HEAD, *map(framed, said))) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.usage == Usage(input_tokens=4, output_tokens=2)


# --- Hostile -----------------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["close", "abort"])
@pytest.mark.parametrize(
    "pieces",
    [HELLO, (*HELLO, framed(text(1, "x")[0])[:30]), (SSE_HEAD,), (SSE_HEAD, framed(start()))],
    ids=["between events", "inside of one", "before the first", "after the first"],
)
async def test_a_stream_cut_in_the_middle_is_worth_a_retry(
    http: Http, pieces: tuple[bytes, ...], after: After
) -> None:
    async with serving(pieces, after=after) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable) == ("provider_stream_cut", True)


async def test_a_call_cut_in_the_middle_is_no_call(http: Http) -> None:
    block = {"type": "tool_use", "id": "t", "name": "add", "input": {}}
    half = (begin(0, block), delta(0, "input_json_delta", partial_json='{"a":1'))
    async with serving((SSE_HEAD, *map(framed, (start(), *half)))) as stub:
        error = await refused(provider(http, stub.base_url), TASK)

    assert error.code == "provider_stream_cut"


async def test_garbage_instead_of_an_event_is_an_error(http: Http) -> None:
    async with serving((*HELLO, b"event: ping\ndata: \x00\xff{{{\n\n", REASON, END)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert "sent an event that is no JSON" in str(error)


async def test_garbage_between_events_is_skipped(http: Http) -> None:
    noise = b": keep-alive\n\nevent: new\nid: 7\n\x00\xff\xfe\n\r\n" + framed({"type": "new"})
    async with serving((*HELLO, noise, REASON, noise, END)) as stub:
        reply = await replied(provider(http, stub.base_url))

    assert reply.text == "Hello"


async def test_a_line_of_10_megabytes_is_refused_long_before_its_end(
    http: Http,
) -> None:
    pieces = (*HELLO, b"data: ", *[b"x" * 1_048_576] * 10)
    async with serving(pieces, after="hold") as stub:
        error = await refused(provider(http, stub.base_url))
        await asyncio.wait_for(stub.hung_up.wait(), 5)

    assert "a line of more than" in str(error)


@pytest.mark.parametrize(
    ("pieces", "awaited"),
    [
        (dripping(SSE_HEAD, framed(PING)), "first token"),
        (dripping(SSE_HEAD + framed(start()), framed(PING)), "first token"),
        (dripping(b"".join(HELLO), framed(PING)), "next token"),
        (dripping(b"".join(HELLO), b"x"), "next token"),
        (HELLO, "next token"),
    ],
    ids=["only pings", "begins and pings", "pings in the middle", "drips a line", "falls silent"],
)
async def test_a_ping_is_no_token(http: Http, pieces: Iterable[bytes], awaited: str) -> None:
    patience = Patience(first_s=0.1, between_s=0.1, tail_s=0.1)
    async with serving(pieces, after="hold") as stub:
        error = await refused(provider(http, stub.base_url, patience))
        await asyncio.wait_for(stub.hung_up.wait(), 5)

    assert str(error) == f"anthropic sent no {awaited} within 0.1 s; try again later"


@pytest.mark.parametrize("together", [True, False], ids=["in one read", "one by one"])
async def test_an_error_behind_words_does_not_undo_their_bill(http: Http, together: bool) -> None:
    """The words are lost with it where they came in one read."""
    broken = framed({"type": "error", "error": {"type": "api_error", "message": "Oh"}})
    pieces = (*HELLO, broken)
    async with serving([b"".join(pieces)] if together else pieces) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.at_work) == ("provider_overloaded", True)


async def test_an_error_before_any_words_leaves_it_to_its_kind_what_is_billed(http: Http) -> None:
    broken = framed({"type": "error", "error": {"type": "api_error", "message": "Oh"}})
    async with serving((SSE_HEAD, framed(start()), broken)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert error.at_work is None


async def test_an_error_inside_of_a_stream_is_an_error(http: Http) -> None:
    inside = {"type": "overloaded_error", "message": f"Overloaded, {KEY}"}
    async with serving((*HELLO, framed({"type": "error", "error": inside}))) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable, error.status) == ("provider_overloaded", True, 529)
    assert "answered 529: Overloaded, [key]" in str(error)


async def test_a_plain_error_with_status_200_is_an_error(http: Http) -> None:
    body = b'{"type": "error", "error": {"type": "not_found_error", "message": "model: no"}}'
    async with serving((answer("200 OK", body, "content-type: application/json"),)) as stub:
        error = await refused(provider(http, stub.base_url))

    assert (error.code, error.retryable) == ("provider_bad_request", False)


# --- Refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "code", "retryable"),
    [
        ("529 Overloaded", "overloaded_error", "provider_overloaded", True),
        ("500 Oh", "api_error", "provider_overloaded", True),
        ("429 Too Many Requests", "rate_limit_error", "provider_rate_limited", True),
        ("413 Too Large", "request_too_large", "provider_bad_request", False),
        ("402 Payment Required", "billing_error", "provider_error", False),
        ("401 Unauthorized", "authentication_error", "provider_auth", False),
        ("400 Bad Request", "invalid_request_error", "provider_bad_request", False),
    ],
)
async def test_a_refusal_names_the_request_and_says_whether_to_try_again(
    http: Http, status: str, kind: str, code: str, retryable: bool
) -> None:
    error = {"type": kind, "message": f"No, {KEY}"}
    body = orjson.dumps({"type": "error", "error": error, "request_id": "req_7"})
    async with serving((answer(status, body, "request-id: req_7", "retry-after: 3"),)) as stub:
        raised = await refused(provider(http, stub.base_url))

    assert (raised.code, raised.retryable, raised.retry_after_s) == (code, retryable, 3.0)
    assert f"answered {status[:3]}: No, [key] (request req_7)" in str(raised)


@pytest.mark.parametrize(
    ("status", "told", "retryable"), [("400 Oh", "true", True), ("529 Oh", "false", False)]
)
async def test_a_vendor_that_knows_whether_to_try_again_is_believed(
    http: Http, status: str, told: str, retryable: bool
) -> None:
    async with serving((answer(status, b"{}", f"x-should-retry: {told}"),)) as stub:
        raised = await refused(provider(http, stub.base_url))

    assert raised.retryable is retryable


async def test_a_key_that_no_header_can_carry_is_refused_at_once(
    http: Http,
) -> None:
    with pytest.raises(ConfigurationError, match="API key of provider anthropic"):
        anthropic(http, base_url="http://127.0.0.1", api_key="sk ant")
