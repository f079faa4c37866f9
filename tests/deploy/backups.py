"""Backups as deploy/README.md tells to make and to restore them, on either database."""

import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

from tests.devservices import _postgres_wheel

COPY_S = 120


class Backups(Protocol):
    """A way to copy a database that is in use, and to make one from the copy."""

    url: str

    def make(self) -> None:
        """Copy the database as it is now."""

    def restore(self) -> str:
        """Make a database from the copy; return its address."""


class SqliteBackups:
    """`VACUUM INTO`: a file that is whole, whatever is written meanwhile."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/milepost.db"
        self._folder = folder

    def make(self) -> None:
        """Copy the database as it is now."""
        with closing(sqlite3.connect(self._folder / "milepost.db")) as source:
            source.execute("VACUUM INTO ?", (str(self._folder / "backup.db"),))

    def restore(self) -> str:
        """Say where the copy is: it is a database already."""
        return f"sqlite:///{self._folder}/backup.db"


class PostgresBackups:
    """`pg_dump` and `pg_restore`, into a database that is empty."""

    def __init__(self, url: str, empty_url: str, folder: Path) -> None:
        self.url = url
        self._empty_url = empty_url
        self._file = folder / "milepost.dump"

    def make(self) -> None:
        """Copy the database as it is now."""
        _run(["pg_dump", "--format=custom", f"--file={self._file}", self.url])

    def restore(self) -> str:
        """Fill the empty database."""
        target = f"--dbname={self._empty_url}"
        _run(["pg_restore", "--exit-on-error", "--no-owner", target, str(self._file)])
        return self._empty_url


def can_dump() -> bool:
    """Say whether Postgres' own programs are here, of the version of the tests' server."""
    found = _postgres_wheel()
    return found is not None and found.path.with_name("pg_dump").exists()


def _run(command: Sequence[str]) -> None:
    found = _postgres_wheel()
    assert found
    name, *words = command
    subprocess.run([found.path.with_name(name), *words], check=True, timeout=COPY_S)
