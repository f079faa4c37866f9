"""A transaction in Postgres that stays open, on a connection of its own meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from milepost.store.dialect import DialectName
from milepost.store.postgres_session import ANSWER_S, LOCK_TIMEOUT, Connection
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

_DIALECT: DialectName = "postgresql"
_SETTINGS = ("statement_timeout", "idle_in_transaction_session_timeout", "lock_timeout")

Run = Callable[[Connection, Work[Any]], Awaitable[Any]]
"""Drives work on a connection."""
Translated = Callable[[], AbstractContextManager[object]]
"""Turns the driver's errors into the store's."""


class PostgresTransaction:
    """One transaction on `connection`; the server ends it itself if nobody else does."""

    def __init__(
        self, connection: Connection, limit_s: float, run: Run, translated: Translated
    ) -> None:
        self._connection = connection
        self._statement_s = limit_s + FINISH_S
        limit_ms = str(round(self._statement_s * 1000))
        self._values = (limit_ms, limit_ms, LOCK_TIMEOUT)
        self._run = run
        self._translated = translated
        # A tool may ask for statements at once, and a connection waits for one answer at a time.
        self._turn = asyncio.Lock()

    async def begin(self) -> None:
        """Begin it, with settings that end with it."""
        self._connection.answer_s = self._statement_s + ANSWER_S
        settings = ", ".join(f"set_config('{name}', %s, true)" for name in _SETTINGS)
        async with self._connection.pipeline():
            await self._connection.execute(b"BEGIN")
            await self._connection.execute(f"SELECT {settings}".encode(), self._values)

    async def execute(self, sql: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Run a statement of somebody else's. Raises `StatementRefusedError`."""
        written, values = rendered(sql, parameters, _DIALECT)
        try:
            # A pipeline takes one statement at a time, so that no COMMIT hides behind another.
            async with self._turn, self._connection.pipeline():
                cursor = await self._connection.execute(written.encode(), values)
            if cursor.description is None:
                return []
            names = [column.name for column in cursor.description]
            return as_rows(names, await cursor.fetchmany(ROWS_MAX + 1))
        except (psycopg.Error, *UNSENDABLE) as error:
            raise StatementRefusedError(f"the database refused a statement: {error}") from error

    async def work(self, work: Work[T]) -> T:
        """Do work of the store's own within it."""
        with self._translated():
            async with self._turn:
                result: T = await self._run(self._connection, work)
            return result

    async def commit(self) -> None:
        """Make all of it durable."""
        with self._translated():
            async with self._turn:
                await self._commit()
            if self._connection.info.transaction_status is not TransactionStatus.IDLE:
                raise psycopg.OperationalError("the COMMIT was not answered")

    async def _commit(self) -> None:
        try:
            cursor = await self._connection.execute(b"COMMIT")
        except psycopg.IntegrityError as error:  # What a tool's own tables have put off until now.
            raise StatementRefusedError(f"the database refused the commit: {error}") from error
        if cursor.statusmessage == "ROLLBACK":  # That is no error to Postgres.
            raise StatementRefusedError("a statement was refused, so nothing was committed")

    async def leave(self) -> None:
        """Roll back what was not committed."""
        connection = self._connection
        async with self._turn:
            del connection.answer_s  # so that it is its class' again
            if connection.closed or connection.info.transaction_status is TransactionStatus.IDLE:
                return
            await connection.execute(b"ROLLBACK")
