"""One run's log and inbox in memory: what a store keeps of a run, for as long as it runs."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

import orjson

from milepost.core.codec import encode
from milepost.core.errors import FencedError
from milepost.core.events import ArtifactCreated, Event, Terminal
from milepost.core.evolve import fold
from milepost.core.json import Json
from milepost.core.spans import Span
from milepost.core.usage import Usage
from milepost.runtime.contents import created
from milepost.store.records import (
    Append,
    Change,
    Claim,
    Entry,
    InboxMessage,
    InboxMovedError,
    LogEntry,
    NewApproval,
)
from milepost.tools.artifacts import Emissions

OnEntries = Callable[[Sequence[Entry]], Awaitable[None]]
"""Is told of entries once they stand in the log, and waited for."""

OnEvents = Callable[[Sequence[Event]], None]
"""Is told of the same as events, a little later."""

OnApproval = Callable[[NewApproval], None]
"""Is to answer a question, by letter."""


async def unheard(_: Sequence[Entry]) -> None:
    """Tell nobody."""


class RunLog:
    """The log, the inbox, the artifacts and the spans of one run.

    It keeps the promises of a store to whoever drives a run: an append stands on the last one, and
    what lets go of the run is refused while something came in that it takes no account of.
    """

    def __init__(self, on_entries: OnEntries = unheard) -> None:
        self.log: list[LogEntry] = []
        self.events: list[Event] = []
        self.spans: list[Span] = []
        self.contents: dict[str, bytes] = {}
        self.change: Change | None = None
        self._on_entries = on_entries
        self._letters: list[InboxMessage] = []
        self._listeners: list[OnEvents] = []
        self._askers: list[OnApproval] = []
        self._arrived = asyncio.Event()
        self._epoch = 0
        self._seen = 0

    @property
    def head(self) -> int:
        """The number of the last event."""
        return len(self.log)

    @property
    def usage(self) -> Usage:
        """What the run has taken so far; the last event of one that is over knows."""
        last = self.events[-1] if self.events else None
        return last.usage if isinstance(last, Terminal) else fold(self.events).usage

    def listen(self, listener: OnEvents) -> None:
        """Have `listener` told of what happens from here on."""
        self._listeners.append(listener)

    def put_questions_to(self, asker: OnApproval) -> None:
        """Have `asker` answer the questions to people that come from here on."""
        self._askers.append(asker)

    async def begin(self, time_ms: int, *events: Event) -> int:
        """Write what takes the run in hand, and return the epoch in which it is."""
        self._epoch += 1
        self.change = None
        await self._write([Entry(each.type, time_ms, encode(each).decode()) for each in events])
        self.observe_append(events, ())
        return self._epoch

    def claim(self, held: Claim) -> Claim:
        """Return the claim as it is now, with the log that it is about."""
        return replace(
            held,
            epoch=self._epoch,
            head=self.head,
            inbox_seq=len(self._letters),
            entries=tuple(self.log),
        )

    def deliver(self, kind: str, said: dict[str, Json]) -> None:
        """Put something into the inbox."""
        letter = InboxMessage(len(self._letters) + 1, kind, orjson.dumps(said).decode())
        self._letters.append(letter)
        self._arrived.set()

    @property
    def unread(self) -> list[str]:
        """What kinds of things are in the inbox that nobody has read."""
        return [letter.kind for letter in self._letters[self._seen :]]

    async def mail(self, within_s: float | None) -> None:
        """Return once something is in the inbox that nobody has read, or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._seen >= len(self._letters):
                    self._arrived.clear()
                    await self._arrived.wait()

    # --- What drives a run sees of it ---

    async def entries(self, _tenant: str, _run_id: str, through: int) -> Sequence[LogEntry]:
        """Return the log as far as event `through`."""
        return self.log[:through]

    async def append(self, item: Append) -> tuple[int, tuple[str, ...]]:
        """Write an iteration. Raises `FencedError` and `InboxMovedError`."""
        if (item.epoch, item.head) != (self._epoch, self.head):
            raise FencedError(f"run {item.run_id} was taken over; stop writing to it")
        if item.asks_inbox and item.inbox_seen < len(self._letters):
            raise InboxMovedError(f"run {item.run_id} has a message that was not read yet")
        self.change, self._seen = item.change, item.inbox_seen
        self.spans += item.spans
        await self._write(item.entries)
        for approval in item.approvals:
            for asker in self._askers:
                asker(approval)
        return len(self._letters), ()

    async def inbox(self, _tenant: str, _run_id: str, after: int) -> tuple[int, list[InboxMessage]]:
        """Return the inbox's last number, and what came in after message `after`."""
        return len(self._letters), self._letters[after:]

    async def keep(self, emissions: Emissions, call_id: str, _: Claim) -> list[ArtifactCreated]:
        """Keep what a call has left behind."""
        left = emissions.close()
        self.contents |= {each.id: content for each, content in left if content is not None}
        return [created(artifact, call_id) for artifact, _ in left]

    def observe_append(self, events: Iterable[Event], _: Iterable[Span]) -> None:
        """Take the events that were appended."""
        happened = [*events]
        self.events += happened
        for listener in self._listeners:
            listener(happened)

    async def _write(self, entries: Sequence[Entry]) -> None:
        for seq, entry in enumerate(entries, start=self.head + 1):
            self.log.append(LogEntry(seq, entry.type, entry.time_ms, entry.data))
        await self._on_entries(entries)
