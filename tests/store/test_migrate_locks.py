"""What migrations may do while the service runs: nothing that keeps others from a table for long.

The statements are those that Postgres is sent, so that it does not matter how a migration spells
them.
"""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from milepost.store.address import PostgresAddress
from milepost.store.migrate import migrate
from milepost.store.migrations import numbers
from tests.databases import database, named

_TABLE = r"(?:ONLY )?(?P<table>\w+)"
_ALTER = rf"ALTER TABLE (?:IF EXISTS )?{_TABLE} "
# What each does to others, by what gives it away.
LONG_LOCKS = {
    "an index that keeps writers out (make it CONCURRENTLY)": (
        rf"CREATE (?:UNIQUE )?INDEX (?!CONCURRENTLY)(?:IF NOT EXISTS )?\w+ ON {_TABLE}"
    ),
    "a default that is computed for every row (add the column, then fill it in parts)": (
        rf"{_ALTER}ADD COLUMN .*(?:DEFAULT [^,]*\(|GENERATED|SERIAL)"
    ),
    "a column that rows of the version before would lack (give it a default)": (
        rf"{_ALTER}ADD COLUMN (?!.*DEFAULT).*NOT NULL"
    ),
    "another type (add a column, and leave the old one)": (
        rf"{_ALTER}ALTER COLUMN \w+ (?:SET DATA )?TYPE"
    ),
    "a look at every row (add a CHECK NOT VALID, validate it in another step)": (
        rf"{_ALTER}ALTER COLUMN \w+ SET NOT NULL"
    ),
    "a constraint that is checked at once (add it NOT VALID, validate it in another step)": (
        rf"{_ALTER}ADD (?:CONSTRAINT \w+ )?(?:CHECK|FOREIGN KEY|UNIQUE|PRIMARY KEY|EXCLUDE)"
        r"(?!.*(?:NOT VALID|USING INDEX))"
    ),
    "a change of many rows in one transaction (do it in parts)": (
        rf"(?:UPDATE|DELETE FROM) {_TABLE} "
    ),
    "a table written anew": rf"(?:VACUUM FULL|CLUSTER|REINDEX TABLE) {_TABLE}",
    "a column or a name that the version before still uses": rf"{_ALTER}(?:DROP COLUMN|RENAME)",
    "a table that the version before still uses": rf"DROP TABLE (?:IF EXISTS )?{_TABLE}",
    "a lock that is asked for by name": rf"LOCK TABLE {_TABLE}",
}
NOBODY_YET = "nobody ran it when this was made"
# Nothing is added here but with a reason that holds where the tables are large and busy.
ALLOWED = {
    **{f"{number:04}": NOBODY_YET for number in range(1, 16)},
    "0019": (
        "renames the log and puts another in its place under one lock and in one transaction, which"
        " reads no row: the name is never missing, and statements find the new one"
    ),
}


def long_locks(statements: Sequence[str]) -> list[tuple[str, str]]:
    """Return what a migration's statements do that takes long where others work, and to what."""
    made = set(re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", " ".join(statements)))
    return [
        (what, found["table"])
        for statement in statements
        for what, pattern in LONG_LOCKS.items()
        if (found := re.match(pattern, " ".join(statement.split())))
        and found["table"] not in {*made, "alembic_version"}
    ]


@pytest.fixture(scope="module")
def sent(postgres_url: str) -> dict[str, list[str]]:
    """What each migration sends to Postgres."""
    steps: dict[str, list[str]] = {}
    under_way: list[str] = []

    def note(_: Any, __: Any, statement: str, values: Any, *___: Any) -> None:
        if re.match(r"(INSERT INTO|UPDATE) alembic_version", statement):
            revision = re.search(
                r"version_num\) VALUES \('(\w+)'|SET version_num='(\w+)'", statement
            )
            assert revision, statement
            steps[revision[1] or revision[2]] = list(under_way)
            under_way.clear()
        elif not re.match(r"SELECT|SET |CREATE TABLE alembic_version", statement.strip()):
            under_way.append(statement.strip())

    event.listen(Engine, "before_cursor_execute", note)
    try:
        with database(postgres_url) as name:
            migrate(PostgresAddress(named(postgres_url, name)))
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    return steps


def test_every_migration_was_seen(sent: dict[str, list[str]]) -> None:
    assert sorted(sent) == numbers()
    assert all(sent.values())


@pytest.mark.parametrize("schema", [each for each in numbers() if each not in ALLOWED])
def test_a_migration_keeps_nobody_waiting(sent: dict[str, list[str]], schema: str) -> None:
    assert long_locks(sent[schema]) == []


def test_what_is_allowed_needs_it(sent: dict[str, list[str]]) -> None:
    later = [schema for schema, reason in ALLOWED.items() if reason != NOBODY_YET]

    assert all(long_locks(sent[schema]) for schema in later)


def test_schemas_are_numbered_in_the_order_that_they_are_made() -> None:
    assert numbers() == [f"{number:04}" for number in range(1, len(numbers()) + 1)]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE INDEX ix_runs_x ON runs (x)",
        "CREATE UNIQUE INDEX ix_runs_x ON runs (x)",
        "ALTER TABLE runs ADD COLUMN x TEXT DEFAULT md5(random()::text) NOT NULL",
        "ALTER TABLE runs ADD COLUMN x BIGINT GENERATED ALWAYS AS IDENTITY",
        "ALTER TABLE runs ADD COLUMN x TEXT NOT NULL",
        "ALTER TABLE runs ALTER COLUMN epoch TYPE NUMERIC",
        "ALTER TABLE runs ALTER COLUMN owner SET NOT NULL",
        "ALTER TABLE runs ADD CONSTRAINT ck_x CHECK (epoch > 0)",
        "ALTER TABLE runs ADD FOREIGN KEY (session_id) REFERENCES sessions (id)",
        "UPDATE runs SET epoch = 1",
        "DELETE FROM runs WHERE epoch = 1",
        "ALTER TABLE runs DROP COLUMN epoch",
        "ALTER TABLE runs RENAME COLUMN epoch TO era",
        "ALTER TABLE runs RENAME TO jobs",
        "DROP TABLE runs",
        "LOCK TABLE runs IN ACCESS EXCLUSIVE MODE",
        "VACUUM FULL runs",
    ],
)
def test_what_takes_long_is_seen(statement: str) -> None:
    assert [table for _, table in long_locks([statement])] == ["runs"]
    assert long_locks(["CREATE TABLE runs (id TEXT)", statement]) == []


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE INDEX CONCURRENTLY ix_runs_x ON runs (x)",
        "ALTER TABLE runs ADD COLUMN x TEXT",
        "ALTER TABLE runs ADD COLUMN x TEXT DEFAULT 'call' NOT NULL",
        "ALTER TABLE runs ADD CONSTRAINT ck_x CHECK (epoch > 0) NOT VALID",
        "ALTER TABLE runs VALIDATE CONSTRAINT ck_x",
        "ALTER TABLE runs ADD CONSTRAINT uq_x UNIQUE USING INDEX ix_x",
        "CREATE TABLE jobs (id TEXT)",
    ],
)
def test_what_takes_an_instant_is_let_pass(statement: str) -> None:
    assert long_locks([statement]) == []
