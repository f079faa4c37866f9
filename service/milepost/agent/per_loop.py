"""Things that belong to one event loop, such as connections: opened when needed, and shared."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """One thing for each event loop, for as long as somebody holds it there."""

    def __init__(self, open_one: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._open_one = open_one
        self._places: dict[asyncio.AbstractEventLoop, _Place[T]] = {}

    @asynccontextmanager
    async def held(self) -> AsyncIterator[T]:
        """Give this loop's; the last who leaves closes it."""
        loop = asyncio.get_running_loop()
        if (place := self._places.get(loop)) is None:
            place = self._places[loop] = _Place()
        place.holders += 1
        try:
            yield await place.get(self._open_one)
        finally:
            place.holders -= 1
            if not place.holders:
                del self._places[loop]
                await place.stack.aclose()


class _Place(Generic[T]):
    """One loop's thing, and how many hold it."""

    def __init__(self) -> None:
        self.holders = 0
        self.stack = AsyncExitStack()
        self._turn = asyncio.Lock()
        self._things: list[T] = []

    async def get(self, open_one: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        """Return it, opened by whoever comes first."""
        if not self._things:
            async with self._turn:
                if not self._things:
                    self._things.append(await self.stack.enter_async_context(open_one()))
        return self._things[0]
