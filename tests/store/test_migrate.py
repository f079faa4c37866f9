"""Migrations: they build exactly the schema of the code, once, whoever else migrates too."""

import itertools
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import Engine, create_engine, event, text

from milepost.core.errors import ConfigurationError
from milepost.core.ids import format_id
from milepost.store import migrate as module
from milepost.store import schema
from milepost.store.address import Address, PostgresAddress, SqliteAddress
from milepost.store.dialect import owned_by
from milepost.store.engine import DatabaseUnavailableError
from milepost.store.migrate import OLDEST_SCHEMA, migrate, prepare, require_usable
from milepost.store.migrations import numbers
from tests.databases import database, named
from tests.store.earlier import migrated_to

EVENT = (
    "INSERT INTO events (run_id, seq, tenant, append_id, type, data)"
    " VALUES ('{}', {}, 'acme', 'a', 'run.queued', '{{}}')"
)
FIRST = "run_" + "0" * 32


@pytest.fixture
def empty_postgres(postgres_url: str) -> Iterator[PostgresAddress]:
    """A database of Postgres that has never been migrated."""
    with database(postgres_url) as name:
        yield PostgresAddress(named(postgres_url, name))


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    """A database that has never been migrated."""
    if request.param == "sqlite":
        return SqliteAddress(tmp_path / "deep" / "empty.db")
    address: Address = request.getfixturevalue("empty_postgres")
    return address


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
        """SELECT conname, pg_get_constraintdef(kept.oid) FROM pg_constraint AS kept
        JOIN pg_class AS owner ON owner.oid = conrelid AND NOT relispartition
        WHERE connamespace = 'public'::regnamespace AND contype <> 'n'""",  # said above
        """SELECT relname, relkind, reloptions, pg_get_partkeydef(oid) FROM pg_class
        WHERE relnamespace = 'public'::regnamespace""",
    ],
}


def described(address: Address) -> list[list[str]]:
    """Return what the database itself says of its tables and indexes, but for partitions."""
    engine = create_engine(address.sqlalchemy_url)
    with engine.connect() as connection:
        described = [
            sorted(" ".join(str(row).split()) for row in connection.execute(text(question)))
            for question in DESCRIPTIONS[engine.dialect.name]
        ]
    engine.dispose()
    left_out = re.compile(r"alembic_version|events_(\d{8}|before|default)")
    return [[line for line in lines if not left_out.search(line)] for lines in described]


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


def test_every_table_has_a_tenant_but_those_of_the_installation() -> None:
    without = {
        table.name for table in schema.metadata.sorted_tables if "tenant" not in table.columns
    }

    assert without == {"schema_compat", "workers"}


def test_migrating_again_changes_nothing(empty: Address) -> None:
    migrate(empty)
    before = rows(empty, "SELECT version_num FROM alembic_version")

    migrate(empty)

    assert rows(empty, "SELECT version_num FROM alembic_version") == before
    require_usable(empty)


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
    require_usable(empty)


def test_a_database_without_a_schema_is_refused_with_the_remedy(empty: Address) -> None:
    with pytest.raises(ConfigurationError, match=r"has schema none .* run `milepost migrate`"):
        require_usable(empty)


def test_a_database_that_is_too_old_is_refused_with_the_remedy(empty: Address) -> None:
    migrated_to(empty, "0014")

    with pytest.raises(ConfigurationError, match=r"has schema 0014 .* run `milepost migrate`"):
        prepare(empty, may_migrate=False)

    prepare(empty, may_migrate=True)
    require_usable(empty)


def test_a_database_that_waits_for_its_migration_is_worked_on(empty: Address) -> None:
    migrated_to(empty, OLDEST_SCHEMA)

    prepare(empty, may_migrate=False)

    assert rows(empty, "SELECT version_num FROM alembic_version") == [(OLDEST_SCHEMA,)]


