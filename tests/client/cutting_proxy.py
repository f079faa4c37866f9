"""A TCP proxy that breaks each connection after so many bytes of the server's answer."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

PIECE_BYTES_MAX = 65_536


@dataclass(slots=True)
class CuttingProxy:
    """Where it listens, what the next connections may carry, and what came of them so far.

    Each new connection takes the next budget, in bytes of its answers; without one it is whole.
    """

    base_url: str
    budgets: Iterator[int]
    cuts: int = 0
    passed_bytes: int = 0


@asynccontextmanager
async def cutting(base_url: str, budgets: Iterable[int] = ()) -> AsyncIterator[CuttingProxy]:
    """Stand before the server; whatever was opened on the way is closed afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        proxy = CuttingProxy(f"http://127.0.0.1:{listening.getsockname()[1]}", iter(budgets))
        serving = asyncio.create_task(_serve(proxy, listening, _address_of(base_url)))
        try:
            yield proxy
        finally:
            serving.cancel()
            await asyncio.wait([serving])
    # Whoever is cancelled has no error to tell: this raises what went wrong before.
    if not serving.cancelled():
        serving.result()


def _address_of(base_url: str) -> tuple[str, int]:
    parts = urlsplit(base_url)
    assert parts.hostname
    assert parts.port
    return parts.hostname, parts.port


# Plain sockets, each closed by who opened it: a task that is cancelled before its first step, as
# those of asyncio's stream server may be, closes nothing.
async def _serve(proxy: CuttingProxy, listening: socket.socket, there: tuple[str, int]) -> None:
    loop = asyncio.get_running_loop()
    with ExitStack() as opened:
        async with asyncio.TaskGroup() as connections:
            while True:
                client, _ = await loop.sock_accept(listening)
                opened.enter_context(client)
                connections.create_task(_connect(proxy, client, there))


async def _connect(proxy: CuttingProxy, client: socket.socket, there: tuple[str, int]) -> None:
    """Pass bytes between both until one hangs up, or the budget is spent."""
    with client, socket.socket() as server, suppress(OSError):
        server.setblocking(False)
        await asyncio.get_running_loop().sock_connect(server, there)
        asking = asyncio.create_task(_ask(client, server))
        try:
            await _answer(proxy, server, client)
        finally:
            asking.cancel()
            await asyncio.wait([asking])


async def _ask(client: socket.socket, server: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while piece := await loop.sock_recv(client, PIECE_BYTES_MAX):
            await loop.sock_sendall(server, piece)
        server.shutdown(socket.SHUT_WR)


async def _answer(proxy: CuttingProxy, server: socket.socket, client: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    budget = next(proxy.budgets, None)
    while budget != 0 and (piece := await loop.sock_recv(server, budget or PIECE_BYTES_MAX)):
        proxy.passed_bytes += len(piece)
        await loop.sock_sendall(client, piece)
        budget = None if budget is None else budget - len(piece)
    proxy.cuts += budget == 0
