"""A provider that asks again when a call fails in a way that may pass."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from itertools import count

from milepost.core.backoff import RETRY_AFTER_S_MAX, wait_s
from milepost.core.errors import ProviderError
from milepost.core.model import Delta, ModelRequest, Provider
from milepost.providers import asked
from milepost.providers.closing import closing
from milepost.providers.opening import opening

JITTER = 0.1


def _chance() -> float:
    return random.random()  # noqa: S311 - it spreads waits, and guards nothing


class Retrying:
    """Makes up to `retries` further attempts, as long as none has said anything.

    It is for composing providers in Python. The service does not stack it on top of its runs: there
    the loop decides on retries, so that they are in the log, survive a crash, and start a reply
    anew that broke off in the middle.

    The waits grow linearly, by `cooldown_s` more each where the vendor limited the rate, and are at
    least what it asked for; up to a tenth is added by chance, so that those who failed together
    do not come back together.
    """

    def __init__(
        self,
        inner: Provider,
        *,
        retries: int = 2,
        backoff_s: float = 1.0,
        cooldown_s: float = 5.0,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: Callable[[], float] = _chance,
    ) -> None:
        self._inner = inner
        self._retries = retries
        self._backoff_s = backoff_s
        self._cooldown_s = cooldown_s
        self._sleep = sleep
        self._chance = chance

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the first reply that begins. Raises the last attempt's `ProviderError`."""
        for failures in count(1):
            async with closing(self._inner.stream(request)) as deltas:
                try:
                    opened = await opening(deltas)
                except ProviderError as error:
                    asked.current().fail(error)
                    if not self._may_pass(error, failures):
                        raise
                    wait = self._wait_s(error, failures)
                else:
                    for delta in opened:
                        yield delta
                    async for delta in deltas:
                        yield delta
                    return
            with asked.current().waiting():
                await self._sleep(wait)

    def _may_pass(self, error: ProviderError, failures: int) -> bool:
        if failures > self._retries or not error.retryable:
            return False
        return (error.retry_after_s or 0) <= RETRY_AFTER_S_MAX

    def _wait_s(self, error: ProviderError, failures: int) -> float:
        wait = wait_s(
            failures,
            error.code,
            error.retry_after_s,
            backoff_s=self._backoff_s,
            cooldown_s=self._cooldown_s,
        )
        return wait * (1 + JITTER * self._chance())
