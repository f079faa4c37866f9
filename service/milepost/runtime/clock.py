"""Time and ids: what the pure core is given from outside."""

import os
import time
from collections.abc import Callable

from milepost.core.ids import format_id

_CHANCE_BYTES = 10
_STOCK = 100

Clock = Callable[[], int]
"""Returns Unix milliseconds."""

NewId = Callable[[str], str]
"""Returns a new id with the given prefix."""


def now_ms() -> int:
    """Return this machine's clock in Unix milliseconds."""
    return time.time_ns() // 1_000_000


class Ids:
    """Makes ids that no one else has, sortable by the time of their making.

    Asking the kernel for chance costs 2 microseconds however little is asked for, so it is asked
    for a stock at a time.
    """

    def __init__(self, clock: Clock = now_ms) -> None:
        self._clock = clock
        self._stock = b""

    def __call__(self, prefix: str) -> str:
        """Return a new id with the given prefix."""
        if len(self._stock) < _CHANCE_BYTES:
            self._stock = os.urandom(_CHANCE_BYTES * _STOCK)
        chance, self._stock = self._stock[:_CHANCE_BYTES], self._stock[_CHANCE_BYTES:]
        return format_id(prefix, self._clock(), int.from_bytes(chance))
