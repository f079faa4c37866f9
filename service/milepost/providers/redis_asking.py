"""Asking Redis, and going on without it when it does not answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis.exceptions import RedisError

# Whoever takes longer than this is no help: everybody here can do without.
OPERATION_S_MAX = 0.2
REST_S = 5.0

# The third is uvloop's, for a write to a connection that has just been lost. Those behind it are
# what redis-py lets through where it takes apart what no Redis answers.
_FAILED = (RedisError, OSError, RuntimeError, LookupError, TypeError, ValueError)

T = TypeVar("T")
D = TypeVar("D")


def unheard(_: Exception | None) -> None:
    """Nobody wants to know."""


class Asking:
    """Leaves Redis alone for `REST_S` after a failure; then one caller tries it out.

    The others go without it meanwhile, so that a dead Redis delays nobody but that one.
    `on_change` is told why Redis is left alone, and with None that it answers again; once each. An
    answer that takes longer than `within_s` is none.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[Exception | None], None] = unheard,
        within_s: float = OPERATION_S_MAX,
    ) -> None:
        self._clock = clock
        self._within_s = within_s
        self._on_change = on_change
        self._rests_until: float | None = None
        self.failures = 0

    async def ask(self, operation: Callable[[], Awaitable[T]]) -> T | None:
        """Return what Redis answers, or None where it does not."""
        return await self.ask_or(None, operation)

    async def ask_or(self, otherwise: D, operation: Callable[[], Awaitable[T]]) -> T | D:
        """Return what Redis answers, or `otherwise` where it does not; that counts as a failure."""
        now = self._clock()
        if self._rests_until is not None:
            if now < self._rests_until:
                self.failures += 1
                return otherwise
            # This call tries it; the others go on as if Redis were still away.
            self._rests_until = now + REST_S
        try:
            async with asyncio.timeout(self._within_s):
                answer = await operation()
        except _FAILED as error:
            self.failures += 1
            self._rest(error)
            return otherwise
        if self._rests_until is not None:
            self._rests_until = None
            self._on_change(None)
        return answer

    def _rest(self, error: Exception) -> None:
        rested = self._rests_until is not None
        self._rests_until = self._clock() + REST_S
        if not rested:
            self._on_change(error)
