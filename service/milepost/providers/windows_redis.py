"""What the last minute took of a quota, in Redis or Valkey: all processes together."""

from collections.abc import Callable
from functools import partial

from redis.asyncio import Redis

from milepost.providers.redis_asking import Asking
from milepost.providers.redis_clock import NOW, time_for
from milepost.providers.windows import WINDOW_S, Quota, Taken, Windows, bounded

WINDOW_PREFIX = "milepost:window:"

# KEYS: requests, tokens. ARGV: the time, the window in seconds, then an amount and a limit
# for each key, whose limit is empty where there is none. Answers a wait in ms, the second, and
# how many requests are left.
_TAKE = """
local second = math.floor(now / 1000)
local window = tonumber(ARGV[2])

local function wait_ms(key, amount, limit)
  local held = redis.call('hgetall', key)
  local taken, excess = {}, amount - limit
  for at = 1, #held, 2 do
    local filed = tonumber(held[at])
    if second > filed + window then
      redis.call('hdel', key, held[at])
    else
      taken[#taken + 1] = {filed, tonumber(held[at + 1])}
      excess = excess + held[at + 1]
    end
  end
  local left = -excess
  table.sort(taken, function(one, other) return one[1] < other[1] end)
  local wait = 0
  for _, each in ipairs(taken) do
    if excess <= 0 then break end
    excess = excess - each[2]
    wait = (each[1] + 1 + window) * 1000 - now
  end
  return wait, left
end

local wait, left = 0, {}
for at = 1, 2 do
  local limit = tonumber(ARGV[2 * at + 2])
  if limit then
    local waits
    waits, left[at] = wait_ms(KEYS[at], tonumber(ARGV[2 * at + 1]), limit)
    wait = math.max(wait, waits)
  end
end
if wait > 0 then return {wait, 0, 0} end
for at = 1, 2 do
  if tonumber(ARGV[2 * at + 2]) then
    redis.call('hincrby', KEYS[at], second, ARGV[2 * at + 1])
    redis.call('expire', KEYS[at], 2 * window)
  end
end
return {0, second, left[1] or 0}
"""
_CORRECT = """
if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[1], ARGV[2])
end
return 1
"""


class RedisWindows:
    """Asks Redis; while it does not answer, `local` takes its place in this process.

    `now_ms` is the server's own clock unless one is given.
    """

    def __init__(
        self,
        redis: Redis,
        asking: Asking,
        local: Windows,
        *,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self._asking = asking
        self._local = local
        self._now_ms = now_ms
        self._take = redis.register_script(NOW + _TAKE)
        self._correct = redis.register_script(_CORRECT)

    async def take(self, name: str, quota: Quota, tokens: int) -> Taken:
        """Take one request and so many tokens, or say when to come back."""
        tokens = bounded(tokens, quota)
        limits = [1, _or_empty(quota.requests), tokens, _or_empty(quota.tokens)]
        args = [time_for(self._now_ms), WINDOW_S, *limits]
        keys = [_requests_key(name), _tokens_key(name)]
        answer = await self._asking.ask(partial(self._taken, keys, args))
        if answer is None:
            return await self._local.take(name, quota, tokens)
        wait_ms, second, left = answer
        if wait_ms:
            return Taken(wait_ms / 1000)
        bound = quota.requests is not None
        return Taken(second=second, tokens=tokens, left=left if bound else None)

    async def correct(self, name: str, taken: Taken, tokens: int) -> None:
        """Count `tokens` instead of those that were taken."""
        args = [taken.second, tokens - taken.tokens]
        answer = await self._asking.ask(partial(self._correct, [_tokens_key(name)], args))
        if answer is None:
            await self._local.correct(name, taken, tokens)

    async def _taken(self, keys: list[str], args: list[int | str]) -> tuple[int, int, int]:
        wait_ms, second, left = map(int, await self._take(keys, args))
        return wait_ms, second, left


def _or_empty(limit: int | None) -> int | str:
    return "" if limit is None else limit


def _requests_key(name: str) -> str:
    return f"{WINDOW_PREFIX}{{{name}}}:requests"


def _tokens_key(name: str) -> str:
    return f"{WINDOW_PREFIX}{{{name}}}:tokens"
