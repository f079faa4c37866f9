"""Where the database is: `sqlite:///path` or `postgresql://...`, and nothing else."""

from dataclasses import dataclass
from pathlib import Path

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from milepost.core.errors import ConfigurationError

_POSTGRES = ("postgresql://", "postgres://", "postgresql+psycopg://")


@dataclass(frozen=True, slots=True)
class SqliteAddress:
    """A file on this machine."""

    path: Path

    @property
    def sqlalchemy_url(self) -> str:
        """Return the URL that SQLAlchemy takes."""
        return f"sqlite:///{self.path}"

    @property
    def shown(self) -> str:
        """Return what may be printed."""
        return f"SQLite at {self.path}"


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """A server; `url` is what libpq takes."""

    url: str

    @property
    def sqlalchemy_url(self) -> str:
        """Return the URL that SQLAlchemy takes."""
        return self.url.replace("postgresql://", "postgresql+psycopg://", 1)

    @property
    def shown(self) -> str:
        """Return what may be printed: never the password."""
        place, _, _ = self.url.removeprefix("postgresql://").partition("?")
        return f"Postgres at {place.rpartition('@')[2]}"


Address = SqliteAddress | PostgresAddress


def parse_address(url: str) -> Address:
    """Return the database's address; raise `ConfigurationError` for one of another kind."""
    if url.startswith("sqlite:///") and url != "sqlite:///":
        path = Path(url.removeprefix("sqlite:///"))
        if path.name == ":memory:":
            raise ConfigurationError("an in-memory database forgets everything: name a file")
        if path.name in {"", ".."}:
            raise ConfigurationError(f"{path} is a folder; name a file for the database")
        return SqliteAddress(path)
    for scheme in _POSTGRES:
        if url.startswith(scheme):
            return _postgres("postgresql://" + url.removeprefix(scheme))
    raise ConfigurationError(
        f"{url.partition(':')[0]!r} is no database that Milepost knows;"
        " use sqlite:///path/to/file.db or postgresql://user:password@host:port/name"
    )


def _postgres(url: str) -> PostgresAddress:
    """Return the address if both its readers can read it: SQLAlchemy, and libpq."""
    address = PostgresAddress(url)
    try:
        make_url(address.sqlalchemy_url)
        conninfo_to_dict(address.url)
    except (ValueError, ArgumentError, ProgrammingError) as error:
        # Neither the URL nor the error is shown: what cannot be read may be a password's part.
        raise ConfigurationError(
            "the URL of Postgres cannot be read; it is postgresql://user:password@host:port/name,"
            " with %40 for an @ in the password, %2F for a / and %3A for a :"
        ) from error
    return address
