"""A TCP proxy that breaks the network between two processes in the ways in which networks break.

What a real network loses is sent again by TCP, so bytes that are held here come late, or never if
the connection is reset afterwards; they are not dropped out of the middle of a stream.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal
from urllib.parse import urlsplit

PIECE_BYTES = 65_536
SLOW_S = 0.05

Fault = Literal["cut", "blackhole", "unheard", "unanswered", "slow"]
FAULTS: tuple[Fault, ...] = ("cut", "blackhole", "unheard", "unanswered", "slow")


class Network:
    """The way from some processes to one server.

    `cut` breaks and refuses connections; `blackhole` lets nothing through; `unheard` holds what
    clients say, `unanswered` what the server answers; `slow` delays each piece.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        self._target = (parts.hostname, parts.port)
        self._parts = parts
        self._fault: Fault | None = None
        self._healed = asyncio.Event()
        self._healed.set()
        self._passing: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """The server's URL by this way."""
        user, at, _ = self._parts.netloc.rpartition("@")
        return self._parts._replace(netloc=f"{user}{at}127.0.0.1:{self._port}").geturl()

    async def open(self) -> None:
        """Listen on a free port of loopback."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Take no more connections, and break those there are."""
        assert self._server is not None
        self._server.close()
        await self._break()

    async def fail(self, fault: Fault, seconds: float, *, reset: bool) -> None:
        """Be broken for so long; `reset` breaks the connections at the end of it, too."""
        self._fault = fault
        self._healed.clear()
        try:
            if fault == "cut":
                await self._break()
            await asyncio.sleep(seconds)
        finally:
            self._fault = None
            self._healed.set()
        if reset:
            await self._break()

    async def _break(self) -> None:
        for task in self._passing:
            task.cancel()
        if self._passing:
            await asyncio.wait(self._passing)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        writers, broken = [writer], self._fault == "cut"
        try:
            if not broken:
                await self._wait_if("blackhole", "unheard")
                answers, there = await asyncio.open_connection(*self._target)
                writers.append(there)
                await self._pass_both(reader, writer, answers, there)
        except asyncio.CancelledError:
            broken = True
        except OSError:
            pass  # The server is away: whoever asked is told by the end of the connection.
        finally:
            for each in writers:
                _leave(each, broken=broken)
            self._passing.discard(task)

    async def _pass_both(
        self,
        asked: asyncio.StreamReader,
        asking: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        there: asyncio.StreamWriter,
    ) -> None:
        """Pass bytes both ways until either side hangs up."""
        ways = {
            asyncio.create_task(self._pass(asked, there, "unheard")),
            asyncio.create_task(self._pass(answers, asking, "unanswered")),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, held_by: Fault
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                await self._wait_if("blackhole", held_by)
                if self._fault == "slow":
                    await asyncio.sleep(SLOW_S)
                writer.write(piece)
                await writer.drain()

    async def _wait_if(self, *faults: Fault) -> None:
        if self._fault in faults:
            await self._healed.wait()


def _leave(writer: asyncio.StreamWriter, *, broken: bool) -> None:
    """End a connection: with a reset if it was broken, as a server's death would."""
    if broken and (connected := writer.get_extra_info("socket")) is not None:
        with suppress(OSError):  # It may have been closed meanwhile.
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def network(url: str) -> AsyncIterator[Network]:
    """Give a way to the server at `url`."""
    opened = Network(url)
    await opened.open()
    try:
        yield opened
    finally:
        await opened.close()
