"""Bring a database to this version of the code, from a checkout or from an installed wheel."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import NullPool

from milepost.core.errors import ConfigurationError
from milepost.store.address import Address, SqliteAddress
from milepost.store.engine import DatabaseUnavailableError

_LOCK = (
    0x6D696C65706F7374  # "milepost": the key of the advisory lock that lets one migrate at a time
)
_CHECKOUT = Path(__file__).resolve().parents[3] / "migrations"


def migrate(address: Address) -> None:
    """Bring the database to the newest schema; a second process waits for the first and goes on."""
    with _connected(address) as connection:
        _upgrade(connection)


def require_current(address: Address) -> None:
    """Raise `ConfigurationError` unless the database has exactly this version's schema."""
    with _connected(address) as connection:
        present = MigrationContext.configure(connection).get_current_revision()
    wanted = ScriptDirectory.from_config(_config()).get_current_head()
    if present != wanted:
        raise ConfigurationError(
            f"the database has schema {present or 'none'} and this version needs {wanted};"
            " run `milepost migrate`, or start without --no-migrate"
        )


@contextmanager
def _connected(address: Address) -> Iterator[Connection]:
    engine = create_engine(address.sqlalchemy_url, poolclass=NullPool)
    try:
        with _exclusive(address), engine.connect() as connection:
            if not isinstance(address, SqliteAddress):
                connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
                connection.commit()
            yield connection
    except OperationalError as error:
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


def _in_one_line(error: DatabaseError) -> str:
    return " ".join(str(error.orig).split())


@contextmanager
def _exclusive(address: Address) -> Iterator[None]:
    """SQLite has no advisory lock: one process at a time, by a lock on a file beside it."""
    if not isinstance(address, SqliteAddress):
        yield
        return
    path = address.path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(path.name + ".migrating").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _upgrade(connection: Connection) -> None:
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    connection.commit()


def _config() -> Config:
    """The wheel carries `migrations/` inside the package; a checkout has it at the top."""
    packaged = Path(str(files("milepost"))) / "migrations"
    config = Config()
    scripts = packaged if packaged.is_dir() else _CHECKOUT
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    return config
