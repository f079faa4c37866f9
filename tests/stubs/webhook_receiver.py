"""A real HTTP server that takes webhooks as a test tells it to, and checks them for itself."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from tests.stubs.web_server import Asked, web_server

ARRIVAL_S = 10.0


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it arrived."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def id(self) -> str:
        """What it is called, whenever it is sent."""
        return self.headers["webhook-id"]

    @property
    def body(self) -> dict[str, Any]:
        """What it says."""
        said: dict[str, Any] = orjson.loads(self.raw)
        return said

    @property
    def type(self) -> str:
        """What it is about."""
        return str(self.body["type"])

    def signed_with(self, *secrets: str) -> list[bool]:
        """Say for each secret whether a receiver that knows it would take this message.

        After the specification of Standard Webhooks, by hand.
        """
        signed = f"{self.id}.{self.headers['webhook-timestamp']}.".encode() + self.raw
        sent = {each.partition(",")[2] for each in self.headers["webhook-signature"].split(" ")}
        return [_signature(secret, signed) in sent for secret in secrets]


def _signature(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


@dataclass
class Receiver:
    """Where it listens, what arrived, and what it answers: each of `answers`, then 204."""

    url: str
    answers: list[int] = field(default_factory=list)
    says: str = ""
    arrived: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)
    asked: list[Asked] = field(default_factory=list)
    held: asyncio.Event | None = None

    async def next(self) -> Message:
        """Return the next message, which must come soon."""
        async with asyncio.timeout(ARRIVAL_S):
            return await self.arrived.get()

    async def of_type(self, kind: str) -> Message:
        """Return the next message of this type; those before it are dropped."""
        while (message := await self.next()).type != kind:
            pass
        return message


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    """Receive on a free port of loopback."""
    there = Receiver("")

    async def answer(request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        status = there.answers.pop(0) if there.answers else 204
        there.arrived.put_nowait(Message(request.path, headers, await request.read()))
        if there.held is not None:
            await there.held.wait()
        moved = {"location": "/elsewhere"} if status // 100 == 3 else {}
        return web.Response(status=status, text=there.says or None, headers=moved)

    async with web_server(answer) as server:
        there.url, there.asked = f"{server.url}/hook", server.asked
        yield there
