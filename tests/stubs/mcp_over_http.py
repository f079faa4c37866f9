"""An MCP server over HTTP, made by hand: a test says what comes of calling its one tool, `act`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.stubs.web_server import WebServer, web_server

Act = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]
"""Answers a call, which is a request with the message that it brought."""

ANYTHING = {"type": "object", "additionalProperties": True}


@asynccontextmanager
async def mcp_over_http(
    act: Act, *, deaf_to_cancellation: bool = False, events: bytes | None = None
) -> AsyncIterator[WebServer]:
    """Serve on a free port of loopback. Who is deaf to a cancellation never answers one.

    `events` are what who listens is told, before the stream ends.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "GET" and events is not None:
            return web.Response(body=events, content_type="text/event-stream")
        if request.method != "POST":
            return web.Response(status=405)
        asked = await request.json()
        if deaf_to_cancellation and asked["method"] == "notifications/cancelled":
            await asyncio.Event().wait()
        if "id" not in asked:
            return web.Response(status=202)
        match asked["method"]:
            case "initialize":
                me = {
                    "protocolVersion": asked["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "by hand", "version": "1"},
                }
                opened = result(asked, me)
                if events is not None:  # Nobody listens outside of a session.
                    opened.headers["mcp-session-id"] = "session-of-Zanzibar"
                return opened
            case "tools/list":
                return result(asked, {"tools": [{"name": "act", "inputSchema": ANYTHING}]})
            case "tools/call":
                return await act(request, asked)
            case _:
                error = {"code": -32601, "message": "not known"}
                return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "error": error})

    async with web_server(answer) as server:
        yield server


def told(asked: dict[str, Any], text: str) -> web.StreamResponse:
    """Return the answer that a call came to this text."""
    return result(asked, {"content": [{"type": "text", "text": text}]})


def result(asked: dict[str, Any], value: dict[str, Any]) -> web.StreamResponse:
    """Return the answer to what was asked."""
    return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "result": value})
