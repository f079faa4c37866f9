"""One client's tail of a run's log: resumable at any event, and from the middle of a message."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol, cast

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from milepost.api.bounded_http import ABORT
from milepost.api.cursors import Cursor
from milepost.api.log_pages import LogPages, frame_of, within_page
from milepost.api.partials import PARTIAL, Partials
from milepost.api.problems import problem_body
from milepost.core.errors import MilepostError
from milepost.live.frames import Frame, ephemeral
from milepost.live.hub import Hub, LiveText, RunTail, TextKey, TextKind, texts_closed_by
from milepost.live.reminder import Reminder
from milepost.store import log
from milepost.store.store import Store

HEARTBEAT_S = 10.0
HEARTBEAT = b": hb\n"  # One line end: with two, the official openai client trips over the next id.
RETRY = b"retry: 1500\n"
SEND_TIMEOUT_S = 30.0
LAST_WORD_S = 1.0
FAREWELL_S = 2.0
RECONNECT_AFTER_MS = 500
DELTA_CHARS_MAX = 65_536

_FIELDS: dict[TextKind, str] = {
    "message.delta": "message_id",
    "reasoning.delta": "message_id",
    "tool_call.progress": "call_id",
}


@dataclass(frozen=True, slots=True)
class Selection:
    """What a client wants to see: globs of event types, live text or not, and where to stop.

    `partials` are the values of structured answers while they are written.
    """

    types: tuple[str, ...] = ()
    deltas: bool = True
    until_waiting: bool = False
    partials: bool = False

    def has(self, kind: str) -> bool:
        """Say whether events of this type are wanted."""
        return not self.types or any(fnmatchcase(kind, glob) for glob in self.types)


class Followed(Protocol):
    """What a stream shows, piece by piece."""

    ended: bool

    @property
    def seq(self) -> int | str:
        """How far it goes with the piece that is out: where a client may come back to."""

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield whole frames until the last one."""

    def close(self, farewell: bytes | None = None) -> None:
        """End the stream soon, with a last word if there is one to say."""

    def notice(self, kind: str, data: dict[str, Any]) -> bytes:
        """Return an event about the stream itself."""


