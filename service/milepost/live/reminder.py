"""A timer that is set once and rings again and again, at no cost in between."""

import asyncio
from collections.abc import Callable
from types import TracebackType


class Reminder:
    """Calls `ring` every `every_s` seconds while it is entered.

    A time-out around each wait would set and clear a timer every time: 20 microseconds, several
    times an event.
    """

    __slots__ = ("_every_s", "_handle", "_ring")

    def __init__(self, every_s: float, ring: Callable[[], None]) -> None:
        self._every_s = every_s
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        """Begin to count."""
        self._handle = asyncio.get_running_loop().call_later(self._every_s, self._fire)

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Ring no more."""
        if self._handle is not None:
            self._handle.cancel()

    def _fire(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(self._every_s, self._fire)
        self._ring()
