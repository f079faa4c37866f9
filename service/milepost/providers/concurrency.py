"""A provider that is asked so much at a time, and no more."""

import asyncio
from collections.abc import AsyncGenerator

from milepost.core.errors import ProviderError
from milepost.core.model import Delta, ModelRequest, Provider
from milepost.providers import asked
from milepost.providers.closing import closing

QUEUE_S_MAX = 60.0


class Concurrent:
    """Has at most `calls_max` calls in hand, here in this process; who waits is served in order.

    A call that gets no place within `queue_s` fails, and may be tried again later.
    """

    def __init__(
        self, inner: Provider, *, calls_max: int, name: str, queue_s: float = QUEUE_S_MAX
    ) -> None:
        self._inner = inner
        self._calls_max = calls_max
        self._name = name
        self._queue_s = queue_s
        self._places = asyncio.Semaphore(calls_max)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the reply. Raises `ProviderError` if no place becomes free."""
        await self._enter()
        try:
            async with closing(self._inner.stream(request)) as deltas:
                async for delta in deltas:
                    yield delta
        finally:
            self._places.release()

    async def _enter(self) -> None:
        try:
            async with asyncio.timeout(self._queue_s):
                with asked.current().waiting():
                    await self._places.acquire()
        except TimeoutError:
            raise ProviderError(
                f"{self._name} is held to {self._calls_max} calls at a time, and none of them ended"
                f" within {self._queue_s:g} s; try again later, or allow it more",
                code="provider_rate_limited",
                retryable=True,
            ) from None
