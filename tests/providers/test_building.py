"""Declared providers are built: each over its wire, with its key, its bounds and its wrappers."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

import orjson
import pytest
from aiohttp import web

from milepost.core.errors import ConfigurationError, ProviderError
from milepost.core.messages import Message
from milepost.core.model import Delta, FellBack, ModelRequest, Reply, TextDelta, ToolSchema
from milepost.providers.assemble import Assembly
from milepost.providers.building import Models, Shared, open_models, scope_of, share
from milepost.providers.cache_memory import InProcessCache
from milepost.providers.declared import DeclaredProvider, WireName
from milepost.providers.reading import Patience
from milepost.providers.scripted import Scripted
from milepost.providers.windows import Quota
from tests.providers.redis_stubs import PATIENT_S, patient_client
from tests.stubs.raw_server import SSE_HEAD, chunk, dripping
from tests.stubs.raw_server import serving as raw_serving
from tests.stubs.web_server import Answer, WebServer, web_server

Open = Callable[..., Awaitable[Models]]

QUESTION = ModelRequest("tenant", "small", (Message("user", "Hi"),))

EVENTS: Mapping[WireName, list[dict[str, object]]] = {
    "openai": [
        {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}},
    ],
    "responses": [
        {"type": "response.created", "response": {"id": "resp_1", "output": []}},
        {"type": "response.output_item.added", "output_index": 0,
         "item": {"type": "message", "id": "msg_1", "role": "assistant", "content": []}},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0,
         "item_id": "msg_1", "delta": "Hello"},
        {"type": "response.completed",
         "response": {"id": "resp_1", "status": "completed",
                      "output": [{"type": "message", "id": "msg_1", "role": "assistant",
                                  "status": "completed",
                                  "content": [{"type": "output_text", "text": "Hello"}]}],
                      "usage": {"input_tokens": 9, "output_tokens": 2}}},
    ],
    "anthropic": [
        {"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 9}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0,
         "delta": {"type": "text_delta", "text": "Hello"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"},
         "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ],
    "gemini": [
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hello"}]},
                         "finishReason": "STOP"}],
         "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2}},
    ],
}  # fmt: skip
PATHS: Mapping[WireName, str] = {
    "openai": "/chat/completions",
    "responses": "/responses",
    "anthropic": "/v1/messages",
    "gemini": "/models/small:streamGenerateContent?alt=sse",
}


def streaming(wire: WireName = "openai") -> Answer:
    """Return what answers every request with `Hello` over that wire."""
    body = b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in EVENTS[wire])

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type="text/event-stream")

    return answer


def failing(status: int, message: str = "no") -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": message}}, status=status)

    return answer


def shared() -> Shared:
    return share(InProcessCache())


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Opens models that are closed with the test."""
    async with AsyncExitStack() as stack:

        async def open_(shared: Shared, **declared: DeclaredProvider) -> Models:
            return await stack.enter_async_context(open_models(declared, shared, built_in={}))

        yield open_


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with web_server(streaming()) as server:
        yield server


async def replied(models: Models, name: str = "local", request: ModelRequest = QUESTION) -> Reply:
    assembly = Assembly()
    async for delta in models.catalog.get(name).stream(request):
        assembly.feed(delta)
    return assembly.reply()


@pytest.mark.parametrize("wire", EVENTS)
async def test_every_wire_is_asked_at_its_path_with_its_key(opened: Open, wire: WireName) -> None:
    async with web_server(streaming(wire)) as server:
        models = await opened(shared(), local=DeclaredProvider(wire, server.url, "sk-1"))
        reply = await replied(models)

    assert (reply.text, reply.usage.input_tokens, reply.usage.output_tokens) == ("Hello", 9, 2)
    [asked] = server.asked
    assert asked.target == PATHS[wire]
    assert "sk-1" in asked.headers.get("authorization", asked.headers.get("x-goog-api-key", ""))


async def test_declared_headers_go_out_with_each_request_and_to_nobody_else(
    opened: Open, server: WebServer
) -> None:
    models = await opened(
        shared(),
        local=DeclaredProvider("openai", server.url, headers={"X-Team": "blue"}),
        other=DeclaredProvider("openai", server.url),
    )

    await replied(models, "local")
    await replied(models, "other")

    assert [asked.headers.get("x-team") for asked in server.asked] == ["blue", None]


