"""One client's tail of a run's log: resumable at any event, and from the middle of a message."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import cast

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from milepost.core.errors import InvalidError
from milepost.live.frames import Frame, ephemeral
from milepost.live.hub import Hub, LiveText, RunTail, TextKind
from milepost.store import log
from milepost.store.store import Store

HEARTBEAT_S = 10.0
HEARTBEAT = b": hb\n"  # One line end: with two, the official openai client trips over the next id.
RETRY = b"retry: 1500\n"
SEND_TIMEOUT_S = 30.0
RECONNECT_AFTER_MS = 500

_CURSOR = re.compile(r"(0|[1-9][0-9]{0,17})(?:~([A-Za-z0-9_]{1,64}):(0|[1-9][0-9]{0,17}))?")
_FIELDS: dict[TextKind, str] = {
    "message.delta": "message_id",
    "reasoning.delta": "message_id",
    "tool_call.progress": "call_id",
}


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a client is: behind event `seq`, and `offset` code points into a message."""

    seq: int = 0
    message_id: str | None = None
    offset: int = 0


def parse_cursor(text: str | None) -> Cursor:
    """Return the cursor that a frame's id is. Raises `InvalidError` for anything else."""
    if text is None or text == "":
        return Cursor()
    matched = _CURSOR.fullmatch(text)
    if matched is None:
        raise InvalidError(
            f"{text[:100]!r} is no position in a stream; send the id of the last event that you"
            " got, such as 42 or 42~msg_1:136",
            code="bad_cursor",
        )
    seq, message_id, offset = matched.groups()
    return Cursor(int(seq), message_id, int(offset or 0))


@dataclass(frozen=True, slots=True)
class Selection:
    """What a client wants to see: globs of event types, live text or not, and where to stop."""

    types: tuple[str, ...] = ()
    deltas: bool = True
    until_waiting: bool = False

    def has(self, kind: str) -> bool:
        """Say whether events of this type are wanted."""
        return not self.types or any(fnmatchcase(kind, glob) for glob in self.types)


