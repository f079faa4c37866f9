"""Bring a database to this version of the code, from a checkout or from an installed wheel.

Versions run beside each other while an installation is upgraded: `docs/upgrading.md` says how.
"""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg
from sqlalchemy import (
    Connection,
    Engine,
    Text,
    column,
    create_engine,
    event,
    inspect,
    select,
    table,
    text,
)
from sqlalchemy.exc import (
    DatabaseError,
    DBAPIError,
    OperationalError,
    PendingRollbackError,
    SQLAlchemyError,
)
from sqlalchemy.pool import NullPool

from milepost.core.errors import ConfigurationError
from milepost.store import schema
from milepost.store.address import Address, SqliteAddress
from milepost.store.engine import DatabaseUnavailableError
from milepost.store.migrations import newest, numbers

# The oldest schema that this code can work on.
OLDEST_SCHEMA = "0028"

_LOCK = (
    0x6D696C65706F7374  # "milepost": the key of the advisory lock that lets one migrate at a time
)
_LOCK_RETRY_S = 0.2
# A migration that waits for a lock on a table holds up everybody who comes after it: it waits for
# less than anybody's patience, and then lets them pass before it tries again.
STEP_LOCK_TIMEOUT = "1s"
STEP_WAITS_S = (0.2, 0.5, 1.0, 2.0, *[4.0] * 60)
_PRESENT = select(column("version_num", Text)).select_from(table("alembic_version"))


class _Standing(NamedTuple):
    """What a database says of itself: its schema, and the oldest code that may use it."""

    present: str | None
    oldest_code: str | None


def prepare(address: Address, *, may_migrate: bool) -> None:
    """Make sure that this version can work on the database, having migrated it if that is allowed.

    A newer version may have migrated it already, and still let this one work. Raises
    `ConfigurationError` if it does not, or if the database is too old.
    """
    if not may_migrate:
        require_usable(address)
        return
    with _turn(address) as connection:
        standing = _standing(connection)
        if _is_newer(standing):
            _require_let_in(standing)
        else:
            _upgrade(connection)


def migrate(address: Address) -> None:
    """Bring the database to the newest schema; a second process waits for the first and goes on.

    Raises `ConfigurationError` if its schema is newer still: there is no way down.
    """
    with _turn(address) as connection:
        standing = _standing(connection)
        if _is_newer(standing):
            raise ConfigurationError(
                f"the database has schema {standing.present}, and this version knows no more than"
                f" {newest()}: a database is never migrated down. Use the version that"
                " migrated it, or restore the backup from before"
            )
        _upgrade(connection)


def require_usable(address: Address) -> None:
    """Raise `ConfigurationError` unless this version can work on the database as it is."""
    with _opened(address) as engine, engine.connect() as connection:
        standing = _standing(connection)
    if _is_newer(standing):
        _require_let_in(standing)
    elif standing.present is None or standing.present < OLDEST_SCHEMA:
        raise ConfigurationError(
            f"the database has schema {standing.present or 'none'} and this version needs"
            f" {OLDEST_SCHEMA} or newer; run `milepost migrate`, or start without --no-migrate"
        )


def _require_let_in(standing: _Standing) -> None:
    known = newest()
    if standing.oldest_code is None or known < standing.oldest_code:
        raise ConfigurationError(
            f"the database has schema {standing.present}, which takes a version that knows schema"
            f" {standing.oldest_code or standing.present}, and this one knows no more than"
            f" {known}: start the newer version, or restore the backup from before its migration"
        )


def _is_newer(standing: _Standing) -> bool:
    return standing.present is not None and standing.present not in numbers()


@contextmanager
def _turn(address: Address) -> Iterator[Connection]:
    """Give a connection to whoever's turn it is to migrate."""
    with _opened(address) as engine, _exclusive(address, engine), engine.connect() as connection:
        yield connection


def _standing(connection: Connection) -> _Standing:
    compat, has_table = schema.schema_compat, inspect(connection).has_table
    present = oldest_code = None
    if has_table("alembic_version"):
        present = connection.scalar(_PRESENT)
    if has_table(compat.name):
        oldest_code = connection.scalar(select(compat.c.oldest_code))
    connection.rollback()
    return _Standing(present, oldest_code)


