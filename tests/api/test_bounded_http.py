"""Connections: what is no request, or none within bounds, is hung up on and harms nobody."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from milepost.api.bounded_http import HEAD_BYTES_MAX, BoundedHttp

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n"
TIMEOUT_S = 10.0


class Hasty(BoundedHttp):
    """Waits for a head no longer than a moment."""

    head_s_max = 0.3


HELLO = Response("hello")


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the request's method, its query, its `x-sent` and its body."""
    request = Request(scope, receive)
    told = f"{request.method} {request.url.query} {request.headers.get('x-sent')} "
    await Response(told.encode() + await request.body())(scope, receive, send)


@asynccontextmanager
async def connected(
    protocol: type[BoundedHttp], app: ASGIApp = HELLO
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Serve an application that says hello; return a connection to it."""
    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    loop, state = asyncio.get_running_loop(), ServerState()
    made: Callable[[], BoundedHttp] = lambda: protocol(config, state, {})  # noqa: E731
    server = await loop.create_server(made, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server, asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(host, port)
        yield reader, writer
        writer.close()


async def answered(reader: asyncio.StreamReader) -> bytes:
    """Return one answer's body."""
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    return await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))


def refused(told: bytes) -> dict[str, Any]:
    """Return the problem that a connection was closed with."""
    head, _, body = told.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head
    problem: dict[str, Any] = json.loads(body)
    assert problem["code"] == "malformed_http"
    return problem


async def test_one_request_after_another_is_answered() -> None:
    async with connected(BoundedHttp) as (reader, writer):
        for _ in range(3):
            writer.write(GET + b"x-large: " + b"a" * (HEAD_BYTES_MAX // 2) + b"\r\n\r\n")
            assert await answered(reader) == b"hello"


async def test_a_body_is_no_part_of_the_head() -> None:
    body = b"a" * HEAD_BYTES_MAX * 2
    async with connected(BoundedHttp) as (reader, writer):
        writer.write(GET + b"content-length: %d\r\n\r\n" % len(body) + body)
        assert await answered(reader) == b"hello"


@pytest.mark.parametrize("piece", [b"x-more: a\r\n", b"a", b"x-" + b"a" * 9_000 + b": a\r\n"])
async def test_a_head_without_end_is_hung_up_on(piece: bytes) -> None:
    endless = GET + b"x-first: " + piece * HEAD_BYTES_MAX
    async with connected(BoundedHttp) as (reader, writer):
        writer.write(endless[: HEAD_BYTES_MAX + 1])
        told = await reader.read()

    assert "its line and headers have more than 65536 bytes" in refused(told)["detail"]


@pytest.mark.parametrize(
    "sent",
    [
        b"NONSENSE / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        GET + b"content-length: -1\r\n\r\n",
        GET + b"transfer-encoding: chunked\r\n\r\nno number\r\n",
        b"\x16\x03\x01\x02\x00",
    ],
)
async def test_what_is_no_request_is_told_so_as_any_other_problem(sent: bytes) -> None:
    async with connected(BoundedHttp) as (reader, writer):
        writer.write(sent)
        told = await reader.read()

    assert refused(told)["detail"].startswith("this is no HTTP/1.1 request: ")


@pytest.mark.parametrize("begun", [b"", b"GE", GET])
async def test_who_does_not_finish_a_head_is_hung_up_on(begun: bytes) -> None:
    async with connected(Hasty) as (reader, writer):
        writer.write(begun)

        assert await reader.read() == b""


async def test_a_second_request_has_a_time_of_its_own() -> None:
    async with connected(Hasty) as (reader, writer):
        writer.write(GET + b"\r\n")
        assert await answered(reader) == b"hello"
        writer.write(GET)

        assert await reader.read() == b""


# What Java's client and `curl --http2` send with a first request, what browsers do, and nonsense.
OTHER_PROTOCOLS = [
    b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQA\r\n",
    b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    b"Upgrade: foo/2, bar\r\nConnection: keep-alive, Upgrade\r\n",
]
SIZED = b"content-length: 5\r\n\r\nwords"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n5\r\nwords\r\n0\r\n\r\n"


@pytest.mark.parametrize("other", OTHER_PROTOCOLS)
@pytest.mark.parametrize("body", [SIZED, CHUNKED])
async def test_who_would_rather_speak_another_protocol_is_answered_in_this_one(
    other: bytes, body: bytes
) -> None:
    """RFC 9110, section 7.8: what is sent is a whole request of this one, and its body a body."""
    sent = b"POST /?n=1 HTTP/1.1\r\nhost: localhost\r\n" + other + b"x-sent: so\r\n" + body
    async with connected(BoundedHttp, echo) as (reader, writer):
        writer.write(sent)
        assert await answered(reader) == b"POST n=1 so words"

        writer.write(sent[:-8])
        writer.write(sent[-8:] + GET + b"\r\n")
        assert await answered(reader) == b"POST n=1 so words"
        assert await answered(reader) == b"GET  None "


async def test_however_many_ask_for_another_protocol_at_once_are_answered() -> None:
    many = 400
    async with connected(BoundedHttp) as (reader, writer):
        writer.write((GET + OTHER_PROTOCOLS[2] + b"\r\n") * many)
        for _ in range(many):
            assert await answered(reader) == b"hello"


async def test_a_head_that_asks_for_another_protocol_has_the_same_bound() -> None:
    async with connected(BoundedHttp) as (reader, writer):
        writer.write(GET + OTHER_PROTOCOLS[2] + b"x-large: " + b"a" * HEAD_BYTES_MAX)
        told = await reader.read()

    assert "its line and headers have more than 65536 bytes" in refused(told)["detail"]


async def test_a_tunnel_is_dug_for_nobody() -> None:
    async with connected(BoundedHttp, echo) as (reader, writer):
        writer.write(b"CONNECT elsewhere:443 HTTP/1.1\r\nhost: localhost\r\n\r\n")

        assert refused(await reader.read())
