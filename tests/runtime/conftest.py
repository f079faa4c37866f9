"""A workshop for every test."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runtime.workshop import Workshop, working


@pytest.fixture
def database(sqlite_template: Path, tmp_path: Path) -> Path:
    """A file of the test's own."""
    return Path(shutil.copy(sqlite_template, tmp_path / "milepost.db"))


@pytest.fixture
async def shop(database: Path) -> AsyncIterator[Workshop]:
    """A workshop on it."""
    async with working(database) as shop:
        yield shop
