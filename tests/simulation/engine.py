"""A process' way to the database, on which requests are late, lost, or answered into the void."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from milepost.store.dialect import DialectName
from milepost.store.engine import DatabaseUnavailableError, tell_each
from milepost.store.transaction import OpenTransaction
from milepost.store.work import Call, Work
from tests.simulation.database import Database
from tests.simulation.loop import Process, VirtualLoop
from tests.simulation.weather import Fate, Weather

T = TypeVar("T")


class SimulatedEngine:
    """Carries work to the one database and its result back, as the weather permits.

    What was sent reaches the database whatever becomes of the sender.
    """

    dialect: DialectName = "sqlite"
    transactions_max = 1

    def __init__(
        self, database: Database, loop: VirtualLoop, weather: Weather, process: Process
    ) -> None:
        self._database = database
        self._loop = loop
        self._weather = weather
        self._process = process
        self._outside = loop.context_of(loop.world)
        self.on_commit: Callable[[frozenset[str]], None] = lambda _: None
        self.away_until_s = 0.0

    async def read(self, work: Work[T]) -> T:
        """Do work that changes nothing, each statement on the newest state."""
        return await self._send(work, self._weather.fate_of_read(), self._read)

    async def write_each(self, work: Work[list[T]], told: Sequence[asyncio.Future[T]]) -> None:
        """Do work as `write` does, and tell each its part."""
        tell_each(told, await self.write(work))

    async def write(self, work: Work[T]) -> T:
        """Do work in one transaction."""
        return await self._send(work, self._weather.fate_of_write(), self._write)

    def write_at_once(self, work: Work[T]) -> T:
        """Do work in one transaction, for a thread that has waited for its answer already."""
        match self._weather.fate_of_write():
            case _ if self._is_away():
                raise _unavailable("is away")
            case Fate.LOST | Fate.CUT:
                raise _unavailable("broke")
            case Fate.UNANSWERED | Fate.LATE:
                self._commit(work)
                raise _unavailable("broke after the commit")
            case Fate.DONE:
                return self._commit(work)

    def transaction(self, limit_s: float) -> AbstractAsyncContextManager[OpenTransaction]:
        """Give none: no tool here writes in the run's database."""
        raise NotImplementedError(f"no transaction of {limit_s} s is simulated")

    async def scrub(self) -> bool:
        """Have nothing to scrub."""
        return True

    async def close(self) -> None:
        """Let go of nothing."""

    async def _send(
        self,
        work: Work[T],
        fate: Fate,
        arrive: "Callable[[Work[Any], Fate, asyncio.Future[Any]], None]",
    ) -> T:
        loop = self._loop
        answer: asyncio.Future[T] = loop.create_future()
        loop.call_at(
            loop.time() + self._weather.way_s(), arrive, work, fate, answer, context=self._outside
        )
        return await answer

    def _read(self, work: Work[Any], fate: Fate, answer: "asyncio.Future[Any]") -> None:
        if not self._process.alive or answer.done():
            return
        if self._is_away() or fate is Fate.LOST:
            self._fail(answer, "broke")
            return
        if fate is Fate.CUT:
            self._read_slowly(work, answer, None)
            return
        try:
            result = self._database.read(work)
        except Exception as error:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    def _read_slowly(self, work: Work[Any], answer: "asyncio.Future[Any]", sent: Any) -> None:
        """Do a statement, and the next one after a while: much may have changed by then."""
        if answer.done():
            return
        try:
            asked = work.send(sent)
            calls = (asked,) if isinstance(asked, Call) else asked
            found = [self._database.read(_only(call)) for call in calls]
        except StopIteration as finished:
            answer.set_result(finished.value)
            return
        except Exception as error:
            answer.set_exception(error)
            return
        rows = found[0] if isinstance(asked, Call) else found
        when_s = self._loop.time() + self._weather.gap_s()
        self._loop.call_at(when_s, self._read_slowly, work, answer, rows, context=self._outside)

    def _write(self, work: Work[Any], fate: Fate, answer: "asyncio.Future[Any]") -> None:
        if (not self._process.alive or answer.done()) and self._weather.forgets():
            return
        if self._is_away() or fate is Fate.LOST:
            self._fail(answer, "broke before the commit")
            return
        if fate is Fate.CUT:
            work = _cut(work, self._weather.statements())
        elif fate is Fate.LATE:
            self._fail(answer, "broke, and the commit came late")
            when_s = self._loop.time() + self._weather.late_s()
            self._loop.call_at(
                when_s, self._write, work, Fate.UNANSWERED, answer, context=self._outside
            )
            return
        try:
            result = self._commit(work)
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
            return
        if fate is Fate.UNANSWERED:
            self._fail(answer, "broke after the commit")
        elif back_s := self._weather.back_s():
            when_s = self._loop.time() + back_s
            self._loop.call_at(when_s, _give, answer, result, context=self._outside)
        else:
            _give(answer, result)

    def _commit(self, work: Work[T]) -> T:
        self._database.writer = self._process.name
        result = self._database.write(work)
        if self._database.changed and self._process.alive:
            self.on_commit(self._database.told)
        return result

    def _is_away(self) -> bool:
        return self._loop.time() < max(self.away_until_s, self._weather.database_away_until_s)

    def _fail(self, answer: "asyncio.Future[Any]", how: str) -> None:
        """Let the sender find out after a while."""
        when_s = self._loop.time() + self._weather.back_s()
        error = _unavailable(how)
        self._loop.call_at(when_s, _refuse, answer, error, context=self._outside)


def _give(answer: "asyncio.Future[Any]", result: object) -> None:
    if not answer.done():
        answer.set_result(result)


def _refuse(answer: "asyncio.Future[Any]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


def _unavailable(how: str) -> DatabaseUnavailableError:
    return DatabaseUnavailableError(f"the connection {how}")


def _only(call: Call) -> Work[Any]:
    return (yield call)


def _cut(work: Work[Any], statements: int) -> Work[Any]:
    """Do so many statements of the work, and have the connection break at the next."""
    sent: Any = None
    for _ in range(statements):
        try:
            sent = yield work.send(sent)
        except StopIteration as finished:
            return finished.value
    work.close()
    raise _unavailable("broke in the middle")
