"""The store for a thread of its own: the same work on a connection that no event loop shares."""

from pathlib import Path
from typing import Any, Protocol, TypeVar

import psycopg

from milepost.store import engine_postgres, engine_sqlite, postgres_session
from milepost.store.postgres_session import ThreadConnection
from milepost.store.work import Call, Rows, Work

T = TypeVar("T")


class ThreadStore(Protocol):
    """What a thread does work with."""

    def write(self, work: Work[T]) -> T:
        """Do work in one transaction."""

    def close(self) -> None:
        """Let go of the connection."""


class SqliteThreadStore:
    """A connection of one's own to the file."""

    def __init__(self, path: Path) -> None:
        with engine_sqlite.translated():
            self._connection = engine_sqlite.connect(path)

    def write(self, work: Work[T]) -> T:
        """Do work in one transaction."""
        return engine_sqlite.transact(self._connection, work)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class PostgresThreadStore:
    """A connection of one's own, opened when needed and again after it broke."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: ThreadConnection | None = None

    def write(self, work: Work[T]) -> T:
        """Do work in one transaction."""
        with engine_postgres.translated():
            connection = self._connected()
            try:
                with connection.transaction():
                    is_ours = connection.prepare_threshold is not None
                    for statement in postgres_session.first_statements(is_ours=is_ours):
                        connection.execute(statement.encode())
                    return _run(connection, work)
            except psycopg.errors.ReadOnlySqlTransaction:
                connection.close()  # on a standby, where it would stay
                raise

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> ThreadConnection:
        if self._connection is None or self._connection.closed:
            self._connection = postgres_session.connect(self._url)
        return self._connection


def _run(connection: ThreadConnection, work: Work[T]) -> T:
    sent: Any = None
    while True:
        try:
            asked = work.send(sent)
        except StopIteration as finished:
            result: T = finished.value
            return result
        if isinstance(asked, Call):
            sent = _execute(connection, asked)
        else:
            sent = [_execute(connection, call) for call in asked]


def _execute(connection: ThreadConnection, call: Call) -> Rows:
    text, values = call.rendered("postgresql")
    cursor = connection.execute(text.encode(), values)
    return cursor.fetchall() if cursor.description else []
