"""Observers that are there: one that writes lines of JSON, and one that remembers."""

import dataclasses
import sys
import threading
import time
from typing import TextIO, TypeVar

import orjson

from milepost.agent.observations import Observation
from milepost.agent.observer import Observer
from milepost.live.frames import rfc3339

Seen = TypeVar("Seen", bound=Observation)


class LoggingObserver(Observer):
    """Writes each record as one line of JSON, to stderr unless told otherwise.

    The lines hold what was said and what tools were given: keep them as you would keep that.
    """

    def __init__(self, to: TextIO | None = None) -> None:
        self._to = to
        self._turn = threading.Lock()

    def on_event(self, seen: Observation) -> None:
        """Write the line."""
        fields = {field.name: getattr(seen, field.name) for field in dataclasses.fields(seen)}
        said = {"event": seen.name, "time": rfc3339(time.time_ns() // 1_000_000), **fields}
        line = orjson.dumps(said, default=repr).decode()
        with self._turn:
            print(line, file=self._to or sys.stderr, flush=True)


class RecordingObserver(Observer):
    """Keeps every record, for tests and for a look at what an agent does."""

    def __init__(self) -> None:
        self.seen: list[Observation] = []

    def on_event(self, seen: Observation) -> None:
        """Keep the record."""
        self.seen.append(seen)

    @property
    def names(self) -> list[str]:
        """What happened, by name."""
        return [each.name for each in self.seen]

    def of(self, kind: type[Seen]) -> list[Seen]:
        """Return the records of one kind."""
        return [each for each in self.seen if isinstance(each, kind)]
