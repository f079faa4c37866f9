"""What was read of the store a moment ago: read again now and then, and once for all who ask."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from milepost.runtime.clock import Clock

K = TypeVar("K")
V = TypeVar("V")

KNOWN_MAX = 1_000


@dataclass(frozen=True, slots=True)
class _Seen(Generic[V]):
    value: V
    since_ms: int


class Recent(Generic[K, V]):
    """What `read` returns, by key, as it was at most `fresh_ms` milliseconds ago.

    While somebody reads, others who ask wait for what comes: at a busy moment a hundred runs would
    otherwise find at once that what they know is old, and look. Of `known_max` keys those are kept
    that were read last.
    """

    def __init__(
        self,
        read: Callable[[K], Awaitable[V]],
        *,
        clock: Clock,
        fresh_ms: int,
        known_max: int = KNOWN_MAX,
    ) -> None:
        self._read = read
        self._clock = clock
        self._fresh_ms = fresh_ms
        self._known_max = known_max
        self._known: dict[K, _Seen[V]] = {}
        self._reading: dict[K, asyncio.Future[_Seen[V] | None]] = {}

    async def of(self, key: K) -> V:
        """Return what there is. Raises what `read` raises, to all who wait for it."""
        while True:
            seen = self._known.get(key)
            # Clocks are set back at times: what was read in the future is old.
            if seen is not None and 0 <= self._clock() - seen.since_ms < self._fresh_ms:
                return seen.value
            if (reading := self._reading.get(key)) is None:
                return await self.anew(key)
            # Shielded: who gives up waiting takes nothing from the others.
            if (seen := await asyncio.shield(reading)) is not None:
                return seen.value

    async def anew(self, key: K) -> V:
        """Return what there is now, whatever was read before."""
        reading: asyncio.Future[_Seen[V] | None] = asyncio.get_running_loop().create_future()
        self._reading[key] = reading
        since_ms = self._clock()
        try:
            seen = _Seen(await self._read(key), since_ms)
        except Exception as error:
            reading.set_exception(error)
            reading.exception()  # Nobody has to be waiting for it.
            raise
        else:
            if self._reading.get(key) is reading:
                self._keep(key, seen)
                reading.set_result(seen)
            return seen.value
        finally:
            if self._reading.get(key) is reading:
                del self._reading[key]
            if not reading.done():
                reading.set_result(None)  # It was forgotten or given up: let another one look.

    def last(self, key: K) -> V | None:
        """Return what was read last, however long ago; None if nothing was."""
        seen = self._known.get(key)
        return None if seen is None else seen.value

    def forget(self, key: K) -> None:
        """Look anew: what is being read just now is old, too."""
        self._known.pop(key, None)
        self._reading.pop(key, None)

    def forget_where(self, is_meant: Callable[[K], bool]) -> None:
        """Forget all of these keys."""
        for key in [key for key in (*self._known, *self._reading) if is_meant(key)]:
            self.forget(key)

    def _keep(self, key: K, seen: _Seen[V]) -> None:
        self._known.pop(key, None)
        self._known[key] = seen
        if len(self._known) > self._known_max:
            del self._known[next(iter(self._known))]
