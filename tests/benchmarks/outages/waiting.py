"""Waiting for what tells nobody of itself: another process's doing, mostly."""

import asyncio
from collections.abc import Callable

LOOK_S = 0.02


async def until(is_so: Callable[[], bool], within_s: float) -> None:
    """Return once it is so. Raises `TimeoutError`."""
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(LOOK_S)
