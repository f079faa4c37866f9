"""A fresh database of each kind for every test: copies of one that was migrated."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from milepost.store.address import Address, PostgresAddress, SqliteAddress, parse_address
from milepost.store.engine import Engine
from milepost.store.opening import open_engine
from milepost.store.store import Store
from tests.databases import database, named


@pytest.fixture
def sqlite_address(sqlite_template: Path, tmp_path: Path) -> SqliteAddress:
    """A file of the test's own."""
    return SqliteAddress(Path(shutil.copy(sqlite_template, tmp_path / "milepost.db")))


@pytest.fixture
def postgres_address(postgres_url: str, postgres_template: str) -> Iterator[PostgresAddress]:
    """A database of the test's own."""
    with database(postgres_url, postgres_template) as name:
        yield PostgresAddress(named(postgres_url, name))


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest) -> Address:
    """A migrated database of each kind."""
    found: Address = request.getfixturevalue(f"{request.param}_address")
    return found


@pytest.fixture
async def engine(address: Address) -> AsyncIterator[Engine]:
    """An engine on such a database."""
    async with opened(address) as engine:
        yield engine


@pytest.fixture
async def store(engine: Engine) -> AsyncIterator[Store]:
    """A store on such a database, its group commits served."""
    async with serving(Store(engine)) as store:
        yield store


@contextlib.asynccontextmanager
async def opened(address: Address) -> AsyncIterator[Engine]:
    """Open an engine, and close it."""
    engine = await open_engine(address, pool_max=4)
    try:
        yield engine
    finally:
        await engine.close()


@contextlib.asynccontextmanager
async def store_at(database_url: str) -> AsyncIterator[Store]:
    """Open a store on a database as another process does, its group commits served."""
    async with opened(parse_address(database_url)) as engine, serving(Store(engine)) as store:
        yield store


@contextlib.asynccontextmanager
async def serving(store: Store) -> AsyncIterator[Store]:
    """Serve the store's group commits."""
    serving = asyncio.create_task(store.run())
    try:
        yield store
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


def waiting_for_locks(watching: psycopg.Connection[tuple[int]]) -> int:
    """Return how many sessions of this database wait for a lock."""
    found = watching.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ).fetchone()
    assert found is not None
    return found[0]
