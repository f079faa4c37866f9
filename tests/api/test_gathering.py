"""What is written within one turn of the event loop goes out together, to who is still there."""

import asyncio
from typing import cast

import uvloop

from milepost.api.gathering import Gathering


class Wrote(asyncio.Protocol):
    """Writes a word as soon as somebody connects, and hangs up within the same turn if it is to."""

    def __init__(self, *, hangs_up: bool) -> None:
        self._hangs_up = hangs_up

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Write."""
        # uvloop's own is no subclass of it.
        gathering = Gathering(cast(asyncio.Transport, transport), asyncio.get_running_loop())
        gathering.write(b"good ")
        gathering.write(b"day")
        if self._hangs_up:
            gathering.abort()


async def read_from(*, hangs_up: bool) -> tuple[bytes, list[str]]:
    """Return what a client read, and what the event loop complained of."""
    loop = asyncio.get_running_loop()
    complaints: list[str] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
    server = await loop.create_server(lambda: Wrote(hangs_up=hangs_up), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        read = b"" if hangs_up else await reader.readexactly(8)
        if hangs_up:
            await reader.read()
    except ConnectionResetError:
        read = b""
    finally:
        writer.close()
        server.close()
    return read, complaints


def test_what_is_written_in_one_turn_is_sent() -> None:
    assert uvloop.run(read_from(hangs_up=False)) == (b"good day", [])


def test_what_was_written_to_somebody_who_is_gone_is_dropped_in_silence() -> None:
    assert uvloop.run(read_from(hangs_up=True)) == (b"", [])
