"""A TCP proxy that can be cut, as a network or a server's death would cut it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Proxy:
    """Passes bytes between its own port and a target until `cut`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._passing: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._breaks_at: bytes | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port of loopback."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Break every connection and take no more."""
        assert self._server is not None
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening)
        await asyncio.sleep(0)  # Who is on the way in would be left half open by a closed server.
        self._server.close()
        for task in self._passing:
            task.cancel()
        if self._passing:
            await asyncio.wait(self._passing)

    def break_at(self, said: bytes) -> None:
        """Break the next connection on which this is said, before it arrives."""
        self._breaks_at = said

    def still(self) -> None:
        """Pass nothing any more, and tell nobody: connections stay, and new ones are taken."""
        self._flows.clear()

    def flow(self) -> None:
        """Pass on what came in meanwhile, and all that comes."""
        self._flows.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        try:
            there_reader, there_writer = await asyncio.open_connection(*self._target)
            with suppress(asyncio.CancelledError, OSError):
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._pass(reader, there_writer))
                    tasks.create_task(self._pass(there_reader, writer))
            there_writer.close()
        finally:
            writer.close()
            self._passing.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(65_536):
                await self._flows.wait()
                if self._breaks_at is not None and self._breaks_at in piece:
                    self._breaks_at = None
                    break
                writer.write(piece)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[str, Proxy]]:
    """Give the URL of a proxy to the server that `url` names."""
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    proxy = Proxy(parts.hostname, parts.port)
    await proxy.start()
    try:
        yield parts._replace(netloc=f"127.0.0.1:{proxy.port}").geturl(), proxy
    finally:
        await proxy.cut()
