"""The hub: one place in a process where what happens meets those who wait for it.

A listener has no queue. It has a cursor, and takes from the run's ring and from the texts being
written what lies behind it: a slow one gets bigger pieces, not a longer queue.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from milepost.live.frames import AT_REST, Frame

RING_MAX = 256
RING_BYTES_MAX = 1_048_576

TextKind = Literal["message.delta", "reasoning.delta", "tool_call.progress"]
TextKey = tuple[TextKind, str]
_CLOSES: dict[str, tuple[TextKind, ...]] = {
    "message.completed": ("message.delta", "reasoning.delta"),
    "message.aborted": ("message.delta", "reasoning.delta"),
    "tool_call.completed": ("tool_call.progress",),
    "tool_call.failed": ("tool_call.progress",),
    "tool_call.interrupted": ("tool_call.progress",),
}


def texts_closed_by(frame: Frame) -> list[TextKey]:
    """Return the texts that are over with this event, if they began before it."""
    kinds = _CLOSES.get(frame.type, ())
    if not kinds:
        return []
    named = frame.payload.get("message_id") or frame.payload.get("call_id")
    return [(kind, str(named)) for kind in kinds]


@dataclass(slots=True)
class LiveText:
    """A text while it is being written. It may be shown to whoever has seen event `after_seq`."""

    kind: TextKind
    id: str
    after_seq: int
    text: str = ""

    @property
    def key(self) -> TextKey:
        """What tells this text from every other one of its run."""
        return (self.kind, self.id)


class Link(Protocol):
    """The way to other processes."""

    def published(self, run_id: str, seq: int) -> None:
        """Tell that the run's log reaches to `seq` now."""

    def wrote(self, run_id: str, text: LiveText, piece: str) -> None:
        """Tell that `piece` was added to a text."""

    def closed(self, run_id: str, text: LiveText) -> None:
        """Tell that nothing more will be added to a text."""

    def rang(self, bell: str) -> None:
        """Tell that a bell was rung."""

    async def follow(self, run_id: str) -> None:
        """Begin to hear of this run; returns once nothing can be missed."""

    def leave(self, run_id: str) -> None:
        """Stop hearing of this run."""

    async def erase(self, run_ids: Sequence[str]) -> None:
        """Remove what is kept of the texts of these runs."""


@dataclass(slots=True)
class RunTail:
    """What a process knows of a run's recent past: its last events, and texts being written.

    `known` is the last seq that is known to be durable; None as long as nobody looked. `doubts`
    counts how often that was forgotten: a look that began before may have seen what is out of date.
    The ring has the last event however large it is, and of those before it what its bounds leave
    room for.
    """

    run_id: str
    ring: deque[Frame] = field(default_factory=deque)
    ring_bytes: int = 0
    texts: dict[TextKey, LiveText] = field(default_factory=dict)
    known: int | None = None
    doubts: int = 0
    listeners: set[asyncio.Event] = field(default_factory=set)
    holders: int = 0

    def wake(self) -> None:
        """Wake all who listen."""
        for listener in self.listeners:
            listener.set()

    def know(self, seq: int) -> None:
        """Take note that the log reaches at least to `seq`."""
        self.known = seq if self.known is None else max(self.known, seq)

    def behind(self, cursor: int) -> list[Frame] | None:
        """Return the events after `cursor`, or None if only the log can tell."""
        if self.known is None:
            return None
        if cursor >= self.known:
            return []
        if not self.ring or self.ring[0].seq > cursor + 1 or self.ring[-1].seq < self.known:
            return None
        return list(self.ring)[cursor + 1 - self.ring[0].seq :]

    def add(self, frames: Iterable[Frame]) -> None:
        """Take in events that have become durable, in order."""
        for frame in frames:
            if self.ring and frame.seq != self.ring[-1].seq + 1:
                if frame.seq <= self.ring[-1].seq:
                    continue
                self.ring.clear()
                self.ring_bytes = 0
            self._append(frame)
            self.know(frame.seq)
            for key in texts_closed_by(frame) if self.texts else ():
                self.texts.pop(key, None)

    def has_later(self, text: LiveText) -> bool:
        """Say whether a later attempt at `text` is known: whoever writes this one lost its run."""
        present = self.texts.get(text.key)
        return present is not None and present.after_seq > text.after_seq

    def _append(self, frame: Frame) -> None:
        self.ring.append(frame)
        self.ring_bytes += len(frame.body)
        while len(self.ring) > RING_MAX or (
            self.ring_bytes > RING_BYTES_MAX and len(self.ring) > 1
        ):
            self.ring_bytes -= len(self.ring.popleft().body)


