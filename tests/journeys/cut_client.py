"""A client of a run's or a session's stream whose connections break wherever it hurts most."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Generic, Protocol, TypeVar

from tests.live.client import Sent, parsed

READ_BYTES = 65_536
PATIENCE_S = 60.0
CUT_AFTER_MAX = 4

_NO_CONTENT = 204


class Cut(StrEnum):
    """Where a connection breaks."""

    REQUEST = "before anything came"
    HEAD = "before the first frame"
    EVENT = "behind an event"
    DELTA = "behind a delta"
    COMMENT = "behind a comment"
    ID = "behind an id"
    INSIDE = "inside of a frame"
    END = "behind the last event"


class Body:
    """What a chunked response carries, taken apart into frames and comments as it comes."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._raw = b""
        self._text = b""

    async def head(self) -> int:
        """Return the response's status, once its head has come."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1])

    async def unit(self) -> bytes:
        """Return the next whole frame or comment; nothing at the end."""
        while not (size := _unit_size(self._text)):
            if not await self._receive():
                assert not self._text, f"the stream breaks off: {self._text!r}"
                return b""
        unit, self._text = self._text[:size], self._text[size:]
        return unit

    async def _receive(self) -> bool:
        """Take in what comes next; return False at the end."""
        while True:
            size, _, rest = self._raw.partition(b"\r\n")
            if rest and len(rest) >= (length := int(size, 16)) + 2:
                self._text += rest[:length]
                self._raw = rest[length + 2 :]
                return length > 0
            piece = await self._reader.read(READ_BYTES)
            assert piece, "the connection broke by itself"
            self._raw += piece


def _unit_size(text: bytes) -> int:
    """Return how long the first frame or comment is; 0 where its end has not come."""
    if text.startswith(b":"):
        return text.find(b"\n") + 1
    end = text.find(b"\n\n")
    return end + 2 if end >= 0 else 0


class Reader(Protocol):
    """What takes in a stream, and knows where it is."""

    position: str

    @property
    def types(self) -> list[str]:
        """Of which types the events were, in their order."""

    def take(self, sent: Sent) -> None:
        """Take in one event."""


C = TypeVar("C", bound=Reader)


@dataclass(slots=True)
class CutClient(Generic[C]):
    """Follows a stream to its end, over connections that it breaks itself, at several servers.

    It resumes as `Client` does, which fails at once where anything is lost or doubled. `runs` is
    how many end in the stream.
    """

    ports: tuple[int, ...]
    path: str
    chance: Random
    cuts: Counter[Cut]
    client: C
    runs: int = 1

    async def follow(self) -> C:
        """Read the stream to its end; return what was read."""
        async with asyncio.timeout(PATIENCE_S):
            while await self._connect(self.chance.choice(tuple(Cut))):
                pass
        return self.client

    async def _connect(self, cut: Cut) -> bool:
        """Read on one connection until it breaks; say whether there may be more to read."""
        async with self._asked() as reader:
            if cut is Cut.REQUEST:
                self.cuts[cut] += 1
                return True
            body = Body(reader)
            status = await body.head()
            if status == _NO_CONTENT:
                return False
            assert status == 200, status
            return await self._read(body, cut)

    async def _read(self, body: Body, cut: Cut) -> bool:
        """Take frames until it is time to break, or nothing follows."""
        left = self.chance.randint(1, CUT_AFTER_MAX)
        if cut is Cut.HEAD:
            self.cuts[cut] += 1
            return True
        while unit := await body.unit():
            kind = self._kind_of(unit)
            left -= kind is cut or cut in {Cut.ID, Cut.INSIDE}
            if cut in {Cut.ID, Cut.INSIDE} and left <= 0 and kind is not Cut.COMMENT:
                self.cuts[cut] += 1  # What has come of the frame is worth nothing.
                return True
            self._take(unit)
            if kind is cut and (left <= 0 or cut is Cut.END):
                self.cuts[cut] += 1
                return True
        return self.client.types.count("run.completed") < self.runs

    def _kind_of(self, unit: bytes) -> Cut:
        if unit.startswith(b":"):
            return Cut.COMMENT
        if b"event: run.completed\n" in unit:
            return Cut.END
        return Cut.DELTA if b"event: message.delta\n" in unit else Cut.EVENT

    def _take(self, unit: bytes) -> None:
        for sent in parsed(unit):
            self.client.take(sent)

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[asyncio.StreamReader]:
        """Ask one of the servers for what comes behind our position; hang up rudely or not."""
        port = self.chance.choice(self.ports)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        position = self.client.position
        head = [f"GET {self.path} HTTP/1.1", f"host: 127.0.0.1:{port}"]
        if position not in {"", "0"}:
            head.append(f"last-event-id: {position}")
        writer.write("\r\n".join((*head, "", "")).encode())
        try:
            yield reader
        finally:
            if self.chance.random() < 0.5:
                writer.transport.abort()
            else:
                writer.close()
