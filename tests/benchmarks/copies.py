"""Copies of a run that is there, made inside the database: many of them, which nobody waits for."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing

import psycopg
from sqlalchemy import Table

from milepost.store import schema
from milepost.store.address import Address, SqliteAddress

CHUNK = 10_000
WAITING = (schema.sessions, schema.runs, schema.events, schema.approvals)
OVER = (schema.sessions, schema.runs, schema.events, schema.spans, schema.usage)

_KEYS = {schema.sessions: "id", schema.runs: "id"}
_OWN_IDS = frozenset({"id", "run_id", "session_id", "append_id", "approval_id", "trace_id"})

Execute = Callable[[str], object]


def multiply(address: Address, status: str, tables: Sequence[Table], many: int) -> None:
    """Add so many copies of the first run of this status, with its rows in these tables."""
    if isinstance(address, SqliteAddress):
        with closing(sqlite3.connect(address.path, isolation_level=None)) as file:
            file.execute("PRAGMA synchronous = OFF")
            found = file.execute(_first(status)).fetchone()
            _copy(file.execute, found, tables, many, _COUNTED)
            file.execute("ANALYZE")
        return
    with psycopg.connect(address.url, autocommit=True) as server:
        row = server.execute(_first(status).encode()).fetchone()
        _copy(lambda text: server.execute(text.encode()), row, tables, many, _SERIES)
        server.execute(b"VACUUM ANALYZE")


def _first(status: str) -> str:
    return f"SELECT id, session_id FROM runs WHERE status = '{status}' ORDER BY id LIMIT 1"


def _copy(
    execute: Execute,
    original: tuple[str, str] | None,
    tables: Sequence[Table],
    many: int,
    counting: str,
) -> None:
    assert original is not None, "there is a run to copy"
    (before,) = execute("SELECT count(*) FROM runs").fetchone()  # type: ignore[attr-defined]
    for first in range(before, before + many, CHUNK):
        last = min(before + many, first + CHUNK) - 1
        copies = counting.format(first=first, last=last)
        for table in tables:
            execute(_copying(table, original, copies))


def _copying(table: Table, original: tuple[str, str], copies: str) -> str:
    names = [column.name for column in table.columns]
    chosen = [
        f"original.{name} || '_' || copies.copy" if name in _OWN_IDS else f"original.{name}"
        for name in names
    ]
    run_id, session_id = original
    wanted = session_id if table is schema.sessions else run_id
    return (
        f"INSERT INTO {table.name} ({', '.join(names)}) SELECT {', '.join(chosen)}"
        f" FROM {table.name} original, {copies}"
        f" WHERE original.{_KEYS.get(table, 'run_id')} = '{wanted}'"
    )


_SERIES = "generate_series({first}, {last}) AS copies(copy)"
_COUNTED = (
    "(WITH RECURSIVE counted(copy) AS (SELECT {first} UNION ALL"
    " SELECT copy + 1 FROM counted WHERE copy < {last}) SELECT copy FROM counted) AS copies"
)
