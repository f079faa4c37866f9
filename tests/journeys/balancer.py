"""A balancer before several servers: each connection goes to the next one that takes it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

READ_BYTES = 65_536


@dataclass(slots=True)
class Balancer:
    """Passes on connections that come to `port`. Servers may come and go in `ports`."""

    ports: list[int]
    port: int = 0
    _taken: int = 0
    _passing: set["asyncio.Task[None]"] = field(default_factory=set)

    @property
    def base_url(self) -> str:
        """Where clients find it."""
        return f"http://127.0.0.1:{self.port}"

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until either side hangs up; with no server to be had, hang up."""
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                there, back = await self._next()
                try:
                    asking = asyncio.create_task(_pass(reader, back))
                    await _pass(there, writer)
                    asking.cancel()
                    await asyncio.wait({asking})
                finally:
                    back.close()
        finally:
            self._passing.discard(task)
            writer.close()

    async def close(self) -> None:
        """Hang up on everybody."""
        for task in self._passing:
            task.cancel()
        if self._passing:
            await asyncio.wait(self._passing)

    async def _next(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for _ in range(len(self.ports)):
            self._taken += 1
            with suppress(OSError):
                port = self.ports[self._taken % len(self.ports)]
                return await asyncio.open_connection("127.0.0.1", port)
        raise ConnectionRefusedError("no server takes connections")


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(READ_BYTES):
            writer.write(piece)
            await writer.drain()


@asynccontextmanager
async def balanced(*ports: int) -> AsyncIterator[Balancer]:
    """Give a balancer before the servers on these ports."""
    balancer = Balancer(list(ports))
    server = await asyncio.start_server(balancer.accept, "127.0.0.1", 0)
    balancer.port = server.sockets[0].getsockname()[1]
    try:
        yield balancer
    finally:
        server.close()
        await balancer.close()