async def test_what_a_vendor_wants_remembered_is_not_sent_back(opened: Open) -> None:
    async def marking(_: web.Request) -> web.StreamResponse:
        return web.Response(status=500, headers={"Set-Cookie": "seen=tenant; Path=/"})

    async with web_server(marking) as server:
        url = f"http://localhost:{server.port}"  # Cookies of plain addresses are ignored anyway.
        models = await opened(shared(), local=DeclaredProvider("openai", url))
        for _ in range(2):
            with pytest.raises(ProviderError):
                await replied(models)

    assert [asked.headers.get("cookie") for asked in server.asked] == [None, None]


async def test_no_failure_repeats_a_secret_header(opened: Open) -> None:
    async with web_server(
        failing(500, "Bearer sk-gateway-secret is odd, and so is blue")
    ) as server:
        headers = {"X-Gateway": "Bearer sk-gateway-secret", "X-Team": "blue"}
        models = await opened(
            shared(), local=DeclaredProvider("openai", server.url, headers=headers)
        )
        with pytest.raises(ProviderError) as caught:
            await replied(models)

    assert "answered 500: [key] is odd, and so is blue" in str(caught.value)


async def test_replies_are_kept_for_whoever_asks_for_that(opened: Open, server: WebServer) -> None:
    models = await opened(
        shared(),
        local=DeclaredProvider("openai", server.url, quota=Quota(requests=1, queue_s=0.01)),
    )
    cached = ModelRequest("tenant", "small", (), cache_ttl_s=60)

    replies = [await replied(models, request=cached) for _ in range(3)]

    assert [reply.cached for reply in replies] == [False, True, True]


async def test_a_quota_holds(opened: Open, server: WebServer) -> None:
    quota = Quota(requests=1, queue_s=0.01)
    models = await opened(shared(), local=DeclaredProvider("openai", server.url, quota=quota))
    await replied(models)

    with pytest.raises(ProviderError, match="local is held to 1 requests a minute"):
        await replied(models)


async def test_processes_with_a_redis_share_a_quota_and_circuits(
    opened: Open, server: WebServer, redis_url: str
) -> None:
    name = f"local-{uuid.uuid4().hex}"
    redis = patient_client(redis_url)
    here, there = (share(InProcessCache(), redis, within_s=PATIENT_S) for _ in range(2))
    quota = Quota(tokens=1, queue_s=0.01)
    declared = DeclaredProvider("openai", server.url, quota=quota)
    mine = await opened(here, **{name: declared})
    theirs = await opened(there, **{name: declared})
    for _ in range(3):
        await here.circuits.fail(name)

    await replied(mine, name)
    with pytest.raises(ProviderError, match="held to 1 tokens a minute"):
        await replied(theirs, name)
    entry = await there.circuits.enter(name)

    assert entry.wait_s > 50
    await redis.aclose()


async def test_calls_beyond_the_concurrency_wait(opened: Open) -> None:
    async with raw_serving([], after="hold") as server:
        declared = DeclaredProvider("openai", server.base_url, calls_max=1, queue_s=0.02)
        models = await opened(shared(), local=declared)
        first = asyncio.create_task(replied(models))
        await asyncio.sleep(0)

        with pytest.raises(ProviderError, match="local is held to 1 calls at a time"):
            await replied(models)

        first.cancel()
        await asyncio.wait([first])


@pytest.mark.parametrize(
    ("patience", "told"),
    [
        (Patience(first_s=0.05), "no first token within 0.05 s"),
        (Patience(between_s=0.05), "no next token within 0.05 s"),
        (Patience(whole_s=0.1), "no whole reply within 0.1 s"),
    ],
)
async def test_a_vendor_is_waited_for_as_long_as_it_is_declared(
    opened: Open, patience: Patience, told: str
) -> None:
    begun = chunk({"content": "Hm"})
    pieces = {
        Patience(first_s=0.05): [SSE_HEAD],
        Patience(between_s=0.05): [SSE_HEAD, begun],
        Patience(whole_s=0.1): dripping(SSE_HEAD, begun),
    }[patience]
    async with raw_serving(pieces, after="hold") as server:
        declared = DeclaredProvider("openai", server.base_url, patience=patience)
        models = await opened(shared(), local=declared)

        with pytest.raises(ProviderError, match=told) as caught:
            await asyncio.wait_for(replied(models), 10)

    assert (caught.value.code, caught.value.retryable) == ("provider_timeout", True)


