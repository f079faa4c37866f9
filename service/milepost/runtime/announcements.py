"""What a run's tools tell of while they run, from whatever thread, on its way into the log."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial

from milepost.core.events import Custom
from milepost.core.json import Json
from milepost.runtime.clock import Clock
from milepost.runtime.journal import Stamped
from milepost.tools.emitting import Emitter


class Announcements:
    """The events that wait, in the order in which they were told; `wake` says that there are some.

    Must be made on the loop that takes them.
    """

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._lock = threading.Lock()
        self._waiting: list[Stamped] = []
        self._calls: set[str] = set()

    def emitter(self, call_id: str) -> Emitter:
        """Return what takes the events of one call."""
        return Emitter(partial(self._tell, call_id))

    def has_from(self, call_id: str) -> bool:
        """Say whether the call has told of anything."""
        return call_id in self._calls

    def take(self) -> list[Stamped]:
        """Take what waits."""
        if not self._waiting:
            return []
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return waiting

    def _tell(self, call_id: str, name: str, value: Json) -> None:
        stamped = Stamped(Custom(call_id, name, value), self._clock())
        with self._lock:
            self._waiting.append(stamped)
            self._calls.add(call_id)
        if threading.get_ident() == self._home:
            self._wake()
            return
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            # The loop was closed while the tool went on: nobody drives the run any more.
            return
