"""Opening a database by its address."""

from milepost.store.address import Address, SqliteAddress
from milepost.store.engine import Engine
from milepost.store.engine_postgres import PostgresEngine
from milepost.store.engine_sqlite import SqliteEngine
from milepost.store.thread import PostgresThreadStore, SqliteThreadStore, ThreadStore


async def open_engine(address: Address, *, pool_max: int) -> Engine:
    """Return the database, ready for work. Raises `DatabaseUnavailableError`."""
    if isinstance(address, SqliteAddress):
        return SqliteEngine(address.path)
    engine = PostgresEngine(address.url, pool_max=pool_max)
    await engine.open()
    return engine


def open_thread_store(address: Address) -> ThreadStore:
    """Return the database for a thread of its own."""
    if isinstance(address, SqliteAddress):
        return SqliteThreadStore(address.path)
    return PostgresThreadStore(address.url)
