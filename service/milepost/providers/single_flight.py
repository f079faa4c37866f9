"""One model call for many that ask the same at the same time, here and in other processes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from milepost.providers import asked
from milepost.providers.cache import ReplyCache


class SingleFlight:
    """Lets the first caller of a key through, and the others once it has landed.

    Nobody waits longer than `wait_s`, nor a second time: who then still finds nothing in the cache
    asks the model itself. The lock between processes lapses after `wait_s`, should its holder die.
    """

    def __init__(self, cache: ReplyCache, *, wait_s: float, poll_s: float) -> None:
        self._cache = cache
        self._wait_s = wait_s
        self._poll_s = poll_s
        self._airborne: dict[str, asyncio.Event] = {}

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """Give a turn at asking: look into the cache once more before you do."""
        if (landing := self._airborne.get(key)) is not None:
            with asked.current().waiting(), suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s):
                    await landing.wait()
            yield
            return
        landing = self._airborne[key] = asyncio.Event()
        token = None
        try:
            with asked.current().waiting():
                token = await self._lock(key)
            yield
        finally:
            landing.set()
            del self._airborne[key]
            if token is not None:
                await self._cache.unlock(key, token)

    async def _lock(self, key: str) -> str | None:
        """Return the lock's token, or None after a long wait."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._wait_s
        while True:
            token = await self._cache.lock(key, self._wait_s)
            if token is not None or clock() >= deadline:
                return token
            await asyncio.sleep(self._poll_s)
