"""A real HTTP server that answers as a test tells it to, and remembers what it was asked."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came in."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class WebServer:
    """Where it listens, and what it was asked."""

    port: int
    asked: list[Asked] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Its address, as a URL without a path."""
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def web_server(answer: Answer) -> AsyncIterator[WebServer]:
    """Serve on a free port of loopback; every request is answered by `answer`."""
    server = WebServer(0)

    async def remembered(request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = await request.read()
        server.asked.append(Asked(request.method, request.raw_path, headers, body))
        return await answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", remembered)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()


def saying(value: Any, status: int = 200) -> Answer:
    """Return what answers every request with this JSON."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(value, status=status)

    return answer
