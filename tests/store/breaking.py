"""An engine whose connection breaks when told to: before a request, or right after a commit."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from milepost.store.dialect import DialectName
from milepost.store.engine import DatabaseUnavailableError, Engine, tell_each
from milepost.store.transaction import OpenTransaction
from milepost.store.work import Work

T = TypeVar("T")


class BreakingEngine:
    """Passes work to a real engine. `breaks` answers are lost; `absences` requests come to nothing.

    `absences_after` is how many come to nothing after the next lost answer, `asked` how many were
    handed in; `back` is set when the absences are over.

    `heard` is how many more requests get an answer, if not all do. Another one waits until it is
    interrupted, `silent` is set meanwhile, and then its connection has broken.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.breaks = 0
        self.absences = 0
        self.absences_after = 0
        self.asked = 0
        self.heard: int | None = None
        self.back = asyncio.Event()
        self.silent = asyncio.Event()

    @property
    def dialect(self) -> DialectName:
        """Say which of the two databases this is."""
        return self._engine.dialect

    async def read(self, work: Work[T]) -> T:
        """Do work that changes nothing."""
        await self._reach()
        return await self._engine.read(work)

    async def write_each(self, work: Work[list[T]], told: Sequence[asyncio.Future[T]]) -> None:
        """Do work as `write` does, and tell each its part."""
        tell_each(told, await self.write(work))

    async def write(self, work: Work[T]) -> T:
        """Do work in one transaction, whose answer may be lost."""
        await self._reach()
        result = await self._engine.write(work)
        if self.breaks:
            self.breaks -= 1
            self.absences, self.absences_after = self.absences_after, 0
            raise DatabaseUnavailableError("the connection broke")
        return result

    @property
    def transactions_max(self) -> int:
        """Say how many transactions may stay open at once."""
        return self._engine.transactions_max

    @asynccontextmanager
    async def transaction(self, limit_s: float) -> AsyncIterator[OpenTransaction]:
        """Give a transaction of the real engine."""
        await self._reach()
        async with self._engine.transaction(limit_s) as opened:
            yield opened

    async def scrub(self) -> bool:
        """Scrub what is behind."""
        return await self._engine.scrub()

    async def close(self) -> None:
        """Let go of every connection."""
        await self._engine.close()

    async def _reach(self) -> None:
        self.asked += 1
        if self.heard == 0:
            await self._wait_in_vain()
        if self.heard:
            self.heard -= 1
        if self.absences:
            self.absences -= 1
            if not self.absences:
                self.back.set()
            raise DatabaseUnavailableError("the database is away")

    async def _wait_in_vain(self) -> None:
        """Wait as a driver does that takes its interruption for an end of the connection."""
        self.silent.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise DatabaseUnavailableError("the connection broke") from None
