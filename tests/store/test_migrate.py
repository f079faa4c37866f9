"""Migrations: they build exactly the schema of the code, once, whoever else migrates too."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from milepost.core.errors import ConfigurationError
from milepost.store import schema
from milepost.store.address import Address, PostgresAddress, SqliteAddress
from milepost.store.migrate import migrate, require_current
from tests.store.conftest import database, named


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Address]:
    """A database that has never been migrated."""
    if request.param == "sqlite":
        yield SqliteAddress(tmp_path / "deep" / "empty.db")
        return
    server = request.getfixturevalue("postgres_url")
    with database(server) as name:
        yield PostgresAddress(named(server, name))


DESCRIPTIONS = {
    # Not the tables' own text: a column that was added later stands elsewhere in it.
    "sqlite": [
        """SELECT t.name, c.cid, c.name, c.type, c."notnull", c.dflt_value, c.pk
        FROM sqlite_master AS t, pragma_table_info(t.name) AS c
        WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'""",
        "SELECT name, wr, strict FROM pragma_table_list WHERE name NOT LIKE 'sqlite_%'",
        "SELECT type, name, sql FROM sqlite_master WHERE type <> 'table' AND sql IS NOT NULL",
    ],
    "postgresql": [
        """SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default
        FROM information_schema.columns WHERE table_schema = 'public'""",
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
        """SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace""",
        "SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'public'::regnamespace",
    ],
}


def described(address: Address) -> list[list[str]]:
    """Return what the database itself says of its tables and indexes."""
    engine = create_engine(address.sqlalchemy_url)
    with engine.connect() as connection:
        described = [
            sorted(" ".join(str(row).split()) for row in connection.execute(text(question)))
            for question in DESCRIPTIONS[engine.dialect.name]
        ]
    engine.dispose()
    return [[line for line in lines if "alembic_version" not in line] for lines in described]


def test_the_migrations_build_exactly_what_the_code_expects(empty: Address) -> None:
    migrate(empty)
    migrated = described(empty)
    engine = create_engine(empty.sqlalchemy_url)
    schema.metadata.drop_all(engine)
    schema.metadata.create_all(engine)
    engine.dispose()

    expected = described(empty)

    assert len(expected[0]) > len(schema.metadata.tables)
    assert migrated == expected


def test_every_table_has_a_tenant_but_the_workers() -> None:
    without = {
        table.name for table in schema.metadata.sorted_tables if "tenant" not in table.columns
    }

    assert without == {"workers"}


def test_migrating_again_changes_nothing(empty: Address) -> None:
    migrate(empty)
    before = rows(empty, "SELECT version_num FROM alembic_version")

    migrate(empty)

    assert rows(empty, "SELECT version_num FROM alembic_version") == before
    require_current(empty)


def test_two_that_migrate_at_once_both_find_it_done(empty: Address) -> None:
    failures: list[BaseException] = []
    barrier = threading.Barrier(2)

    def run() -> None:
        barrier.wait()
        try:
            migrate(empty)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    require_current(empty)


def test_a_database_without_a_schema_is_refused_with_the_remedy(empty: Address) -> None:
    with pytest.raises(ConfigurationError, match=r"has schema none .* run `milepost migrate`"):
        require_current(empty)


def test_a_database_with_another_schema_is_refused(empty: Address) -> None:
    migrate(empty)
    rows(empty, "UPDATE alembic_version SET version_num = '9999' RETURNING version_num")

    with pytest.raises(ConfigurationError, match="has schema 9999"):
        require_current(empty)


def rows(address: Address, statement: str) -> list[Any]:
    engine = create_engine(address.sqlalchemy_url)
    with engine.begin() as connection:
        found = list(connection.execute(text(statement)))
    engine.dispose()
    return found
