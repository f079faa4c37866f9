"""The cache of model replies in Redis or Valkey, shared by all processes, and never missed."""

import asyncio
import re
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.maint_notifications import MaintNotificationsConfig

from milepost.providers.cache import CacheStats
from milepost.providers.redis_asking import OPERATION_S_MAX, Asking, unheard

VALUE_PREFIX = "milepost:cache:"
LOCK_PREFIX = "milepost:cache-lock:"
OWNER_PREFIX = "milepost:cache-owner:"
CONNECTIONS_MAX = 32
SCAN_COUNT = 500

_UNLOCK = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end"
# The keys that are an owner's, each with when it lapses: ARGV is how long that is, and the key. A
# value that somebody keeps for longer is the owner's for as long.
_MARK = """
local ttl = math.max(ARGV[1], redis.call('pttl', KEYS[2]))
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('zremrangebyscore', KEYS[1], '-inf', now)
redis.call('zadd', KEYS[1], now + ttl, ARGV[2])
if redis.call('pttl', KEYS[1]) < ttl then
  redis.call('pexpire', KEYS[1], ttl)
end
return 1
"""
_GLOB = re.compile(r"([*?\[\]\\])")

# What a lock answers where nobody can be asked.
_GRANTED: bool | str | bytes | None = True


def connect(url: str, *, within_s: float = OPERATION_S_MAX) -> Redis:
    """Return a client for what can do without Redis: few connections, short waits, no retries.

    Whoever waits longer than `within_s` for a connection gets an error. How long an answer may take
    is for `Asking` to say: the client's own bound would cost a task for each command, and lose a
    cancellation that comes in its midst, as `asyncio.wait_for` does before Python 3.12.

    Of maintenance it hears nothing: who listens for that is also given connections that have been
    closed, and those on which an answer is left over. Nor does a new connection tell who it is:
    each of its round trips is part of the time that the first answer has.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=CONNECTIONS_MAX,
        timeout=within_s,
        socket_timeout=None,
        socket_connect_timeout=within_s,
        retry=Retry(NoBackoff(), 0),
        legacy_responses=False,
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
        driver_info=None,
    )
    return Redis.from_pool(pool)


class RedisCache:
    """Asks Redis, and takes whatever goes wrong there for a miss.

    `on_change` is told why Redis is left alone, and with None that it answers again; once each.
    """

    def __init__(
        self,
        redis: Redis,
        *,
        clock: Callable[[], float] = time.monotonic,
        new_token: Callable[[], str] = secrets.token_hex,
        on_change: Callable[[Exception | None], None] = unheard,
        within_s: float = OPERATION_S_MAX,
    ) -> None:
        self._redis = redis
        self._asking = Asking(clock=clock, on_change=on_change, within_s=within_s)
        self._new_token = new_token
        self._hits = self._misses = 0

    async def get(self, key: str) -> bytes | None:
        """Return the value, or None where there is none or Redis does not answer."""
        value = await self._asking.ask(lambda: self._value(key))
        if value is None:
            self._misses += 1
            return None
        self._hits += 1
        return value

    async def set(self, key: str, value: bytes, ttl_s: float, owner: str | None = None) -> None:
        """Keep `value` for `ttl_s`, by the server's clock; it is known whose it is before it is."""
        ttl_ms = _milliseconds(ttl_s)
        if owner is not None:
            await self.mark(key, owner, ttl_s)
        await self._asking.ask(lambda: self._redis.set(VALUE_PREFIX + key, value, px=ttl_ms))

    async def delete(self, key: str) -> None:
        """Forget the value, if there is one."""
        await self._asking.ask(lambda: self._redis.unlink(VALUE_PREFIX + key))

    async def clear(self, prefix: str = "") -> int:
        """Forget all values whose keys begin with `prefix`; return how many there were.

        It ends where Redis fails; what is left then goes when its time is up.
        """
        pattern = VALUE_PREFIX + _GLOB.sub(r"\\\1", prefix) + "*"
        nothing: tuple[int, list[bytes]] = (0, [])
        cleared = cursor = 0
        while True:
            cursor, keys = await self._asking.ask_or(nothing, partial(self._scan, cursor, pattern))
            if keys:
                cleared += await self._asking.ask_or(0, partial(self._unlinked, keys))
            if not cursor:
                return cleared

    async def mark(self, key: str, owner: str, ttl_s: float) -> None:
        """Note whose the value is, for as long as it may be there."""
        keys, args = (OWNER_PREFIX + owner, VALUE_PREFIX + key), (_milliseconds(ttl_s), key)
        await self._asking.ask(lambda: self._redis.eval(_MARK, 2, *keys, *args))

    async def forget(self, owner: str) -> int:
        """Forget all values that are the owner's; return how many there were.

        What Redis does not answer for goes when its time is up.
        """
        forgotten, name = 0, OWNER_PREFIX + owner
        while marked := await self._asking.ask(lambda: self._popped(name)):
            keys = [VALUE_PREFIX.encode() + key for key in marked]
            forgotten += await self._asking.ask_or(0, partial(self._unlinked, keys))
        return forgotten

    async def stats(self) -> CacheStats:
        """Return what this process saw so far; counting the entries would take a scan."""
        return CacheStats(self._hits, self._misses, failures=self._asking.failures)

    async def lock(self, key: str, ttl_s: float) -> str | None:
        """Return a token, or None while another process has one. Without Redis nobody has."""
        token, ttl_ms = self._new_token(), _milliseconds(ttl_s)
        try:
            granted = await self._asking.ask_or(
                _GRANTED, lambda: self._redis.set(LOCK_PREFIX + key, token, px=ttl_ms, nx=True)
            )
        except asyncio.CancelledError:
            await self.unlock(key, token)  # It may be ours already, although nobody told us.
            raise
        return token if granted else None

    async def unlock(self, key: str, token: str) -> None:
        """Give the lock back, unless it lapsed and is somebody else's by now."""
        await self._asking.ask(lambda: self._redis.eval(_UNLOCK, 1, LOCK_PREFIX + key, token))

    async def _value(self, key: str) -> bytes | None:
        value = await self._redis.get(VALUE_PREFIX + key)
        return None if value is None else _bytes(value)

    async def _popped(self, name: str) -> list[bytes]:
        popped: list[Any] = await self._redis.zpopmin(name, SCAN_COUNT)
        return [_bytes(key) for key, _ in popped]

    async def _scan(self, cursor: int, pattern: str) -> tuple[int, list[bytes]]:
        there, keys = await self._redis.scan(cursor, match=pattern, count=SCAN_COUNT)
        return there, [_bytes(key) for key in keys]

    async def _unlinked(self, keys: list[bytes]) -> int:
        return int(await self._redis.unlink(*keys))


def _bytes(answer: object) -> bytes:
    """Return what Redis keeps; whoever stands in for one may answer with something else."""
    if isinstance(answer, str):
        return answer.encode()
    if not isinstance(answer, bytes):
        raise TypeError(f"Redis has answered with {type(answer).__name__}, where bytes are kept")
    return answer


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
