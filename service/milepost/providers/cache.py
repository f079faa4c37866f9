"""What a cache of model replies owes, whoever keeps it."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What a cache did since this process started. `entries` is None where counting would cost.

    `failures` counts what the cache could not be asked, and took for a miss.
    """

    hits: int
    misses: int
    evictions: int = 0
    failures: int = 0
    entries: int | None = None

    @property
    def hit_rate(self) -> float:
        """The share of lookups that found something, 0 before the first."""
        lookups = self.hits + self.misses
        return self.hits / lookups if lookups else 0.0


class ReplyCache(Protocol):
    """Keeps bytes for a while. It never raises: what it can't do is a miss.

    `lock` gives a token, or None while somebody else holds the lock; it lapses after `ttl_s`.
    Keys begin with the tenant's prefix, so `clear(prefix)` can't reach another tenant's.
    """

    async def get(self, key: str) -> bytes | None: ...

    async def set(self, key: str, value: bytes, ttl_s: float, owner: str | None = None) -> None:
        """Keep `value` for `ttl_s`, as something that has come of what `owner` said."""

    async def delete(self, key: str) -> None: ...

    async def clear(self, prefix: str = "") -> int: ...

    async def mark(self, key: str, owner: str, ttl_s: float) -> None:
        """Note that what is kept under the key has come of what `owner` said, too."""

    async def forget(self, owner: str) -> int:
        """Forget all values that are marked as the owner's; return how many there were."""

    async def stats(self) -> CacheStats: ...

    async def lock(self, key: str, ttl_s: float) -> str | None: ...

    async def unlock(self, key: str, token: str) -> None: ...
