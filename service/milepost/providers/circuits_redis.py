"""Circuits in Redis or Valkey, so that all processes leave a failing model alone together."""

import asyncio
import secrets
from collections.abc import Callable
from functools import partial

from redis.asyncio import Redis

from milepost.providers.circuits import (
    FORGET_S,
    PROBE_WAIT_S,
    Circuits,
    Entry,
    Tolerance,
)
from milepost.providers.redis_asking import Asking
from milepost.providers.redis_clock import NOW, time_for

CIRCUIT_PREFIX = "milepost:circuit:"

_NUMBER = """
local function number(field) return tonumber(redis.call('hget', KEYS[1], field) or '') end
"""
# cooldown, token, longest wait for a probe -> wait in ms, 1 for a probe
_ENTER = """
local open_until = number('open_until')
if not open_until then return {0, 0} end
if now < open_until then return {open_until - now, 0} end
local probe_until = number('probe_until')
if probe_until and now < probe_until then
  return {math.min(probe_until - now, tonumber(ARGV[4])), 0}
end
redis.call('hset', KEYS[1], 'probe', ARGV[3], 'probe_until', now + ARGV[2])
return {0, 1}
"""
# cooldown, failures allowed, time to forget
_FAIL = """
local failures = redis.call('hincrby', KEYS[1], 'failures', 1)
local open_until = number('open_until')
if failures >= tonumber(ARGV[3]) and not (open_until and now < open_until) then
  redis.call('hset', KEYS[1], 'open_until', now + ARGV[2])
  redis.call('hdel', KEYS[1], 'probe', 'probe_until')
end
redis.call('pexpire', KEYS[1], ARGV[4])
return 1
"""
_LEAVE = """
if redis.call('hget', KEYS[1], 'probe') == ARGV[1] then
  redis.call('hdel', KEYS[1], 'probe', 'probe_until')
end
return 1
"""


class RedisCircuits:
    """Asks Redis; while it does not answer, `local` takes its place in this process.

    `now_ms` is the server's own clock unless one is given.
    """

    def __init__(
        self,
        redis: Redis,
        asking: Asking,
        local: Circuits,
        tolerance: Tolerance | None = None,
        *,
        now_ms: Callable[[], int] | None = None,
        new_token: Callable[[], str] = secrets.token_hex,
    ) -> None:
        self._redis = redis
        self._asking = asking
        self._local = local
        self._now_ms = now_ms
        self._new_token = new_token
        tolerance = tolerance or Tolerance()
        self._max_failures = tolerance.max_failures
        self._cooldown_ms = round(tolerance.cooldown_s * 1000)
        self._enter = redis.register_script(NOW + _NUMBER + _ENTER)
        self._fail = redis.register_script(NOW + _NUMBER + _FAIL)
        self._leave = redis.register_script(_LEAVE)

    async def enter(self, name: str) -> Entry:
        """Return the leave to ask, or how long to wait for it."""
        token = self._new_token()
        args = [time_for(self._now_ms), self._cooldown_ms, token, round(PROBE_WAIT_S * 1000)]
        try:
            answer = await self._asking.ask(partial(self._entered, name, args))
        except asyncio.CancelledError:
            # The probe may be ours already, although nobody told us.
            await self.leave(name, Entry(probe=token))
            raise
        if answer is None:
            return await self._local.enter(name)
        wait_ms, probes = answer
        return Entry(wait_ms / 1000, token if probes else "")

    async def succeed(self, name: str) -> None:
        """Close the circuit."""
        answer = await self._asking.ask(lambda: self._redis.unlink(CIRCUIT_PREFIX + name))
        if answer is None:
            await self._local.succeed(name)

    async def fail(self, name: str) -> None:
        """Count a failure; open the circuit if it was the last allowed, or the probe's."""
        forget_ms = self._cooldown_ms + round(FORGET_S * 1000)
        args = [time_for(self._now_ms), self._cooldown_ms, self._max_failures, forget_ms]
        answer = await self._asking.ask(partial(self._fail, [CIRCUIT_PREFIX + name], args))
        if answer is None:
            await self._local.fail(name)

    async def leave(self, name: str, entry: Entry) -> None:
        """Let the next one probe, if this was the probe."""
        if not entry.probe:
            return
        args = [entry.probe]
        answer = await self._asking.ask(partial(self._leave, [CIRCUIT_PREFIX + name], args))
        if answer is None:
            await self._local.leave(name, entry)

    async def _entered(self, name: str, args: list[int | str]) -> tuple[int, int]:
        wait_ms, probes = map(int, await self._enter([CIRCUIT_PREFIX + name], args))
        return wait_ms, probes
