"""Clients that repeat themselves until they are answered, at whichever process is there."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from milepost.client import Milepost, Patience

ANSWER_S = 15.0
SILENCE_S = 25.0  # A stream that lives has a heartbeat every ten seconds.
AGAIN_S = 0.1
# As good as endless: a process that is gone comes back at the same address.
PATIENCE = Patience(tries_max=300, wait_s=0.1, wait_s_max=1.0)
_JSON = frozenset({"application/json", "application/problem+json"})
LOST = (aiohttp.ClientError, TimeoutError, OSError)


class RefusedError(Exception):
    """The server says no, and that asking again will not help."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(f"{status} {problem}")
        self.status = status
        self.code = str(problem.get("code"))


@dataclass(eq=False, slots=True)
class Doors:
    """The API processes' addresses, and a client of ours for each.

    `answers` counts what was answered besides what was asked for, by status and code.
    """

    urls: Sequence[str]
    chance: random.Random
    http: aiohttp.ClientSession
    own: Sequence[Milepost]
    answers: Counter[str] = field(default_factory=Counter)

    def one(self) -> str:
        """Return an address."""
        return self.chance.choice(self.urls)

    async def get(self, path: str) -> dict[str, Any]:
        """Ask until there is an answer."""
        return await self.ask("GET", path, None, {})

    async def post(self, path: str, body: dict[str, Any], key: str | None = None) -> dict[str, Any]:
        """Ask until there is an answer, under one idempotency key if there is one."""
        return await self.ask("POST", path, body, {"Idempotency-Key": key} if key else {})

    async def ask(
        self, method: str, path: str, body: dict[str, Any] | None, headers: dict[str, str]
    ) -> dict[str, Any]:
        """Ask one process after the other until there is an answer. Raises `RefusedError`."""
        while True:
            try:
                status, said = await self._once(method, path, body, headers)
            except LOST as lost:
                self.answers[f"none: {type(lost).__name__}"] += 1
                await asyncio.sleep(AGAIN_S)
                continue
            if status < 300:
                return said
            self.answers[f"{status} {said.get('code')}"] += 1
            if not said.get("retryable"):
                raise RefusedError(status, said)
            await asyncio.sleep(AGAIN_S)

    @asynccontextmanager
    async def stream(self, run_id: str, after: str | None) -> AsyncIterator[aiohttp.StreamReader]:
        """Give a run's stream from behind `after`, at one of the processes. Raises `LOST`."""
        headers = {"Last-Event-ID": after} if after else {}
        url = f"{self.one()}/v1/runs/{run_id}/events"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_S, sock_read=SILENCE_S)
        async with self.http.get(url, headers=headers, timeout=timeout) as response:
            if response.status != 200:
                self.answers[f"{response.status} (stream)"] += 1
                raise aiohttp.ClientError(f"{response.status}: {await response.text()}")
            yield response.content

    async def _once(
        self, method: str, path: str, body: dict[str, Any] | None, headers: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        content = None if body is None else orjson.dumps(body)
        if content is not None:
            headers = {**headers, "Content-Type": "application/json"}
        async with self.http.request(
            method, self.one() + path, data=content, headers=headers, timeout=timeout
        ) as response:
            said = await response.read() or b"{}"
            if response.content_type not in _JSON:
                # Whatever said this knows no problems: a bug, and no reason to stop asking.
                return response.status, {"code": said[:80].decode(), "retryable": True}
            answer: dict[str, Any] = orjson.loads(said)
            return response.status, answer


@asynccontextmanager
async def doors(urls: Sequence[str], chance: random.Random) -> AsyncIterator[Doors]:
    """Give a way to all of the processes."""
    connector = aiohttp.TCPConnector(limit=0)
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        own = [await stack.enter_async_context(Milepost(url, patience=PATIENCE)) for url in urls]
        yield Doors(urls, chance, http, own)
