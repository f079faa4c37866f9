"""What tests of things kept in Redis share: a Redis that is not there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from redis.asyncio import Redis

from milepost.providers import cache_redis
from milepost.providers.redis_asking import Asking
from tests.clock import Clock

PATIENT_S = 10.0
"""How long a Redis on a busy machine may take here: who is not answered goes on without it."""


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


@asynccontextmanager
async def scripted_server(*answers: bytes) -> AsyncIterator[str]:
    """Give the address of a server that greets, and then answers so; the last for ever.

    It is asked for one thing after the other, and does not read for what.
    """
    left = [b"+OK\r\n", *answers]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            writer.write(left.pop(0) if len(left) > 1 else left[0])
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"


class Relay:
    """Passes on what is `said` to a Redis, and what that answers, unless it `holds` the answers.

    `held` is set once there is one, so that what was asked for has been done by then. While it
    `doubles`, each answer comes twice.
    """

    def __init__(self, redis_url: str) -> None:
        parts = urlsplit(redis_url)
        self._host, self._port = parts.hostname, parts.port
        self.url = ""
        self.said = b""
        self.holds = self.doubles = False
        self.held = asyncio.Event()
        self._talks: set[asyncio.Task[None]] = set()

    async def welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk, and be remembered: a server that closes waits for nobody."""
        if task := asyncio.current_task():
            self._talks.add(task)
        await self.talk(reader, writer)

    async def end(self) -> None:
        """Wait until everybody has gone."""
        if self._talks:
            _, stayed = await asyncio.wait(self._talks, timeout=10)
            assert not stayed

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Stand between one client and the server, until either of them goes."""
        from_redis, to_redis = await asyncio.open_connection(self._host, self._port)
        asking = asyncio.create_task(self._pass_on(reader, to_redis))
        while answer := await from_redis.read(65_536):
            if self.holds:
                self.held.set()
            else:
                writer.write(answer * (1 + self.doubles))
        await asking
        writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while said := await reader.read(65_536):
                self.said += said
                writer.write(said)
        writer.close()


@asynccontextmanager
async def relaying(redis_url: str) -> AsyncIterator[Relay]:
    """Give a relay that can hold back what the Redis at `redis_url` answers."""
    relay = Relay(redis_url)
    server = await asyncio.start_server(relay.welcome, "127.0.0.1", 0)
    async with server:
        relay.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        yield relay
        await relay.end()
