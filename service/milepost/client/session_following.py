"""Where a client is in a session's stream, and what of it a caller wants."""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson
from httpx2 import ServerSentEvent

from milepost.client.following import TERMINAL, Wanted
from milepost.client.position import Position
from milepost.client.shapes import Event
from milepost.client.transport import Params


@dataclass(frozen=True, slots=True)
class SessionWanted:
    """Which events a caller wants (globs of types, or all), and whether it leaves at rest.

    That is where no run is under way; the server says so with its last word.
    """

    types: Sequence[str] = ()
    deltas: bool = True
    until_idle: bool = False

    @property
    def params(self) -> Params:
        """What to ask the server for: always the runs' ends, or their place would not be known."""
        return {
            "types": ",".join([*self.types, *sorted(TERMINAL)]) if self.types else None,
            "deltas": None if self.deltas else False,
            "until": "idle" if self.until_idle else None,
        }

    def has(self, event: Event) -> bool:
        """Say whether the caller wants this one."""
        return Wanted(self.types).has(event)

    def ends_at(self, _: Event) -> bool:
        """Say that no event is the last one of a session."""
        return False


class SessionPosition:
    """The last id seen, and where that is in the run that it is of."""

    def __init__(self, after: str | None = None) -> None:
        self.id = after
        self._run_id, _, within = (after or "").partition(".")
        self._within = Position(within or None)

    def take(self, frame: ServerSentEvent) -> Event | None:
        """Return what is new in a frame, or None."""
        self.id = frame.id or self.id
        run_id = orjson.loads(frame.data)["run_id"]
        if run_id != self._run_id:
            self._run_id, self._within = run_id, Position()
        self._within.id = self.id
        return self._within.take(frame)