def test_the_oldest_schema_has_all_that_the_code_asks_for(empty: Address) -> None:
    migrated_to(empty, OLDEST_SCHEMA)

    for table in schema.metadata.tables.values():
        names = ", ".join(column.name for column in table.columns)
        assert rows(empty, f"SELECT {names} FROM {table.name} WHERE 1 = 0") == []


def newer(address: Address, oldest_code: str) -> None:
    """Make it what a later version's migration leaves behind."""
    rows(address, "UPDATE alembic_version SET version_num = '9999' RETURNING version_num")
    rows(address, f"UPDATE schema_compat SET oldest_code = '{oldest_code}' RETURNING oldest_code")


@pytest.mark.parametrize("may_migrate", [True, False])
def test_a_version_goes_on_beside_a_newer_one_that_lets_it(
    address: Address, *, may_migrate: bool
) -> None:
    newer(address, oldest_code="0016")

    prepare(address, may_migrate=may_migrate)

    assert rows(address, "SELECT version_num FROM alembic_version") == [("9999",)]


@pytest.mark.parametrize("may_migrate", [True, False])
def test_a_version_that_a_newer_one_does_not_let_in_is_refused_with_the_remedy(
    address: Address, *, may_migrate: bool
) -> None:
    newer(address, oldest_code="9998")

    with pytest.raises(
        ConfigurationError,
        match=r"schema 9999, which takes a version that knows schema 9998, .* no more than"
        r" 00\d\d: start the newer version, or restore the backup",
    ):
        prepare(address, may_migrate=may_migrate)


def test_a_newer_database_that_lets_nobody_in_by_name_lets_nobody_in(address: Address) -> None:
    newer(address, oldest_code="0001")
    rows(address, "DELETE FROM schema_compat RETURNING oldest_code")

    with pytest.raises(ConfigurationError, match="takes a version that knows schema 9999"):
        require_usable(address)


def test_a_database_is_never_migrated_down(address: Address) -> None:
    newer(address, oldest_code="0001")

    with pytest.raises(ConfigurationError, match=r"schema 9999.* is never migrated down\. Use the"):
        migrate(address)