class Tail:
    """Reads a run's log and what is being written, for one client, from its cursor on."""

    def __init__(
        self, store: Store, hub: Hub, tenant: str, run_id: str, cursor: Cursor,
        selection: Selection = Selection(),
    ) -> None:  # fmt: skip
        self.seq = cursor.seq
        self.ended = False
        self._store = store
        self._hub = hub
        self._tenant = tenant
        self._run_id = run_id
        self._selection = selection
        self._offsets: dict[tuple[TextKind, str], int] = {}
        if cursor.message_id is not None:
            self._offsets[("message.delta", cursor.message_id)] = cursor.offset
        self._woken: asyncio.Event | None = None
        self._farewell: bytes | None = None
        self._closed = False

    def close(self, farewell: bytes | None = None) -> None:
        """End the stream soon, with a last word if there is one to say."""
        self._closed = True
        self._farewell = farewell
        if self._woken is not None:
            self._woken.set()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield whole frames, joined as they are ready, until the run's last event.

        Registers first and reads second, so that nothing falls between the two.
        """
        await self._hub.follow(self._run_id)
        try:
            with self._hub.listen(self._run_id) as (tail, self._woken):
                async for piece in self._follow(tail, self._woken):
                    yield piece
        finally:
            self._hub.leave(self._run_id)

    async def _follow(self, tail: RunTail, woken: asyncio.Event) -> AsyncIterator[bytes]:
        first = RETRY
        while True:
            woken.clear()
            frames = tail.behind(self.seq)
            if frames is None:
                frames = await self._read(tail)
            parts = self._durable(frames)
            if not self.ended:
                parts += self._ephemeral(tail.texts.values())
            if parts:
                yield b"".join((first, *parts))
                first = b""
            if self.ended:
                return
            if self._closed:
                if self._farewell:
                    yield self._farewell
                return
            if not frames:
                yield await self._rest(woken)

    async def _rest(self, woken: asyncio.Event) -> bytes:
        """Wait for more; return a heartbeat if nothing comes."""
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await woken.wait()
        except TimeoutError:
            return HEARTBEAT
        return b""

    async def _read(self, tail: RunTail) -> list[Frame]:
        entries = await self._store.read(log.read(self._tenant, self._run_id, after=self.seq))
        frames = [
            Frame(self._run_id, entry.seq, entry.type, entry.time_ms, entry.data.encode())
            for entry in entries
        ]
        tail.know(frames[-1].seq if frames else self.seq)
        return frames

    def _durable(self, frames: Sequence[Frame]) -> list[bytes]:
        parts = []
        for frame in frames:
            if frame.type == "message.completed":
                parts += self._top_up(frame)
            self.seq = frame.seq
            if self._selection.has(frame.type):
                parts.append(frame.sse)
            if frame.terminal or (self._selection.until_waiting and frame.type == "run.waiting"):
                self.ended = True
                break
        return parts

    def _top_up(self, frame: Frame) -> list[bytes]:
        """Return what the client lacks of a message that is complete now, as one delta."""
        message_id = str(frame.payload["message_id"])
        self._offsets.pop(("reasoning.delta", message_id), None)
        offset = self._offsets.pop(("message.delta", message_id), 0)
        missing = str(frame.payload["content"])[offset:]
        if not missing or not self._wants("message.delta"):
            return []
        return [self._delta("message.delta", message_id, offset, missing)]

    def _ephemeral(self, texts: Iterable[LiveText]) -> list[bytes]:
        parts = []
        for text in texts:
            if text.after_seq > self.seq or not self._wants(text.kind):
                continue
            key = (text.kind, text.id)
            offset = self._offsets.get(key, 0)
            if len(text.text) > offset:
                parts.append(self._delta(text.kind, text.id, offset, text.text[offset:]))
                self._offsets[key] = len(text.text)
        return parts

    def _wants(self, kind: TextKind) -> bool:
        return self._selection.deltas and self._selection.has(kind)

    def _delta(self, kind: TextKind, id_: str, offset: int, piece: str) -> bytes:
        data = {_FIELDS[kind]: id_, "offset": offset, "text": piece}
        # Only a message's own text can be resumed in its middle; the others begin again.
        event_id = f"{self.seq}~{id_}:{offset + len(piece)}" if kind == "message.delta" else None
        return ephemeral(kind, self._run_id, data, event_id)


class Streams:
    """The streams that are open in this process, so that a draining server can end them."""

    def __init__(self) -> None:
        self._tails: set[Tail] = set()
        self._draining = False

    def add(self, tail: Tail) -> None:
        """Take note of an open stream; while draining it is told to leave at once."""
        self._tails.add(tail)
        if self._draining:
            self._dismiss(tail)

    def discard(self, tail: Tail) -> None:
        """Forget a stream that has ended."""
        self._tails.discard(tail)

    def drain(self) -> None:
        """Tell every client to come back elsewhere, and end its stream."""
        self._draining = True
        for tail in self._tails:
            self._dismiss(tail)

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._tails)

    def _dismiss(self, tail: Tail) -> None:
        tail.close(ephemeral("stream.reconnect", "", {"after_ms": RECONNECT_AFTER_MS}, None))


class TailResponse:
    """A tail as a response.

    `on_gone` is called when the client leaves before the end, `release` in any case.
    """

    def __init__(self, tail: Tail, streams: Streams, headers: dict[str, str] | None = None) -> None:
        self.on_gone: Callable[[], Awaitable[None]] | None = None
        self.release: Callable[[], None] | None = None
        self._tail = tail
        self._streams = streams
        self._headers = headers or {}
        self._left = False

    @property
    def response(self) -> Response:
        """This as Starlette's type, which is wider than what Starlette needs: an ASGI app."""
        return cast(Response, self)

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send until the tail ends, the client leaves, or it reads nothing for too long."""
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            **self._headers,
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        self._streams.add(self._tail)
        watcher = asyncio.create_task(self._watch(receive))
        try:
            async for piece in self._tail.pieces():
                if piece:
                    await _send_in_time(send, _body(piece))
            await _send_in_time(send, _body(b"", more=False))
        except TimeoutError:
            await self._lag(send)
        finally:
            watcher.cancel()
            self._streams.discard(self._tail)
            if self.release:
                self.release()
        if self._left and not self._tail.ended and self.on_gone:
            await self.on_gone()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._left = True
        self._tail.close()

    async def _lag(self, send: Send) -> None:
        """Tell a client that reads too slowly where to come back; it may read this one day."""
        lagged = ephemeral("stream.lagged", "", {"resume_after": self._tail.seq}, None)
        with suppress(TimeoutError):
            await _send_in_time(send, _body(lagged, more=False), 1.0)


def _body(piece: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": piece, "more_body": more}


async def _send_in_time(send: Send, message: Message, timeout_s: float = SEND_TIMEOUT_S) -> None:
    async with asyncio.timeout(timeout_s):
        await send(message)
