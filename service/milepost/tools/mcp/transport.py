"""How an MCP server is reached: its process over stdio, or its URL through the guard."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import Self

import httpx2
import mcp_types
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from yarl import URL

from milepost.core.errors import ToolError
from milepost.tools.egress import EgressError, Guard
from milepost.tools.mcp.declared import McpServerSpec
from milepost.tools.mcp.process import speaking_with
from milepost.tools.references import require_one_line

ANSWER_BYTES_MAX = 16 * 1024 * 1024
CONNECT_S = 10.0
READ_S = 300.0
NOTICE_S = 2.0
EVENTS_S = 0.1
CANCELLED = "notifications/cancelled"

Message = SessionMessage | Exception
Transport = AbstractAsyncContextManager[TransportStreams]
OnEnd = Callable[[ToolError | None], None]
"""Is called as soon as a server says no more, with why if that is known."""
Open = Callable[[Mapping[str, str], OnEnd], Transport]
"""Opens a way to a server, with what its environment or its headers are."""


def opener(spec: McpServerSpec, guard: Guard) -> Open:
    """Return what opens a way to the server that `spec` declares."""

    @asynccontextmanager
    async def open_stdio(
        environment: Mapping[str, str], on_end: OnEnd
    ) -> AsyncGenerator[TransportStreams, None]:
        command = _command(spec, environment)
        async with speaking_with(command, environment, spec.cwd, on_end) as (reader, writer):
            yield _Watched(reader, on_end), writer

    @asynccontextmanager
    async def open_http(
        headers: Mapping[str, str], on_end: OnEnd
    ) -> AsyncGenerator[TransportStreams, None]:
        require_one_line(headers)
        async with (
            httpx2.AsyncClient(
                headers={**headers, "accept-encoding": "identity"},
                transport=_GuardedTransport(guard),
                timeout=httpx2.Timeout(CONNECT_S, read=READ_S),
                trust_env=False,
            ) as http,
            streamable_http_client(spec.url or "", http_client=http) as (reader, writer),
        ):
            yield _Watched(reader, on_end), writer

    return open_http if spec.url else open_stdio


def _command(spec: McpServerSpec, env: Mapping[str, str]) -> list[str]:
    """Return how to start the server's process, which is looked for in its own PATH."""
    named = spec.command or ""
    command = shutil.which(named, path=env.get("PATH", os.defpath))
    if command is None:
        raise ToolError(f"there is no command {named!r} to start the MCP server {spec.name!r} with")
    return [command, *spec.args]


class _Watched:
    """The stream of a server's messages, which says when it is over.

    Nothing else tells of a server's death before the next call would have failed.
    """

    def __init__(self, stream: ReadStream[Message], on_end: OnEnd) -> None:
        self._stream = stream
        self._on_end = on_end

    @property
    def last_context(self) -> object:
        """The context that the last message was sent in, which the SDK asks for."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Message:
        """Return the next message."""
        return await self._stream.receive()

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        return await self._stream.__anext__()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        self._on_end(None)
        return await self._stream.__aexit__(kind, error, trace)


class _GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests to judged addresses, and reads bounded answers."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._wire = httpx2.AsyncHTTPTransport(trust_env=False)
        self._events_due_s = 0.0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the answer; that of a tool's call is one as well where it broke off.

        The SDK would end the connection for an error here, under every other call.
        """
        if request.method == "GET":
            await self._await_turn()
        method = await _method(request)
        if method == CANCELLED:
            return await self._told(request)
        if method != "tools/call":
            return await self._judged(request)
        try:
            return await _whole(await self._judged(request))
        except (EgressError, httpx2.HTTPError) as error:
            why = str(error) or type(error).__name__
            told = {"code": mcp_types.CONNECTION_CLOSED, "message": why}
            return httpx2.Response(502, json={"jsonrpc": "2.0", "id": None, "error": told})

    async def aclose(self) -> None:
        await self._wire.aclose()

    async def _await_turn(self) -> None:
        """Have events asked for so many times a second at most.

        The SDK does it again as soon as the server wants that, which may be at once and for ever.
        """
        now_s = asyncio.get_running_loop().time()
        turn_s = max(self._events_due_s, now_s)
        self._events_due_s = turn_s + EVENTS_S
        await asyncio.sleep(turn_s - now_s)

    async def _told(self, request: httpx2.Request) -> httpx2.Response:
        """Tell of a cancellation, if the server hears of it at once: further calls wait for this.

        Whoever was stuck with a call may well be deaf to its end, and no call is sent before.
        """
        limits = dict.fromkeys(("connect", "read", "write", "pool"), NOTICE_S)
        request.extensions = {**request.extensions, "timeout": limits}
        with suppress(EgressError, httpx2.HTTPError):
            await (await self._judged(request)).aclose()
        return httpx2.Response(202)

    async def _judged(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        self._guard.check(URL(str(url)))
        port = url.port or (443 if url.scheme == "https" else 80)
        *others, last = await self._guard.addresses(url.host, port)
        for address in others:
            try:
                return await self._send(request, address)
            except httpx2.ConnectError:
                continue  # Nothing was sent yet.
        return await self._send(request, last)

    async def _send(self, request: httpx2.Request, address: str) -> httpx2.Response:
        pinned = httpx2.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,  # With the Host of the name.
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": request.url.host},
        )
        answer = await self._wire.handle_async_request(pinned)
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            await answer.aclose()
            raise EgressError(f"{request.url.host} answered compressed, though asked not to")
        assert isinstance(answer.stream, httpx2.AsyncByteStream)
        return httpx2.Response(
            answer.status_code,
            headers=answer.headers,
            stream=_Bounded(answer.stream, request.url.host),
            extensions=answer.extensions,
        )


async def _method(request: httpx2.Request) -> str:
    """Return which method of MCP is asked for, if one is."""
    asked = json.loads(await request.aread()) if request.method == "POST" else None
    return str(asked.get("method")) if isinstance(asked, dict) else ""


async def _whole(answer: httpx2.Response) -> httpx2.Response:
    """Return the answer with its body read, unless it comes as events."""
    if answer.headers.get("content-type", "").lower().startswith("text/event-stream"):
        return answer
    try:
        body = await answer.aread()
    finally:
        await answer.aclose()
    return httpx2.Response(answer.status_code, headers=answer.headers, content=body)


class _Bounded(httpx2.AsyncByteStream):
    """An answer's body, up to a bound."""

    def __init__(self, stream: httpx2.AsyncByteStream, host: str) -> None:
        self._stream = stream
        self._host = host

    async def __aiter__(self) -> AsyncIterator[bytes]:
        room = ANSWER_BYTES_MAX
        async for part in self._stream:
            room -= len(part)
            if room < 0:
                raise EgressError(f"{self._host} answered more than {ANSWER_BYTES_MAX} bytes")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