@contextmanager
def _opened(address: Address) -> Iterator[Engine]:
    options = {}
    if isinstance(address, SqliteAddress):
        address.path.resolve().parent.mkdir(parents=True, exist_ok=True)
    else:  # Nothing is to stay in a session of Postgres: a pooler may lend it to others.
        options = {"prepare_threshold": None}
    engine = create_engine(address.sqlalchemy_url, poolclass=NullPool, connect_args=options)
    if not isinstance(address, SqliteAddress):
        event.listen(engine, "connect", _patiently)
    try:
        yield engine
    except (OperationalError, PendingRollbackError) as error:
        raise DatabaseUnavailableError(
            f"{address.shown} does not answer: {_in_one_line(error)};"
            " is it the right one? --database-url names another"
        ) from error
    except DatabaseError as error:
        if isinstance(address, SqliteAddress) and "not a database" in str(error.orig):
            raise ConfigurationError(f"{address.path}: {_in_one_line(error)}") from error
        raise
    finally:
        engine.dispose()


def _in_one_line(error: SQLAlchemyError) -> str:
    """Return what the driver has said, which is hidden where a block was still to be left."""
    told: BaseException | None = error
    if isinstance(error, PendingRollbackError):
        told = error.__context__
    why = told.orig if isinstance(told, DBAPIError) else told
    return " ".join(str(why).split())


@contextmanager
def _exclusive(address: Address, engine: Engine) -> Iterator[None]:
    """Let one process in at a time. SQLite has no advisory lock: there it is one on a file."""
    if not isinstance(address, SqliteAddress):
        with _locked(engine):
            yield
        return
    path = address.path.resolve()
    with path.with_name(path.name + ".migrating").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _locked(engine: Engine) -> Iterator[None]:
    """Hold the advisory lock in a transaction that does nothing else, whatever is committed beside.

    Who waits for it asks again and holds no connection meanwhile: a pooler may have few. The last
    statement has no parameters, and so no portal: one would keep its snapshot for as long as the
    transaction is open, and CREATE INDEX CONCURRENTLY waits for whoever has one.
    """
    while True:
        with engine.begin() as holder:
            if holder.scalar(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _LOCK}):
                holder.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
                yield
                return
        time.sleep(_LOCK_RETRY_S)


def _upgrade(connection: Connection) -> None:
    """Take one step after the other, each in its transaction, and again if it got no lock."""
    if _standing(connection).present == newest():
        return
    from milepost.store.upgrading import upgrade  # noqa: PLC0415 - its own first line says why

    is_postgres = connection.dialect.name == "postgresql"
    event.listen(connection, "begin", _impatiently if is_postgres else _wholly)
    for wait_s in STEP_WAITS_S:
        try:
            _drop_half_made(connection)
            upgrade(connection)
        except OperationalError as error:
            if not isinstance(error.orig, _HELD):
                raise
            connection.rollback()
            time.sleep(wait_s)
        else:
            connection.commit()
            return
    raise DatabaseUnavailableError(
        f"a migration got no lock on a table in {len(STEP_WAITS_S)} attempts: somebody holds it"
        " (pg_stat_activity shows the oldest transactions). What was done stands; run"
        " `milepost migrate` again to go on"
    )


def _drop_half_made(connection: Connection) -> None:
    """Drop what a step left that broke off as it made an index beside everybody's work.

    Postgres keeps such an index and uses it for nothing, and the step, taken again, would find its
    name and pass it over.
    """
    if connection.dialect.name != "postgresql":
        return
    ours = [index.name for each in schema.metadata.tables.values() for index in each.indexes]
    for (name,) in connection.execute(_HALF_MADE, {"ours": ours}).all():
        connection.exec_driver_sql(f"DROP INDEX IF EXISTS {name}")
    connection.commit()


_HALF_MADE = text(
    "SELECT oid::regclass::text FROM pg_class JOIN pg_index ON indexrelid = oid"
    " WHERE relkind = 'i' AND NOT indisvalid AND pg_table_is_visible(oid) AND relname = ANY(:ours)"
)
_HELD = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)


def _patiently(session: Any, _: Any) -> None:
    """Take as long as it takes, though the role may bound its statements, if the session is ours.

    An index of a large table takes longer than what the service does; it is made in no transaction,
    which could say so by itself.
    """
    session.execute(
        "SELECT set_config('statement_timeout', '0', false) WHERE pg_backend_pid() = %s",
        [session.info.backend_pid],
    )
    session.commit()


def _wholly(connection: Connection) -> None:
    """Begin, which SQLite's driver leaves out before a change of the schema.

    Each would stand by itself then, and a step that broke off could never be taken again.
    """
    connection.exec_driver_sql("BEGIN")


def _impatiently(connection: Connection) -> None:
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{STEP_LOCK_TIMEOUT}'")
    connection.exec_driver_sql("SET LOCAL statement_timeout = 0")  # whoever's the session is