class Tail:
    """Reads a run's log and what is being written, for one client, from its cursor on."""

    def __init__(
        self, store: Store, hub: Hub, tenant: str, run_id: str, cursor: Cursor,
        selection: Selection = Selection(),
    ) -> None:  # fmt: skip
        self.seq = cursor.seq
        self.ended = False
        self.heartbeat_s = HEARTBEAT_S
        self.within = ""  # What its frames' ids begin with, where it is a part of a longer stream.
        self._store = store
        self._hub = hub
        self._tenant = tenant
        self.run_id = run_id
        self._pages = LogPages(store, tenant, run_id)
        self._selection = selection
        wants_partials = selection.partials and selection.has(PARTIAL)
        self._partials = Partials(run_id, self._wake) if wants_partials else None
        self._offsets: dict[TextKey, int] = {}
        self._judged: dict[TextKey, tuple[int, bool]] = {}  # Where it began, and if it is open.
        if cursor.message_id is not None:
            self._offsets[("message.delta", cursor.message_id)] = cursor.offset
        self._woken: asyncio.Event | None = None
        self._farewell: bytes | None = None
        self._beat_is_due = False
        self._has_cut = False
        self._closed = False

    def close(self, farewell: bytes | None = None) -> None:
        """End the stream soon, with a last word if there is one to say."""
        self._closed = True
        self._farewell = farewell
        self._wake()

    def notice(self, kind: str, data: dict[str, Any]) -> bytes:
        """Return an event about the stream itself."""
        return ephemeral(kind, self.run_id, data, None)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield whole frames, joined as they are ready, until the run's last event.

        Registers first and reads second, so that nothing falls between the two. While a piece is
        out, `seq` says how far it goes. Raises `NotFoundError` if the run is erased meanwhile.
        """
        with (
            self._hub.listen(self.run_id) as (tail, self._woken),
            Reminder(self.heartbeat_s, self._beat),
        ):
            try:
                await self._hub.follow(self.run_id)
                async for piece in self._follow(tail, self._woken):
                    yield piece
            finally:
                self._hub.leave(self.run_id)
                if self._partials is not None:
                    self._partials.close()

    async def _follow(self, tail: RunTail, woken: asyncio.Event) -> AsyncIterator[bytes]:
        first = b"" if self.within else RETRY
        while True:
            woken.clear()
            piece, is_more = await self._gather(tail)
            if piece:
                yield first + piece
                first = b""
            if self.ended:
                return
            if self._closed:
                if self._farewell:
                    yield self._farewell
                return
            if self._beat_is_due:
                self._beat_is_due = False
                yield HEARTBEAT
            if not is_more:
                await woken.wait()

    async def _gather(self, tail: RunTail) -> tuple[bytes, bool]:
        """Return what is to be sent now, and whether there may be more already.

        The piece is all that is kept for a client while it takes its time.
        """
        self._has_cut = False
        frames = tail.behind(self.seq)
        frames = await self._read(tail) if frames is None else within_page(frames)
        parts = self._durable(frames)
        if tail.texts and not self.ended:
            await self._judge(list(tail.texts.values()))
            parts += self._ephemeral(tail)
        return b"".join(parts), bool(frames) or self._has_cut

    def _beat(self) -> None:
        self._beat_is_due = True
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None:
            self._woken.set()

    async def _read(self, tail: RunTail) -> list[Frame]:
        doubts = tail.doubts
        page = await self._pages.behind(self.seq)
        if page.head is not None and doubts == tail.doubts:
            tail.know(page.head)
        self.ended = self.ended or page.over
        return page.frames

    def _durable(self, frames: Sequence[Frame]) -> list[bytes]:
        parts = []
        for frame in frames:
            if frame.type == "message.completed":
                parts += self._top_up(frame)
            if self._judged:
                self._close_texts(frame)
            self.seq = frame.seq
            if self._selection.has(frame.type):
                parts.append(frame.sse_within(self.within) if self.within else frame.sse)
            if frame.terminal or (self._selection.until_waiting and frame.type == "run.waiting"):
                self.ended = True
                break
        return parts

    def _top_up(self, frame: Frame) -> list[bytes]:
        """Return what the client lacks of a message that is complete now, as one delta."""
        message_id = str(frame.payload["message_id"])
        offset = self._offsets.pop(("message.delta", message_id), 0)
        missing = str(frame.payload["content"])[offset:]
        if not missing or not self._wants("message.delta"):
            return []
        return [self._delta("message.delta", message_id, offset, missing)]

    def _close_texts(self, frame: Frame) -> None:
        for key in texts_closed_by(frame):
            if key in self._judged:
                self._judged[key] = (self._judged[key][0], False)
                self._offsets.pop(key, None)

    async def _judge(self, texts: Sequence[LiveText]) -> None:
        """Find out which of the texts that have begun are still open.

        What other processes told may be stale: a text that is over must not be shown again. Where
        it began before this tail did, only the log knows.
        """
        for text in texts:
            judged_after, _ = self._judged.get(text.key, (-1, False))
            if text.after_seq <= self.seq and text.after_seq > judged_after:
                self._judged[text.key] = (text.after_seq, await self._is_open(text))

    async def _is_open(self, text: LiveText) -> bool:
        if text.after_seq == self.seq:
            return True
        entries = await self._store.read(
            log.read(self._tenant, self.run_id, after=text.after_seq, through=self.seq)
        )
        frames = (frame_of(self.run_id, entry) for entry in entries)
        closed = any(text.key in texts_closed_by(frame) for frame in frames)
        return not closed and len(entries) < log.READ_MAX

    def _ephemeral(self, tail: RunTail) -> list[bytes]:
        parts = []
        for key, text in list(tail.texts.items()):
            judged_after, is_open = self._judged.get(key, (-1, False))
            if text.after_seq > judged_after:
                continue  # Its beginning comes first.
            if not is_open:
                del tail.texts[key]
                continue
            if self._wants(text.kind):
                parts += self._pieces_of(text)
            if self._partials is not None and text.kind == "message.delta":
                parts += self._partials.frames(text)
        return parts

    def _pieces_of(self, text: LiveText) -> list[bytes]:
        """Return what is new of a text, and no more than a piece: many may be too slow for more."""
        offset = self._offsets.get(text.key, 0)
        piece = text.text[offset : offset + DELTA_CHARS_MAX]
        if not piece:
            return []
        end = self._offsets[text.key] = offset + len(piece)
        self._has_cut |= end < len(text.text)
        return [self._delta(text.kind, text.id, offset, piece)]

    def _wants(self, kind: TextKind) -> bool:
        return self._selection.deltas and self._selection.has(kind)

    def _delta(self, kind: TextKind, id_: str, offset: int, piece: str) -> bytes:
        data = {_FIELDS[kind]: id_, "offset": offset, "text": piece}
        # Only a message's own text can be resumed in its middle; the others begin again.
        place = f"{self.within}{self.seq}~{id_}:{offset + len(piece)}"
        return ephemeral(kind, self.run_id, data, place if kind == "message.delta" else None)


class Streams:
    """The streams that are open in this process, so that a draining server can end them."""

    def __init__(self) -> None:
        self._open: dict[Followed, Callable[[], None]] = {}
        self._draining = False

    def add(self, tail: Followed, give_up: Callable[[], None]) -> None:
        """Take note of an open stream; while draining it is told to leave at once.

        `give_up` is called if it has not left soon after.
        """
        self._open[tail] = give_up
        if self._draining:
            self._dismiss(tail)

    def discard(self, tail: Followed) -> None:
        """Forget a stream that has ended."""
        self._open.pop(tail, None)

    def drain(self) -> None:
        """Tell every client to come back elsewhere, and end its stream."""
        self._draining = True
        for tail in self._open:
            self._dismiss(tail)

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    def _dismiss(self, tail: Followed) -> None:
        tail.close(tail.notice("stream.reconnect", {"after_ms": RECONNECT_AFTER_MS}))
        asyncio.get_running_loop().call_later(FAREWELL_S, self._give_up, tail)

    def _give_up(self, tail: Followed) -> None:
        if give_up := self._open.get(tail):
            give_up()


class TailResponse:
    """A tail as a response.

    `on_gone` is called when the client leaves before the end, `release` in any case.
    """

    def __init__(
        self, tail: Followed, streams: Streams, headers: dict[str, str] | None = None
    ) -> None:
        self.status_code = 200
        self.on_gone: Callable[[], Awaitable[object]] | None = None
        self.release: Callable[[], None] | None = None
        self._tail = tail
        self._streams = streams
        self.send_timeout_s = SEND_TIMEOUT_S
        self._headers = headers or {}
        self._left = False
        self._delivered_seq = tail.seq
        self._sending_since: float | None = None
        self._sender: asyncio.Task[None] | None = None
        self._lags = False
        self._given_up = False

    @property
    def response(self) -> Response:
        """This as Starlette's type, which is wider than what Starlette needs: an ASGI app."""
        return cast(Response, self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the tail ends, the client leaves, or it reads nothing for too long."""
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            **self._headers,
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        self._streams.add(self._tail, self._give_up)
        watcher = asyncio.create_task(self._watch(receive))
        try:
            with Reminder(self.send_timeout_s / 3, self._look_whether_stuck):
                await self._send_all(scope, send)
        except asyncio.CancelledError:
            if not self._given_up:
                raise
            await self._hang_up(scope, send)
        finally:
            watcher.cancel()
            self._streams.discard(self._tail)
            if self.release:
                self.release()
        if self._left and not self._tail.ended and self.on_gone:
            await self.on_gone()

    async def _send_all(self, scope: Scope, send: Send) -> None:
        self._sender = asyncio.current_task()
        now = asyncio.get_running_loop().time
        last = b""
        try:
            async with aclosing(self._tail.pieces()) as pieces:
                async for piece in pieces:
                    self._sending_since = now()
                    await send(_body(piece))
                    self._sending_since = None
                    self._delivered_seq = self._tail.seq
        except MilepostError as error:
            last = self._failure(scope, error)
        self._sending_since = now()
        await send(_body(last, more=False))
        self._sending_since = None

    def _failure(self, scope: Scope, error: MilepostError) -> bytes:
        """Return the stream's own failure as an event: the status has been sent long ago."""
        told = problem_body(error, instance=scope["path"], request_id=scope["state"]["request_id"])
        return self._tail.notice("error", told)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._left = True
        self._tail.close()

    def _look_whether_stuck(self) -> None:
        since = self._sending_since
        if since is None or asyncio.get_running_loop().time() - since < self.send_timeout_s:
            return
        self._lags = True
        self._give_up()

    def _give_up(self) -> None:
        """Wait no longer for a client that takes nothing; it is hung up on once."""
        is_stuck = self._sending_since is not None and not self._given_up
        if is_stuck and self._sender is not None:
            self._given_up = True
            self._sender.cancel()

    async def _hang_up(self, scope: Scope, send: Send) -> None:
        """End a response that its client does not take: what waits for it is thrown away.

        A client that reads too slowly is told where to come back; it may read this one day.
        """
        assert self._sender is not None
        self._sender.uncancel()
        if self._lags:
            lagged = self._tail.notice("stream.lagged", {"resume_after": self._delivered_seq})
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORD_S):
                    await send(_body(lagged, more=False))
                    return
            self._left = True  # Its machine may be gone without a word.
        if abort := scope.get(ABORT):
            abort()
            await send(_body(b"", more=False))  # It reaches nobody, and ends the response.


def _body(piece: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": piece, "more_body": more}
