"""Parts of a process that go on until they are cancelled, while a test looks at them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from tests.runtime.workshop import TIMEOUT_S


class Part(Protocol):
    """What a process runs in the background."""

    async def run(self) -> None:
        """Go on until cancelled."""


@asynccontextmanager
async def running(part: Part) -> AsyncIterator[None]:
    """Have it run until the test has seen enough, which must not take long."""
    task = asyncio.create_task(part.run())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield
    finally:
        task.cancel()
        await asyncio.wait({task})
