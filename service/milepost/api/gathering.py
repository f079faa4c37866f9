"""A transport that sends together what is written within one turn of the event loop."""

import asyncio
from typing import Any

GATHERED_BYTES_MAX = 16_384


class Gathering(asyncio.Transport):
    """Around another transport. Who writes more than a little in one turn meets its patience.

    A response's head goes out with its first piece, and its last piece with its end: uvloop makes a
    system call of each write, which wakes whoever listens, for 25 microseconds of CPU.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []
        self._bytes = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send `data` before the turn is over."""
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(bytes(data))
        self._bytes += len(data)
        if self._bytes > GATHERED_BYTES_MAX:
            self._send()

    def close(self) -> None:
        """Send what was written, then close."""
        self._send()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Say whether it is closed, or about to be."""
        return self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        return self._bytes + self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection."""
        return self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Have another protocol told of what comes."""
        self._transport.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that is told of what comes."""
        return self._transport.get_protocol()

    def pause_reading(self) -> None:
        """Take nothing more for now."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take what comes again."""
        self._transport.resume_reading()

    def _send(self) -> None:
        if self._written:
            written, self._written, self._bytes = b"".join(self._written), [], 0
            # Who hung up within the turn is told nothing more: uvloop would raise.
            if not self._transport.is_closing():
                self._transport.write(written)
