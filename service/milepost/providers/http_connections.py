"""The connections to vendors: made where none is free, and kept for the next request."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from aiohappyeyeballs import AddrInfoType, start_connection

from milepost.providers.http_connection import Connection

CONNECT_S_MAX = 10.0
KEPT_S_MAX = 60.0
# RFC 8305, section 5: how much sooner an address is tried than the next of the other family.
_NEXT_ADDRESS_S = 0.25

Resolve = Callable[[str, int], Awaitable[Sequence[AddrInfoType]]]
"""Finds the addresses of a host."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Whom a connection leads to. `host` is written as it goes out."""

    host: str
    port: int
    tls: bool


class Connections:
    """Hands connections out, and keeps those that can be asked again for about `kept_s`."""

    def __init__(self, resolve: Resolve | None = None, *, kept_s: float = KEPT_S_MAX) -> None:
        self._resolve = resolve or _resolved
        self._kept_s = kept_s
        self._free: dict[Origin, list[Connection]] = {}
        self._tls: ssl.SSLContext | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._is_closed = False

    def kept(self, origin: Origin) -> Connection | None:
        """Return the connection that was free last, if there is one."""
        free = self._free.get(origin)
        while free:
            connection = free.pop()
            if connection.is_open:
                return connection
        return None

    async def fresh(self, origin: Origin) -> Connection:
        """Return a new connection. Raises `OSError` where nobody is reached in time."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                found = await self._resolve(origin.host, origin.port)
                reached = await start_connection(
                    found, happy_eyeballs_delay=_NEXT_ADDRESS_S, interleave=1, loop=loop
                )
                return await self._spoken_to(origin, reached, loop)
        except TimeoutError as error:
            why = str(error) or f"no connection within {CONNECT_S_MAX:g} s"
            raise ConnectionError(why) from error

    def close(self) -> None:
        """Close those that are free, and later those that become so."""
        self._is_closed = True
        if self._sweeping:
            self._sweeping.cancel()
        for free in self._free.values():
            for connection in free:
                connection.abort()
        self._free.clear()

    async def _spoken_to(
        self, origin: Origin, reached: socket.socket, loop: asyncio.AbstractEventLoop
    ) -> Connection:
        reached.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        try:
            if origin.tls and self._tls is None:
                # To read whom to trust takes tens of milliseconds.
                self._tls = await asyncio.to_thread(ssl.create_default_context)
            _, connection = await loop.create_connection(
                lambda: Connection(loop, lambda free: self._keep(origin, free)),
                sock=reached,
                ssl=self._tls if origin.tls else None,
                server_hostname=origin.host if origin.tls else None,
            )
        except BaseException:
            reached.close()
            raise
        return connection

    def _keep(self, origin: Origin, connection: Connection) -> None:
        if self._is_closed:
            connection.abort()
            return
        connection.free_since = connection.loop.time()
        self._free.setdefault(origin, []).append(connection)
        if self._sweeping is None:
            self._sweeping = connection.loop.call_later(self._kept_s, self._sweep, connection.loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what nobody asked for long: the server, or somebody between, does so as well."""
        long_ago = loop.time() - self._kept_s
        self._sweeping = None
        for origin, free in list(self._free.items()):
            for connection in free:
                if connection.free_since <= long_ago:
                    connection.abort()
            self._free[origin] = [connection for connection in free if connection.is_open]
            if not self._free[origin]:
                del self._free[origin]
        if self._free:
            self._sweeping = loop.call_later(self._kept_s, self._sweep, loop)


async def _resolved(host: str, port: int) -> Sequence[AddrInfoType]:
    loop = asyncio.get_running_loop()
    return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
