"""A log as it was read back: its events, and where each stands."""

from collections.abc import Iterable
from dataclasses import dataclass

from milepost.core.codec import decode
from milepost.core.events import Event
from milepost.store.records import LogEntry


@dataclass(frozen=True, slots=True)
class Logged:
    """An event and where it stands in its log."""

    seq: int
    time_ms: int
    event: Event


def logged(entries: Iterable[LogEntry]) -> list[Logged]:
    """Return the events of a log, without those that this version does not know."""
    decoded = ((entry, decode(entry.type, entry.data)) for entry in entries)
    return [Logged(entry.seq, entry.time_ms, event) for entry, event in decoded if event]
