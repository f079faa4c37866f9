"""A transaction in SQLite's writer thread that stays open: all others wait until it is over."""

import asyncio
import contextlib
import queue
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from milepost.store.dialect import DialectName
from milepost.store.engine import DatabaseUnavailableError
from milepost.store.transaction import (
    FINISH_S,
    ROWS_MAX,
    UNSENDABLE,
    Row,
    StatementRefusedError,
    as_rows,
    rendered,
)
from milepost.store.work import Work

T = TypeVar("T")

_DIALECT: DialectName = "sqlite"

Run = Callable[[sqlite3.Connection, Work[Any]], Any]
"""Drives work on a connection."""
Translated = Callable[[], AbstractContextManager[object]]
"""Turns the driver's errors into the store's."""


class _Step(Generic[T]):
    """What the writer thread is to do next, and where its result goes."""

    __slots__ = ("_act", "_loop", "future")

    def __init__(self, act: Callable[[sqlite3.Connection], T]) -> None:
        self._act = act
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self._loop.create_future()

    def take(self, connection: sqlite3.Connection) -> None:
        try:
            result, error = self._act(connection), None
        except Exception as raised:
            result, error = None, raised
        self.tell(result, error)

    def tell(self, result: T | None, error: Exception | None) -> None:
        with contextlib.suppress(RuntimeError):  # The loop was closed: nobody waits any more.
            self._loop.call_soon_threadsafe(self._settle, result, error)

    def _settle(self, result: Any, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class SqliteTransaction:
    """Steps of one transaction, taken by the writer thread as they come, for `limit_s` at most."""

    def __init__(self, limit_s: float, run: Run, translated: Translated) -> None:
        self._limit_s = limit_s + FINISH_S
        self._run = run
        self._translated = translated
        self._steps: queue.SimpleQueue[_Step[Any] | None] = queue.SimpleQueue()
        self._begun: _Step[None] = _Step(lambda _: None)
        self._over = False

    # --- What the event loop does ---

    async def begin(self) -> None:
        """Wait until the writer has begun it."""
        await self._begun.future

    async def execute(self, sql: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Run a statement of somebody else's. Raises `StatementRefusedError`."""
        written, values = rendered(sql, parameters, _DIALECT)

        def act(connection: sqlite3.Connection) -> list[Row]:
            try:
                return _rows(connection.execute(written, values))
            except (sqlite3.Error, *UNSENDABLE) as error:
                raise StatementRefusedError(f"the database refused a statement: {error}") from error

        return await self._take(act)

    async def work(self, work: Work[T]) -> T:
        """Do work of the store's own within it."""

        def act(connection: sqlite3.Connection) -> T:
            with self._translated():
                result: T = self._run(connection, work)
                return result

        return await self._take(act)

    async def commit(self) -> None:
        """Make all of it durable."""

        def act(connection: sqlite3.Connection) -> None:
            with self._translated():
                _commit(connection)

        await self._take(act)

    def leave(self) -> None:
        """End it: what was not committed is rolled back."""
        self._steps.put(None)

    async def _take(self, act: Callable[[sqlite3.Connection], T]) -> T:
        step = _Step(act)
        self._steps.put(step)
        if self._over:  # The writer may have looked for the last time.
            step.tell(None, _too_late())
        return await step.future

    # --- What the writer thread does ---

    def serve(self, connection: sqlite3.Connection) -> None:
        """Begin, take the steps, and end: nothing is left open, whatever happens."""
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._over = True
            self._begun.tell(None, DatabaseUnavailableError(f"SQLite: {error}"))
            return
        self._begun.tell(None, None)
        until = time.monotonic() + self._limit_s
        connection.set_progress_handler(lambda: time.monotonic() > until, 10_000)
        try:
            while connection.in_transaction and (step := self._next(until)) is not None:
                step.take(connection)
        finally:
            connection.set_progress_handler(None, 0)
            self._over = True
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._refuse_the_rest()

    def _next(self, until: float) -> _Step[Any] | None:
        try:
            return self._steps.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return None

    def _refuse_the_rest(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                if step := self._steps.get_nowait():
                    step.tell(None, _too_late())


def _rows(cursor: sqlite3.Cursor) -> list[Row]:
    try:
        if cursor.description is None:
            return []
        names = [column[0] for column in cursor.description]
        return as_rows(names, cursor.fetchmany(ROWS_MAX + 1))
    finally:
        cursor.close()


def _commit(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("COMMIT")
    except sqlite3.IntegrityError as error:  # What a tool's own tables have put off until now.
        raise StatementRefusedError(f"the database refused the commit: {error}") from error


def _too_late() -> StatementRefusedError:
    return StatementRefusedError("the transaction's time is up, and it was rolled back")
