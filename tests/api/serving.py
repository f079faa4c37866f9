"""A real service in the test's own event loop, on a socket, and clients that talk to it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from socket import socket
from typing import Any

import httpx2
import uvicorn

from milepost.api.bounded_http import BoundedHttp
from milepost.api.service import Api
from milepost.cli.keys import create_key
from milepost.settings import Settings
from milepost.wiring import Process, process
from tests.contract import lists

TIMEOUT_S = 20.0
STOP_S = 3
AT_WORK_S = 10.0
SECRET_KEY = "a secret key of the tests' own"
TENANTS = ("acme", "globex")
NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Whom clients trust that speak to this machine, without TLS: to read the usual list takes long."""


class _Server(uvicorn.Server):
    """uvicorn that says when it listens, stops when it is told to, and leaves signals alone.

    Its own looks ten times a second whether it is to stop, which thousands of tests would wait for.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()
        self.stops = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to pytest."""
        yield

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        self.listens.set()

    async def main_loop(self) -> None:
        """Serve until told to stop."""
        await self.on_tick(0)
        await self.stops.wait()

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Let those finish who are at it; where nobody is, there is nothing to wait for."""
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0)  # Those that have nothing to say are gone after that.
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
            return
        for server in self.servers:
            server.close()
            await server.wait_closed()


@dataclass(frozen=True, slots=True)
class Service:
    """A running service; `app` is what it serves."""

    base_url: str
    process: Process
    server: uvicorn.Server

    @property
    def app(self) -> Api:
        """The API."""
        return self.process.app

    @asynccontextmanager
    async def client(self, key: str | None = None) -> AsyncIterator[httpx2.AsyncClient]:
        """Return a client that sends this key."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        async with httpx2.AsyncClient(
            base_url=self.base_url,
            headers=headers,
            timeout=TIMEOUT_S,
            verify=NOBODY,
            event_hooks={"response": [_require_promised]},
        ) as client:
            yield client


async def _require_promised(answer: httpx2.Response) -> None:
    """Fail the test that is answered with a status that the contract does not list there."""
    request, status = answer.request, answer.status_code
    assert lists(request.method, request.url.path, status), (
        f"{request.method} {request.url.path} answers {status}, which openapi.yaml does not list"
    )


@dataclass(frozen=True, slots=True)
class KeyedService:
    """A service that asks for keys, with a client of full rights for each of two tenants."""

    service: Service
    acme: httpx2.AsyncClient
    globex: httpx2.AsyncClient
    _clients: AsyncExitStack = field(repr=False)

    async def holding(
        self, *scopes: str, subject: str | None = None, tenant: str = "acme"
    ) -> httpx2.AsyncClient:
        """Return a client with a new key of these scopes."""
        admin = self.acme if tenant == "acme" else self.globex
        body = {"name": f"{tenant} {' '.join(scopes)}", "scopes": scopes, "subject": subject}
        made = await admin.post("/v1/keys", json=body)
        assert made.status_code == 201, made.text
        return await self.with_key(made.json()["key"])

    async def with_key(self, key: str | None) -> httpx2.AsyncClient:
        """Return a client with this key, or with none."""
        return await self._clients.enter_async_context(self.service.client(key))


def settings_for(database_url: str, **changes: Any) -> Settings:
    """Return settings for a test: nothing is slow, and nothing is shared."""
    given: dict[str, Any] = {
        "database_url": database_url,
        "demo_word_delay_s": 0,
        "drain_s": 1,
        "egress_allow": "127.0.0.2",  # Of this machine, and nobody listens there.
        "pool_max": 4,
        "secret_key": SECRET_KEY,
        "slots": 8,
        "tool_threads": 2,
        **changes,
    }
    return Settings(**given)


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Service]:
    """Run a service on a free port until the test is done with it."""
    async with process(settings) as running:
        server = _Server(
            uvicorn.Config(
                running.app,
                http=BoundedHttp,
                port=0,
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=STOP_S,
            )
        )
        serves = asyncio.create_task(server.serve())
        await server.listens.wait()
        port = server.servers[0].sockets[0].getsockname()[1]
        await _at_work(running)
        try:
            yield Service(f"http://127.0.0.1:{port}", running, server)
        finally:
            running.drain()
            server.stops.set()
            await serves


async def _at_work(running: Process) -> None:
    """Wait for the process's own worker.

    Where it is alone it begins by declaring all others dead, and so those that a test registers.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(AT_WORK_S):
            while running.shifts._worker is None:  # noqa: ASYNC110 - nobody rings a bell for tests
                await asyncio.sleep(0.002)


@asynccontextmanager
async def serving_tenants(settings: Settings) -> AsyncIterator[KeyedService]:
    """Run a service that has an administrator's key for each of two tenants."""
    keys = [
        create_key(settings, tenant=tenant, name=f"{tenant}'s admin", scopes=["admin"])
        for tenant in TENANTS
    ]
    async with serving(settings) as service, AsyncExitStack() as clients:
        acme, globex = [await clients.enter_async_context(service.client(key)) for key in keys]
        yield KeyedService(service, acme, globex, clients)
