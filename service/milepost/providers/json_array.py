"""The items of a JSON array that comes in pieces: how Gemini streams to who asks for no events."""

import re

from milepost.core.errors import ProviderError
from milepost.providers.sse import SSE_LINE_BYTES_MAX

_STRUCTURE = re.compile(rb'["{}\[\]]')
_IN_STRING = re.compile(rb'"|\\.', re.DOTALL)
_OPENING = b"{["


class JsonArrayItems:
    """Cuts a byte stream into the objects and arrays that a JSON array holds, across chunk borders.

    What stands between them is skipped, and so is all that follows the array. Whether an item is
    JSON is for its reader to say.
    """

    __slots__ = ("_at", "_begins", "_buffer", "_depth", "_quoted")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._begins = 0
        self._depth = 0
        self._quoted = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return what `chunk` completes. Raises `ProviderError` for an item without end."""
        self._buffer += chunk
        items = []
        while mark := self._next_mark():
            self._at = mark.end()
            if (item := self._read(mark[0])) is not None:
                items.append(item)
        self._forget()
        return items

    def end(self) -> list[bytes]:
        """Return nothing: an item that is not whole is none."""
        return []

    def _next_mark(self) -> re.Match[bytes] | None:
        return (_IN_STRING if self._quoted else _STRUCTURE).search(self._buffer, self._at)

    def _read(self, mark: bytes) -> bytes | None:
        """Return the item that `mark` ends, if it does."""
        if mark.startswith(b"\\"):
            return None
        if mark == b'"':
            self._quoted = not self._quoted
        elif mark in _OPENING:
            self._depth += 1
            if self._depth == 2:
                self._begins = self._at - 1
        else:
            self._depth -= 1
            if self._depth == 1:
                return bytes(self._buffer[self._begins : self._at])
        return None

    def _forget(self) -> None:
        """Drop what was read and belongs to no open item."""
        scanned = len(self._buffer) - (1 if self._half_escaped() else 0)
        kept = self._begins if self._depth >= 2 else scanned
        del self._buffer[:kept]
        self._begins, self._at = 0, scanned - kept
        if len(self._buffer) > SSE_LINE_BYTES_MAX:
            raise ProviderError(
                f"The vendor sent an item of more than {SSE_LINE_BYTES_MAX} bytes, which is no"
                " reply"
            )

    def _half_escaped(self) -> bool:
        """Say whether what is left to read is a backslash whose other half is yet to come."""
        return self._quoted and self._buffer.endswith(b"\\", self._at)