@pytest.mark.parametrize("wire", PATHS)
async def test_tools_in_words_are_told_over_every_wire(opened: Open, wire: WireName) -> None:
    tool = ToolSchema("add", "Add numbers", {"type": "object", "properties": {}})
    asked = ModelRequest("tenant", "small", (Message("user", "Hi"),), tools=(tool,))
    async with web_server(streaming(wire)) as server:
        models = await opened(shared(), tiny=DeclaredProvider(wire, server.url, text_tools=True))
        reply = await replied(models, "tiny", asked)

    assert reply.text == "Hello"
    assert b"TOOL_CALL:" in server.asked[0].body


async def test_a_model_without_tools_of_its_own_is_told_of_them_in_words(
    opened: Open, server: WebServer
) -> None:
    declared = DeclaredProvider("openai", server.url, text_tools=True)
    models = await opened(shared(), local=declared)
    tool = ToolSchema("look_up", "Look it up.", {"type": "object", "properties": {}})

    await replied(models, request=ModelRequest("t", "small", QUESTION.messages, tools=(tool,)))

    body = orjson.loads(server.asked[0].body)
    assert "tools" not in body
    assert "look_up" in str(body["messages"])


async def test_a_chain_falls_back_from_one_declared_provider_to_the_next(opened: Open) -> None:
    async with web_server(failing(503, "full")) as busy, web_server(streaming()) as idle:
        models = await opened(
            shared(),
            busy=DeclaredProvider("openai", busy.url),
            idle=DeclaredProvider("openai", idle.url),
        )
        chain = models.chains.of(("busy/big", "idle/small"))
        deltas: list[Delta] = [delta async for delta in chain.stream(QUESTION)]

    assert isinstance(deltas[0], FellBack)
    assert (deltas[0].failed, deltas[0].chosen) == ("busy/big", "idle/small")
    assert TextDelta("Hello") in deltas
    assert orjson.loads(idle.asked[0].body)["model"] == "small"


async def test_what_prices_and_schemas_need_to_know_is_told(opened: Open) -> None:
    models = await opened(
        shared(),
        mine=DeclaredProvider("openai", "http://127.0.0.1:1/v1", free=True, schemas=False),
        groq=DeclaredProvider("openai", "https://api.groq.com/openai/v1"),
    )

    assert models.free == {"mine"}
    assert models.base_urls["groq"] == "https://api.groq.com/openai/v1"
    assert [models.catalog.takes_schema(name) for name in ("mine", "groq")] == [False, True]


async def test_built_in_providers_stand_beside_the_declared_ones() -> None:
    declared = {"local": DeclaredProvider("openai", "http://127.0.0.1:1/v1")}
    built_in, unlisted = {"demo": Scripted([])}, {"direct": Scripted([])}

    async with open_models(declared, shared(), built_in=built_in, unlisted=unlisted) as models:
        assert models.catalog.names == ("demo", "local")
        assert models.catalog.get("direct") is unlisted["direct"]


async def test_a_key_that_cannot_be_sent_is_refused_at_the_start(opened: Open) -> None:
    with pytest.raises(ConfigurationError, match="The API key of provider local") as caught:
        await opened(shared(), local=DeclaredProvider("openai", "http://h/v1", "sk secret"))

    assert "secret" not in str(caught.value)


def test_what_a_reply_is_kept_under_tells_credentials_apart_without_telling_them() -> None:
    plain = DeclaredProvider("openai", "http://h/v1")
    others = [
        DeclaredProvider("openai", "http://h/v1", "sk-secret"),
        DeclaredProvider("openai", "http://h/v1", headers={"Authorization": "sk-secret"}),
        DeclaredProvider("openai", "http://h/v1", text_tools=True),
        DeclaredProvider("responses", "http://h/v1"),
        DeclaredProvider("openai", "http://g/v1"),
    ]

    scopes = [scope_of(each) for each in (plain, *others)]

    assert len(set(scopes)) == len(scopes)
    assert "secret" not in " ".join(scopes)
