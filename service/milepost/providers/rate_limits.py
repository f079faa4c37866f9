"""A provider that keeps to so many requests and tokens a minute."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from math import ceil

from milepost.core.errors import ProviderError
from milepost.core.model import Delta, ModelRequest, Provider, Spent
from milepost.core.usage import Usage
from milepost.providers import asked
from milepost.providers.closing import closing
from milepost.providers.tokens import estimate_request
from milepost.providers.windows import WINDOW_S, Quota, Taken, Windows

# Few replies come near their bound: to reserve all of it would let hardly anybody through.
REPLY_TOKENS_GUESS = 500


class RateLimited:
    """Lets calls through as the quota allows, in the order in which they came.

    What a call will take is guessed before it and corrected after it. One that would have to wait
    for longer than that says fails at once, and says when to come back. Calls of all processes
    count that have the `windows` and the `key` in common.
    """

    def __init__(
        self,
        inner: Provider,
        windows: Windows,
        quota: Quota,
        *,
        name: str,
        key: str | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._inner = inner
        self._windows = windows
        self._quota = quota
        self._name = name
        self._key = key or name
        self._sleep = sleep
        self._turn = asyncio.Lock()
        self._next_s = 0.0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the reply. Raises `ProviderError` if the quota is used up for too long."""
        with asked.current().waiting():
            taken = await self._take(_guess(request))
        spent: Usage | None = None
        try:
            async with closing(self._inner.stream(request)) as deltas:
                async for delta in deltas:
                    if isinstance(delta, Spent):
                        spent = delta.usage
                    yield delta
        finally:
            # What nobody counted stays as it was guessed: the vendor may have counted it.
            if spent is not None:
                tokens = spent.input_tokens + spent.output_tokens
                await self._windows.correct(self._key, taken, tokens)

    async def _take(self, tokens: int) -> Taken:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(self._quota.queue_s):
                await self._turn.acquire()
        except TimeoutError:
            raise self._used_up(self._next_s) from None
        try:
            return await self._take_in_turn(tokens, self._quota.queue_s - (clock() - began))
        finally:
            self._turn.release()

    async def _take_in_turn(self, tokens: int, left_s: float) -> Taken:
        while (taken := await self._windows.take(self._key, self._quota, tokens)).wait_s:
            self._next_s = taken.wait_s
            left_s -= taken.wait_s
            if left_s < 0:
                raise self._used_up(taken.wait_s)
            await self._sleep(taken.wait_s)
        return taken

    def _used_up(self, wait_s: float) -> ProviderError:
        limits = {"requests": self._quota.requests, "tokens": self._quota.tokens}
        told = " and ".join(f"{limit} {what}" for what, limit in limits.items() if limit)
        return ProviderError(
            f"{self._name} is held to {told} a minute, and they are used up; come back in"
            f" {ceil(wait_s)} s, or allow it more",
            code="provider_rate_limited",
            retryable=True,
            retry_after_s=min(wait_s, WINDOW_S),
        )


def _guess(request: ModelRequest) -> int:
    """Return about how many tokens the call will take."""
    reply = min(request.tokens_max or REPLY_TOKENS_GUESS, REPLY_TOKENS_GUESS)
    return estimate_request(request) + reply
