"""A provider that answers from a cache what it was asked before."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from milepost.core.model import Delta, ModelRequest, Provider
from milepost.providers.assemble import Assembly
from milepost.providers.cache import ReplyCache
from milepost.providers.cache_key import cache_key, owner_key
from milepost.providers.cached_reply import CachedReply, decode, encode, replay
from milepost.providers.closing import closing
from milepost.providers.single_flight import SingleFlight

WAIT_S_MAX = 20.0
POLL_S = 0.05


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Caching:
    """Keeps complete replies to requests that set `cache_ttl_s`; the rest goes straight through.

    `scope` says who answers: the wire, the base URL and the credential's id, never the key itself.
    """

    def __init__(
        self,
        inner: Provider,
        cache: ReplyCache,
        *,
        scope: str,
        now_ms: Callable[[], int] = _now_ms,
        wait_s: float = WAIT_S_MAX,
        poll_s: float = POLL_S,
    ) -> None:
        self._inner = inner
        self._cache = cache
        self._scope = scope
        self._now_ms = now_ms
        self._flights = SingleFlight(cache, wait_s=wait_s, poll_s=poll_s)

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream the kept reply, or the inner provider's, which is kept once it is complete."""
        if not request.cache_ttl_s:
            return self._inner.stream(request)
        return self._stream(request, request.cache_ttl_s)

    async def _stream(self, request: ModelRequest, ttl_s: float) -> AsyncGenerator[Delta, None]:
        key = cache_key(request, self._scope)
        cached = await self._find(key, ttl_s)
        if cached is None:
            async with self._flights.turn(key):
                # Whoever had the turn before may have landed since the first look.
                cached = await self._find(key, ttl_s)
                if cached is None:
                    async with closing(self._ask(request, key, ttl_s)) as deltas:
                        async for delta in deltas:
                            yield delta
        if cached is not None:
            if request.user is not None:
                # Whoever said the same: erasing one of them erases what came of it.
                await self._cache.mark(key, owner_key(request.tenant, request.user), ttl_s)
            for delta in replay(cached, self._now_ms()):
                yield delta

    async def _ask(
        self, request: ModelRequest, key: str, ttl_s: float
    ) -> AsyncGenerator[Delta, None]:
        assembly = Assembly()
        async with closing(self._inner.stream(request)) as deltas:
            async for delta in deltas:
                assembly.feed(delta)
                yield delta
        value = encode(CachedReply(assembly.reply(), self._now_ms()))
        if value is not None:
            owner = owner_key(request.tenant, request.user) if request.user else None
            await self._cache.set(key, value, ttl_s, owner)

    async def _find(self, key: str, ttl_s: float) -> CachedReply | None:
        """Return the kept reply, unless it is older than this request takes: others keep longer."""
        value = await self._cache.get(key)
        if value is None:
            return None
        if (cached := decode(value)) is None:
            await self._cache.delete(key)
            return None
        return cached if self._now_ms() - cached.made_ms <= ttl_s * 1000 else None
