"""A deadline that moves with every read, for the price of an assignment instead of a timer."""

import asyncio
import math
from collections.abc import Callable

NEVER = math.inf


class Watchdog:
    """Calls `bite` once `deadline` has passed, and remembers that it did.

    Set `deadline` before waiting and `NEVER` after it: while the consumer is busy, nobody is late.
    One timer looks every `period_s`, so `deadline` must lie at least that far ahead when it is set.
    """

    def __init__(self, bite: Callable[[], None], *, period_s: float) -> None:
        self.deadline = NEVER
        self.expired = False
        self._bite = bite
        self._period_s = period_s
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(period_s, self._look)

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        if now >= self.deadline:
            self.expired = True
            self._bite()
            return
        self._timer = self._loop.call_at(min(self.deadline, now + self._period_s), self._look)
