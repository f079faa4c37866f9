"""A TCP proxy that breaks each connection after so many bytes of the server's answer."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass

import httpx2


@dataclass(slots=True)
class CuttingProxy:
    """Where it listens, and how many connections it has broken."""

    base_url: str
    cuts: int = 0


@asynccontextmanager
async def cutting(base_url: str, budgets: Iterator[int]) -> AsyncIterator[CuttingProxy]:
    """Stand before the server; the nth connection gets the nth budget, in bytes of its answer."""
    there = httpx2.URL(base_url)
    proxy = CuttingProxy("")
    accepted: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        accepted.add(task)
        # A task of asyncio's server must not end cancelled: Python 3.11 would call that an error.
        with closing(writer), suppress(asyncio.CancelledError):
            upstream, upward = await asyncio.open_connection(there.host, there.port)
            with closing(upward):
                async with asyncio.TaskGroup() as tasks:
                    asking = tasks.create_task(_pass(reader, upward))
                    proxy.cuts += await _pass_some(upstream, writer, next(budgets))
                    asking.cancel()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        proxy.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield proxy
        server.close()
        for task in accepted:
            task.cancel()
        await asyncio.wait(accepted)


async def _pass_some(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: int
) -> bool:
    """Pass bytes on until there are no more, or the budget is spent; say whether it was."""
    with suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece[:budget])
            await writer.drain()
            budget -= len(piece)
            if budget <= 0:
                return True
    return False


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
