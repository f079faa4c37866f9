"""The cache of model replies in the process's own memory."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from milepost.providers.cache import CacheStats

ENTRIES_MAX = 1_000
BYTES_MAX = 64 * 1_048_576
OWNERS_MAX = 1_000
"""Of how many a value may be: one that is more people's is not kept."""


@dataclass(frozen=True, slots=True)
class _Entry:
    value: bytes
    until: float
    owners: set[str] = field(default_factory=set)


class InProcessCache:
    """Least recently used goes first once `entries_max` or `bytes_max` is reached.

    `clock` is monotonic: a corrected wall clock neither revives nor kills an entry. Event loops in
    several threads may share it.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        entries_max: int = ENTRIES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._clock = clock
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._bytes = 0
        self._locks: dict[str, tuple[str, float]] = {}
        self._tokens = count(1)
        self._hits = self._misses = self._evictions = 0
        self._held = threading.Lock()

    async def get(self, key: str) -> bytes | None:
        """Return the value, which is now the most recently used, or None."""
        with self._held:
            entry = self._entries.get(key)
            if entry is not None and entry.until <= self._clock():
                self._remove(key)
                entry = None
            if entry is None:
                self._misses += 1
                return None
            self._entries.move_to_end(key)
            self._hits += 1
            return entry.value

    async def set(self, key: str, value: bytes, ttl_s: float, owner: str | None = None) -> None:
        """Keep `value` for `ttl_s`, at the cost of what was not asked for longest."""
        with self._held:
            before = self._entries.get(key)
            owners = before.owners if before else set()
            self._remove(key)
            self._entries[key] = _Entry(value, self._clock() + ttl_s, owners)
            if owner is not None:
                owners.add(owner)
            self._bytes += len(value)
            while len(self._entries) > self._entries_max or self._bytes > self._bytes_max:
                self._remove(next(iter(self._entries)))
                self._evictions += 1

    async def delete(self, key: str) -> None:
        """Forget the value, if there is one."""
        with self._held:
            self._remove(key)

    async def clear(self, prefix: str = "") -> int:
        """Forget all values whose keys begin with `prefix`; return how many there were."""
        with self._held:
            doomed = [key for key in self._entries if key.startswith(prefix)]
            for key in doomed:
                self._remove(key)
            return len(doomed)

    async def mark(self, key: str, owner: str, ttl_s: float) -> None:  # noqa: ARG002 - the value's
        """Note whose the value is, if there is one."""
        with self._held:
            if entry := self._entries.get(key):
                entry.owners.add(owner)
                if len(entry.owners) > OWNERS_MAX:
                    self._remove(key)

    async def forget(self, owner: str) -> int:
        """Forget all values that are the owner's; return how many there were."""
        with self._held:
            doomed = [key for key, entry in self._entries.items() if owner in entry.owners]
            for key in doomed:
                self._remove(key)
            return len(doomed)

    async def stats(self) -> CacheStats:
        """Return what happened so far."""
        with self._held:
            return CacheStats(
                self._hits, self._misses, evictions=self._evictions, entries=len(self._entries)
            )

    async def lock(self, key: str, ttl_s: float) -> str | None:
        """Return a token, or None while another one is out and has not lapsed."""
        with self._held:
            now = self._clock()
            held = self._locks.get(key)
            if held is not None and held[1] > now:
                return None
            token = str(next(self._tokens))
            self._locks[key] = (token, now + ttl_s)
            return token

    async def unlock(self, key: str, token: str) -> None:
        """Give the lock back, unless it lapsed and is somebody else's by now."""
        with self._held:
            held = self._locks.get(key)
            if held is not None and held[0] == token:
                del self._locks[key]

    def _remove(self, key: str) -> None:
        if entry := self._entries.pop(key, None):
            self._bytes -= len(entry.value)
