"""What tests of things kept in Redis share: clocks that are set, and a Redis that is not there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


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