@pytest.mark.parametrize("command", ["migrate", "serve"])
def test_the_command_line_refuses_a_newer_database_in_words(
    sqlite_address: SqliteAddress, command: str
) -> None:
    newer(sqlite_address, oldest_code="9999")

    told = subprocess.run(
        [sys.executable, "-m", "milepost", command],
        cwd=sqlite_address.path.parent,
        env={
            **os.environ,
            "MILEPOST_DATABASE_URL": sqlite_address.sqlalchemy_url,
            "MILEPOST_PORT": "0",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert told.returncode != 0
    said = " ".join(told.stderr.split())
    assert "schema 9999" in said
    assert "restore the backup" in said
    assert "Traceback" not in said


def test_a_database_that_may_be_used_says_how_old_its_users_may_be(address: Address) -> None:
    ((oldest_code,),) = rows(address, "SELECT oldest_code FROM schema_compat")

    assert oldest_code in numbers()


# The log's migration, step by step: see the three migrations.


def test_what_was_in_the_log_becomes_a_partition_unread(empty_postgres: PostgresAddress) -> None:
    migrated_to(empty_postgres, "0015")
    with psycopg.connect(empty_postgres.url) as connection:
        connection.execute(EVENT.format(FIRST, 1).encode())
        was = connection.execute("SELECT pg_relation_filenode('events')").fetchone()

    migrate(empty_postgres)

    with psycopg.connect(empty_postgres.url) as connection:
        found = connection.execute(
            "SELECT pg_relation_filenode(tableoid), data FROM events"
        ).fetchall()
        (checks,) = connection.execute(
            "SELECT count(*) FROM pg_constraint WHERE conname = 'ck_events_bound'"
        ).fetchone() or (None,)
    assert was
    assert found == [(was[0], "{}")]
    assert checks == 0


def test_the_log_takes_new_runs_between_any_two_steps(empty_postgres: PostgresAddress) -> None:
    for schema_, run in (("0015", 1), ("0016", 2), ("0017", 3), ("0018", 4), ("head", 5)):
        migrated_to(empty_postgres, schema_)
        with psycopg.connect(empty_postgres.url) as connection:
            now_ms = connection.execute(
                "SELECT CAST(extract(epoch FROM now()) * 1000 AS BIGINT)"
            ).fetchone()
            assert now_ms
            connection.execute(EVENT.format(format_id("run", now_ms[0], run), 1).encode())

    assert rows(empty_postgres, "SELECT count(*) FROM events") == [(5,)]


def test_runs_of_a_clock_that_runs_ahead_stay_in_the_first_partition(
    empty_postgres: PostgresAddress,
) -> None:
    migrated_to(empty_postgres, "0015")
    ahead = format_id("run", 4_102_444_800_000, 1)
    rows(empty_postgres, EVENT.format(ahead, 1) + " RETURNING seq")

    migrate(empty_postgres)

    ((part,),) = rows(empty_postgres, "SELECT CAST(tableoid AS regclass)::text FROM events")
    assert part == "events_before_21000104"


def test_a_log_with_other_ids_is_refused_before_anything_is_done(
    empty_postgres: PostgresAddress,
) -> None:
    migrated_to(empty_postgres, "0015")
    rows(empty_postgres, EVENT.format("run_zzz", 1) + " RETURNING seq")

    with pytest.raises(ConfigurationError, match="'run_zzz', which is no id of Milepost's"):
        migrate(empty_postgres)

    assert rows(empty_postgres, "SELECT version_num FROM alembic_version") == [("0016",)]


def test_a_step_that_waits_for_a_lock_lets_others_pass_and_is_tried_again(
    empty_postgres: PostgresAddress,
) -> None:
    migrated_to(empty_postgres, "0018")
    with (
        psycopg.connect(empty_postgres.url) as reader,
        psycopg.connect(empty_postgres.url, autocommit=True) as passer_by,
        ThreadPoolExecutor() as threads,
    ):
        reader.execute("SELECT FROM events")  # and its transaction goes on
        migrating = threads.submit(migrate, empty_postgres)
        await_one_that_waits(passer_by)
        passer_by.execute("SELECT FROM events")  # it would wait for as long as the reader reads
        assert not migrating.done()
        reader.rollback()
        migrating.result(timeout=60)

    require_usable(empty_postgres)


def await_one_that_waits(connection: psycopg.Connection[Any]) -> None:
    """Return once somebody waits for a lock on the log."""
    waits = """SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
        WHERE datname = current_database() AND NOT granted AND mode = 'AccessExclusiveLock'"""
    await_any(connection, waits)


def await_any(
    connection: psycopg.Connection[Any], wanted: LiteralString, unless: Future[None] | None = None
) -> None:
    """Return once there is any such row; `unless` is what may be over before there ever is."""
    while not (connection.execute(wanted).fetchall() or (unless and unless.done())):
        time.sleep(0.01)


@contextmanager
def held_up(
    address: PostgresAddress,
) -> Iterator[tuple[psycopg.Connection[Any], psycopg.Connection[Any], Future[None]]]:
    """Migrate beside one who writes sessions; yield that one, an operator, and what migrates."""
    with (
        psycopg.connect(address.url) as writer,
        psycopg.connect(address.url, autocommit=True) as operator,
        ThreadPoolExecutor() as threads,
    ):
        writer.execute("LOCK TABLE sessions IN ROW EXCLUSIVE MODE")
        yield writer, operator, threads.submit(migrate, address)


def test_a_step_that_gets_no_lock_at_all_says_so_and_leaves_nothing_half_done(
    empty_postgres: PostgresAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP_WAITS_S", (0.0, 0.0))
    monkeypatch.setattr(module, "STEP_LOCK_TIMEOUT", "10ms")
    migrated_to(empty_postgres, "0015")
    with psycopg.connect(empty_postgres.url) as reader:
        reader.execute("SELECT FROM events")

        with pytest.raises(DatabaseUnavailableError, match=r"no lock on a table in 2 attempts"):
            migrate(empty_postgres)

    assert rows(empty_postgres, "SELECT version_num FROM alembic_version") == [("0016",)]
    migrate(empty_postgres)
    require_usable(empty_postgres)


def test_a_sqlite_file_whose_migration_was_killed_anywhere_is_migrated_when_it_is_begun_anew(
    tmp_path: Path,
) -> None:
    address, left = SqliteAddress(tmp_path / "milepost.db"), list[SqliteAddress]()
    statements = itertools.count()

    def keep_what_a_kill_would_leave(*_: object) -> None:
        if next(statements) % 9 == 0 and address.path.exists():
            left.append(SqliteAddress(tmp_path / f"{len(left)}.db"))
            for file in tmp_path.glob("milepost.db*"):
                shutil.copy(file, f"{left[-1].path}{file.name.removeprefix(address.path.name)}")

    event.listen(Engine, "before_cursor_execute", keep_what_a_kill_would_leave)
    try:
        migrate(address)
    finally:
        event.remove(Engine, "before_cursor_execute", keep_what_a_kill_would_leave)

    assert len(left) > len(numbers()) / 2
    for each in left:
        migrate(each)
        assert described(each) == described(address)


@pytest.mark.parametrize("breaks_off", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_step_that_broke_off_within_an_index_makes_it_when_it_is_taken_again(
    empty_postgres: PostgresAddress, breaks_off: str
) -> None:
    migrated_to(empty_postgres, "0020")
    with held_up(empty_postgres) as (writer, operator, migrating):
        await_any(operator, MAKES_AN_INDEX)
        operator.execute(f"SELECT {breaks_off}(pid) FROM ({MAKES_AN_INDEX}) AS made")
        with pytest.raises(DatabaseUnavailableError, match=r"due to (user|administrator)"):
            migrating.result(timeout=60)
        writer.rollback()

    assert rows(empty_postgres, HALF_MADE) == [("ix_sessions_user",)]
    migrate(empty_postgres)

    assert rows(empty_postgres, HALF_MADE) == []
    require_usable(empty_postgres)


def test_a_step_takes_its_time_though_its_role_gives_every_statement_little(
    empty_postgres: PostgresAddress,
) -> None:
    migrated_to(empty_postgres, "0020")
    with psycopg.connect(empty_postgres.url, autocommit=True) as owner:
        name = sql.Identifier(owner.info.dbname)
        owner.execute(sql.SQL("ALTER DATABASE {} SET statement_timeout = 500").format(name))

    with held_up(empty_postgres) as (writer, operator, migrating):
        await_any(operator, f"SELECT FROM ({MAKES_AN_INDEX}) AS made WHERE {FOR_LONG}", migrating)
        writer.rollback()
        migrating.result(timeout=60)

    require_usable(empty_postgres)


MAKES_AN_INDEX = """SELECT pid, query_start FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
    AND query LIKE 'CREATE INDEX CONCURRENTLY%'"""
FOR_LONG = "now() - query_start > '1s'"
HALF_MADE = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid"


def rows(address: Address, statement: str) -> list[Any]:
    engine = create_engine(address.sqlalchemy_url)
    with engine.begin() as connection:
        found = list(connection.execute(text(statement)))
    engine.dispose()
    return found


def test_memories_that_were_there_before_are_found_among_their_owners(tmp_path: Path) -> None:
    address = SqliteAddress(tmp_path / "milepost.db")
    migrated_to(address, "0023")
    rows(
        address,
        """INSERT INTO memories (id, tenant, scope, owner, kind, key, origin, words)
        VALUES ('mem_1', 'acme', 'user', 'ann', 'fact', 'tea', 'run', 'green tea') RETURNING id""",
    )

    migrate(address)

    for name, found in (("ann", [(1,)]), ("ben", [])):
        wanted = f"""{owned_by("acme", [("user", name)])}words : "gre"*"""
        asked = f"SELECT rowid FROM memory_words WHERE memory_words MATCH '{wanted}'"
        assert rows(address, asked) == found
