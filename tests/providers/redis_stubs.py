"""What tests of things kept in Redis share: clocks that are set, and a Redis that is not there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import Redis

from milepost.providers import cache_redis
from milepost.providers.redis_asking import Asking

PATIENT_S = 10.0
"""How long a Redis on a busy machine may take here: who is not answered goes on without it."""


class Clock:
    """A clock in seconds that moves when it is told to."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def ms(self) -> int:
        """Return the same time in milliseconds."""
        return round(self.now * 1000)

    async def sleep(self, seconds: float) -> None:
        """Move on by so much, without taking the time."""
        self.now += seconds


def patient_client(url: str) -> Redis:
    """Return a client as the service makes it, but in no hurry."""
    return cache_redis.connect(url, within_s=PATIENT_S)


def patient_asking(clock: Clock) -> Asking:
    """Return who asks Redis as the service does, but in no hurry."""
    return Asking(clock=clock, within_s=PATIENT_S)


@asynccontextmanager
async def deaf_server() -> AsyncIterator[str]:
    """Give the address of a server that takes connections and answers nothing."""
    closing = asyncio.Event()

    async def listen(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await closing.wait()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        closing.set()
