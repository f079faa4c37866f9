"""What is read past the service: whatever is only passing is found while it is there."""

import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from milepost.store import schema
from tests.databases import database as own_database
from tests.databases import named
from tests.torture import history

Row = tuple[sa.Table, dict[str, Any]]

OVER = {"status": "completed"}
PASSING: dict[str, Row] = {
    "letters that a run has not read before it came to its own end": (
        schema.inbox,
        {"run_id": "run_1"},
    ),
    "news for webhooks that nobody has passed on": (schema.outbox, {}),
    "deliveries to webhooks that are not made": (schema.webhook_deliveries, {"status": "pending"}),
    "reservations of budgets": (schema.budget_reservations, {}),
    "counters of budgets of which something is reserved": (
        schema.budget_counters,
        {"reserved_tool_calls": 1},
    ),
    "runs that are not over": (schema.runs, {"id": "run_2", "status": "blocked"}),
    "runs that are over and have an owner": (schema.runs, {"id": "run_2", **OVER, "owner": "w"}),
    "runs that are over and whose timer is set": (
        schema.runs,
        {"id": "run_2", **OVER, "wake_at_ms": 1},
    ),
    "questions of runs that are over": (schema.approvals, {"status": "pending"}),
    "batches that are open": (schema.batches, {"ended_ms": None}),
    "items of batches that are not over": (schema.batch_items, {"status": "started"}),
    "lessons that are not learned": (schema.recollections, {}),
    "schedules whose time is over": (schema.schedules, {"next_ms": 1}),
}
PASSED: list[Row] = [
    (schema.inbox, {"run_id": "run_2"}),
    (schema.runs, {"id": "run_2", "status": "cancelled"}),
    (schema.webhook_deliveries, {"status": "delivered"}),
    (schema.budget_counters, {}),
    (schema.runs, {"id": "run_1", **OVER}),
    (schema.approvals, {"status": "approved"}),
    (schema.batches, {"ended_ms": 1}),
    (schema.batch_items, OVER),
    (schema.schedules, {"id": "sch_1", "next_ms": None}),
    (schema.schedules, {"id": "sch_2", "next_ms": 10**15}),
]


@pytest.fixture
def database(sqlite_template: Path, tmp_path: Path) -> str:
    """Return the URL of a database without a row."""
    return f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'milepost.db')}"


def insert(url: str, table: sa.Table, values: dict[str, Any]) -> None:
    """Put a row in; what must not be null, and is not given, is anything."""
    anything = {
        column.name: 1 if isinstance(column.type, sa.Integer | sa.BigInteger) else "{}"
        for column in table.c
        if not column.nullable and column.server_default is None
    }
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.insert(table).values({**anything, **values}))
    engine.dispose()


def found(url: str) -> list[str]:
    """Return what there is of what is passing."""
    return [name for name, count in history.passing(url).items() if count]


@pytest.mark.parametrize("name", PASSING)
def test_what_is_passing_is_found(database: str, name: str) -> None:
    insert(database, schema.runs, {"id": "run_1", "session_id": "ses_1", **OVER})
    insert(database, *PASSING[name])

    assert found(database) == [name]


def test_what_has_passed_is_not_found(database: str) -> None:
    for table, values in PASSED:
        insert(database, table, values)

    assert found(database) == []


def test_all_that_is_asked_for_is_tried_here(database: str) -> None:
    assert history.passing(database).keys() == PASSING.keys()


def test_connections_are_counted_and_those_that_idle_in_a_transaction_are_found(
    postgres_url: str, postgres_template: str
) -> None:
    with own_database(postgres_url, postgres_template) as name:
        url = named(postgres_url, name)
        with psycopg.connect(url, application_name="milepost", autocommit=True) as connection:
            connection.execute("SELECT 1")
            assert (history.connections(url), found(url)) == (1, [])

            connection.execute("BEGIN")

            assert found(url) == ["connections that idle in a transaction"]