class Hub:
    """Runs' tails and bells, for the event loop of one process."""

    def __init__(self) -> None:
        self._tails: dict[str, RunTail] = {}
        self._bells: dict[str, set[asyncio.Event]] = {}
        self._followed: Counter[str] = Counter()
        self.link: Link | None = None

    @contextmanager
    def hold(self, run_id: str) -> Iterator[RunTail]:
        """Keep the run's tail while it is being driven here or listened to."""
        tail = self._tails.setdefault(run_id, RunTail(run_id))
        tail.holders += 1
        try:
            yield tail
        finally:
            tail.holders -= 1
            if not tail.holders:
                del self._tails[run_id]

    @contextmanager
    def listen(self, run_id: str) -> Iterator[tuple[RunTail, asyncio.Event]]:
        """Give the run's tail, and an event that is set whenever it may have more."""
        woken = asyncio.Event()
        with self.hold(run_id) as tail:
            tail.listeners.add(woken)
            try:
                yield tail, woken
            finally:
                tail.listeners.discard(woken)

    async def follow(self, run_id: str) -> None:
        """Hear of the run from other processes, too; pair it with `leave`."""
        self._followed[run_id] += 1
        if self.link and self._followed[run_id] == 1:
            await self.link.follow(run_id)

    def leave(self, run_id: str) -> None:
        """Undo one `follow`."""
        self._followed[run_id] -= 1
        if self._followed[run_id] <= 0:
            del self._followed[run_id]
            if self.link:
                self.link.leave(run_id)

    async def erase(self, run_ids: Sequence[str]) -> None:
        """Remove what other processes could read of the texts of these runs, which are gone."""
        if self.link and run_ids:
            await self.link.erase(run_ids)

    @property
    def listened(self) -> list[str]:
        """The runs that somebody listens to."""
        return [run_id for run_id, tail in self._tails.items() if tail.listeners]

    @property
    def sessions(self) -> list[str]:
        """The sessions whose next runs somebody waits for."""
        return [bell.removeprefix(_SESSION) for bell in self._bells if bell.startswith(_SESSION)]

    @property
    def listeners(self) -> int:
        """How many listen, all runs together."""
        return sum(len(tail.listeners) for tail in self._tails.values())

    def publish(self, run_id: str, frames: Sequence[Frame]) -> None:
        """Show events that are durable; call in the order of their seq."""
        if tail := self._tails.get(run_id):
            tail.add(frames)
            tail.wake()
        if self.link:
            self.link.published(run_id, frames[-1].seq)
        if frames[-1].type in AT_REST:
            self.chime(BATCHES_BELL)
            self.chime(OUTBOX_BELL)

    def hint(self, run_id: str, seq: int) -> None:
        """Take note that the run's log reaches to `seq`, by whomever."""
        if (tail := self._tails.get(run_id)) and seq > (tail.known or 0):
            tail.know(seq)
            tail.wake()

    def doubt(self, run_id: str) -> None:
        """Have whoever listens look at the run's log again: it is not what it was known to be."""
        if tail := self._tails.get(run_id):
            tail.known = None
            tail.doubts += 1
            tail.wake()

    def write(self, run_id: str, text: LiveText, piece: str) -> None:
        """Add `piece` to a text that is being written here."""
        text.text += piece
        if (tail := self._tails.get(run_id)) and not tail.has_later(text):
            tail.texts[text.key] = text
            tail.wake()
        if self.link:
            self.link.wrote(run_id, text, piece)

    def overhear(self, run_id: str, text: LiveText) -> None:
        """Take in a text that another process is writing, as far as it has come."""
        tail = self._tails.get(run_id)
        if tail is None or tail.has_later(text):
            return
        present = tail.texts.get(text.key)
        if present is None or (
            (present.after_seq, len(present.text)) < (text.after_seq, len(text.text))
        ):
            tail.texts[text.key] = text
            tail.wake()

    def overhear_piece(self, run_id: str, text: LiveText, offset: int, piece: str) -> bool:
        """Take in a piece that another process wrote at `offset`; one that leaves a gap is dropped.

        Say whether nothing is missing before it. Whoever lacks something gets it with the completed
        message at the latest.
        """
        tail = self._tails.get(run_id)
        if tail is None or tail.has_later(text):
            return True
        present = tail.texts.get(text.key)
        if present is None or present.after_seq < text.after_seq:
            present = tail.texts[text.key] = text
        known = len(present.text)
        if offset <= known < offset + len(piece):
            present.text += piece[known - offset :]
            tail.wake()
        return offset <= known

    def close_text(self, run_id: str, text: LiveText) -> None:
        """Say that a text is complete or given up; it stays until the log tells which."""
        if self.link:
            self.link.closed(run_id, text)

    def ring(self, bell: str) -> None:
        """Wake those who wait for `bell`, here and elsewhere. It carries no data."""
        self.chime(bell)
        if self.link:
            self.link.rang(bell)

    def chime(self, bell: str) -> None:
        """Wake those who wait for `bell` in this process."""
        for waiting in self._bells.get(bell, ()):
            waiting.set()

    @contextmanager
    def bell(self, bell: str) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever `bell` is rung."""
        rung = asyncio.Event()
        self._bells.setdefault(bell, set()).add(rung)
        try:
            yield rung
        finally:
            self._bells[bell].discard(rung)
            if not self._bells[bell]:
                del self._bells[bell]


_SESSION = "session:"

LINK_BELL = "link"
"""Rung in a process that begins to hear of the others, or no longer does: it may lack something."""

QUEUE_BELL = "queue"
BATCHES_BELL = "batches"
"""Rung when a batch is new or was cancelled, and in a process whose run came to rest: its batch, if
it has one, may begin another."""

SCHEDULES_BELL = "schedules"
"""Rung when a schedule is new, or comes at another time than it did."""

OUTBOX_BELL = "outbox"
LESSONS_BELL = "lessons"
"""Rung when something is to be sent at once, and in a process whose run came to rest: there may be
something for webhooks in the outbox."""


def inbox_bell(run_id: str) -> str:
    """Return the bell that says that something came in for the run."""
    return f"inbox:{run_id}"


def ring_for(hub: Hub, run_id: str) -> None:
    """Wake whoever has the run, and whoever may take it: something came in for it."""
    hub.ring(QUEUE_BELL)
    hub.ring(inbox_bell(run_id))


def approvals_bell(tenant: str) -> str:
    """Return the bell that says that an approval of the tenant is another than before."""
    return f"approvals:{tenant}"


def session_bell(session_id: str) -> str:
    """Return the bell that says that another run came to the session."""
    return f"{_SESSION}{session_id}"


def batch_bell(batch_id: str) -> str:
    """Return the bell that says that the batch is another than before."""
    return f"batch:{batch_id}"
