"""A workshop for every test."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from milepost.store.address import SqliteAddress
from milepost.store.migrate import migrate
from tests.runtime.workshop import Workshop, working


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, of which every test gets a copy."""
    path = tmp_path_factory.mktemp("runtime") / "milepost.db"
    migrate(SqliteAddress(path))
    return path


@pytest.fixture
def database(migrated_file: Path, tmp_path: Path) -> Path:
    """A file of the test's own."""
    return Path(shutil.copy(migrated_file, tmp_path / "milepost.db"))


@pytest.fixture
async def shop(database: Path) -> AsyncIterator[Workshop]:
    """A workshop on it."""
    async with working(database) as shop:
        yield shop
