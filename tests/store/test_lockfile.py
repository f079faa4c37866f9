"""The lock file: an embedded database belongs to one process, which the next one is told."""

import os
from pathlib import Path

import pytest

from milepost.core.errors import ConfigurationError
from milepost.store import lockfile
from milepost.store.address import PostgresAddress, SqliteAddress


def test_a_second_holder_is_refused_and_told_who_is_the_first(
    sqlite_address: SqliteAddress,
) -> None:
    with (
        lockfile.held(sqlite_address),
        pytest.raises(ConfigurationError, match=f"in use by process {os.getpid()}") as caught,
        lockfile.held(sqlite_address),
    ):
        pass

    assert caught.value.code == "database_in_use"


def test_who_lets_go_lets_the_next_one_in(sqlite_address: SqliteAddress) -> None:
    with lockfile.held(sqlite_address):
        pass

    with lockfile.held(sqlite_address):
        pass


def test_a_file_by_another_name_is_the_same_file(
    sqlite_address: SqliteAddress, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere" / "other.db"
    other.parent.mkdir()
    other.symlink_to(sqlite_address.path)

    with (
        lockfile.held(sqlite_address),
        pytest.raises(ConfigurationError, match="in use by process"),
        lockfile.held(SqliteAddress(other)),
    ):
        pass


def test_a_server_is_for_everybody(postgres_address: PostgresAddress) -> None:
    with lockfile.held(postgres_address), lockfile.held(postgres_address):
        pass
