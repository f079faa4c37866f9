"""Opening a database by its address."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from milepost.store.address import Address, SqliteAddress
from milepost.store.engine import Engine, Told, nobody
from milepost.store.engine_postgres import PostgresEngine
from milepost.store.engine_sqlite import SqliteEngine
from milepost.store.store import Store
from milepost.store.thread import PostgresThreadStore, SqliteThreadStore, ThreadStore

# Of what asks over HTTP; at some milliseconds each, the last is served before it loses patience.
ASKING_MAX = 1_024
WORKING_MIN = 2


async def open_engine(address: Address, *, pool_max: int, waiting_max: int | None = None) -> Engine:
    """Return the database, ready for work. Raises `DatabaseUnavailableError`."""
    if isinstance(address, SqliteAddress):
        return SqliteEngine(address.path)
    engine = PostgresEngine(address.url, pool_max=pool_max, waiting_max=waiting_max)
    await engine.open()
    return engine


@asynccontextmanager
async def open_stores(
    address: Address, *, pool_max: int, queue_max: int, told: Told = nobody
) -> AsyncIterator[tuple[Store, Store]]:
    """Yield the store of those who ask, and the store of those who work: often the same.

    On Postgres each has half of the `pool_max` connections, so that no crowd of requests keeps a
    worker from the run that it has in hand, nor a new run from being queued. What asks while
    `ASKING_MAX` others wait is refused with `OverloadedError`. `pool_max` is at least 3: who works
    has two, since a tool's transaction may hold one. `told` hears whether the database does what
    both ask.
    """
    async with AsyncExitStack() as stack:
        if isinstance(address, SqliteAddress):
            alone = await open_engine(address, pool_max=pool_max)
            stack.push_async_callback(alone.close)
            store = Store(alone, queue_max=queue_max, told=told)
            yield store, store
            return
        working_max = max(WORKING_MIN, pool_max // 2)
        working = await open_engine(address, pool_max=working_max)
        stack.push_async_callback(working.close)
        asking = await open_engine(address, pool_max=pool_max - working_max, waiting_max=ASKING_MAX)
        stack.push_async_callback(asking.close)
        yield (
            Store(asking, commits=working, queue_max=queue_max, told=told),
            Store(working, queue_max=queue_max, told=told),
        )


def open_thread_store(address: Address) -> ThreadStore:
    """Return the database for a thread of its own."""
    if isinstance(address, SqliteAddress):
        return SqliteThreadStore(address.path)
    return PostgresThreadStore(address.url)
