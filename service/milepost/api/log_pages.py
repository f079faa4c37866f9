"""A run's log, read page by page for one client: however big its events, a page is of bounded size.

A client that takes nothing costs the memory of what was read for it, and there may be many such.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from milepost.live.frames import Frame
from milepost.store import log, runs
from milepost.store.records import LogEntry
from milepost.store.store import Store
from milepost.store.work import Work

PAGE_BYTES = 262_144
FIRST_EVENTS = 64


@dataclass(frozen=True, slots=True)
class LogPage:
    """What comes next in a log; `head` is the log's end, if what was read reached it.

    `over` says that nothing will ever come: the run has ended, and its log may be gone already.
    """

    frames: list[Frame]
    head: int | None
    over: bool = False


class LogPages:
    """Reads so many events at a time as fit into a page, going by those before them."""

    def __init__(self, store: Store, tenant: str, run_id: str) -> None:
        self._store = store
        self._tenant = tenant
        self._run_id = run_id
        self._limit = FIRST_EVENTS

    async def behind(self, seq: int, *, through: int = log.SEQ_MAX) -> LogPage:
        """Return what comes behind event `seq`, up to and with `through`.

        Nothing, if the log ends there. Raises `NotFoundError` if the run is not there any more.
        """
        limit = self._limit
        entries, over = await self._store.read(self._read(seq, through, limit))
        if entries:
            average = sum(len(entry.data) for entry in entries) // len(entries) + 1
            self._limit = min(max(PAGE_BYTES // average, 1), log.READ_MAX)
        # A full page says nothing about what comes behind it.
        head = None if len(entries) == limit else entries[-1].seq if entries else seq
        frames = within_page(frame_of(self._run_id, entry) for entry in entries)
        return LogPage(frames, head, over)

    def _read(self, seq: int, through: int, limit: int) -> Work[tuple[list[LogEntry], bool]]:
        named = {"after": seq, "through": through, "limit": limit}
        entries = yield from log.read(self._tenant, self._run_id, **named)
        if entries:
            return entries, False
        row = yield from runs.find(self._tenant, self._run_id)
        if row.ended_ms is None:
            return [], False
        # It may have ended since the first look: then there is a last event.
        entries = yield from log.read(self._tenant, self._run_id, **named)
        return entries, not entries


def frame_of(run_id: str, entry: LogEntry) -> Frame:
    """Return an event of the log as clients are sent it."""
    return Frame(run_id, entry.seq, entry.type, entry.time_ms, entry.data.encode())


def within_page(frames: Iterable[Frame]) -> list[Frame]:
    """Return as many of the first frames as fit into a page; one at least, if there is one."""
    taken: list[Frame] = []
    size = 0
    for frame in frames:
        size += len(frame.body)
        if size > PAGE_BYTES and taken:
            break
        taken.append(frame)
    return taken
