"""Behind a pooler that lends a session for one transaction, nothing is left in it, or missing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import bindparam, func, insert, select, text

from milepost.store import queue, schema, secrets
from milepost.store.address import PostgresAddress
from milepost.store.engine import CollisionError
from milepost.store.engine_postgres import PostgresEngine
from milepost.store.migrate import migrate, require_usable
from milepost.store.opening import open_thread_store
from milepost.store.postgres_session import LOCK_TIMEOUT
from milepost.store.store import Store
from milepost.store.work import Statement, Work
from tests.databases import database, named
from tests.pgbouncer import bounced
from tests.pooler import SESSIONS_MAX, pooled
from tests.store.conftest import opened, serving
from tests.store.making import NOW_MS, TENANT, queued

OFTEN = 12  # Beyond the count from which the driver would prepare a statement.
TIMEOUT_S = 60

ADD = Statement(
    insert(schema.secrets).values(
        tenant=bindparam("tenant"), name=bindparam("name"), ciphertext="sealed"
    )
)
SETTINGS = Statement(
    select(
        func.current_setting("lock_timeout"),
        func.current_setting("statement_timeout"),
        func.current_setting("idle_in_transaction_session_timeout"),
        func.current_setting("enable_seqscan"),
        func.current_setting("jit"),
    )
)
# Of this database alone: other tests migrate theirs.
LOCKS = """SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
WHERE datname = current_database() AND locktype = 'advisory'"""
PREPARED = Statement(select(func.count()).select_from(text("pg_prepared_statements")))


@pytest.fixture(params=["ours", "PgBouncer"])
async def pooled_address(
    request: pytest.FixtureRequest, postgres_address: PostgresAddress
) -> AsyncIterator[PostgresAddress]:
    """A migrated database behind a pooler of each kind."""
    if request.param == "ours":
        async with pooled(postgres_address.url) as (url, _):
            yield PostgresAddress(url)
        return
    with bounced(postgres_address.url) as url:
        yield PostgresAddress(url)


@pytest.fixture
async def engine(pooled_address: PostgresAddress) -> AsyncIterator[PostgresEngine]:
    """An engine behind the pooler."""
    async with opened(pooled_address) as engine:
        assert isinstance(engine, PostgresEngine)
        yield engine


def put(name: str) -> Work[None]:
    return secrets.put(TENANT, name, "sealed", 1)


def twice(name: str) -> Work[None]:
    yield ADD(tenant=TENANT, name=name)
    yield ADD(tenant=TENANT, name=name)


def row_of(statement: Statement) -> Work[tuple[Any, ...]]:
    [row] = yield statement()
    return tuple(row)


async def test_what_is_done_often_is_done_in_whatever_session(engine: PostgresEngine) -> None:
    names = [f"{number:02}" for number in range(OFTEN)]

    for name in names:
        await engine.write(put(name))
    seen = [await engine.read(secrets.names(TENANT)) for _ in names]

    assert seen == [names] * OFTEN


async def test_many_at_once_share_few_sessions(engine: PostgresEngine) -> None:
    names = [f"{number:03}" for number in range(10 * SESSIONS_MAX)]

    await asyncio.gather(*(engine.write(put(name)) for name in names))

    assert await engine.read(secrets.names(TENANT)) == names


async def test_nothing_is_left_in_a_session_that_others_are_lent(engine: PostgresEngine) -> None:
    for number in range(OFTEN):
        await engine.write(put(f"{number:02}"))
    async with engine.transaction(1.0) as opened:
        await opened.execute("SELECT count(*) FROM secrets", {})
        await opened.commit()

    settings = [await engine.read(row_of(SETTINGS)) for _ in range(OFTEN)]
    prepared = [await engine.read(row_of(PREPARED)) for _ in range(OFTEN)]

    assert settings == [("0", "0", "0", "on", "on")] * OFTEN
    assert prepared == [(0,)] * OFTEN


async def test_a_transaction_has_its_time_outs_wherever_it_runs(engine: PostgresEngine) -> None:
    seen = [await engine.write(row_of(SETTINGS)) for _ in range(OFTEN)]

    assert seen == [(LOCK_TIMEOUT, "30s", "5s", "on", "on")] * OFTEN


async def test_a_transaction_that_stays_open_keeps_its_session(engine: PostgresEngine) -> None:
    add = "INSERT INTO secrets VALUES (:tenant, :name, 'sealed', 1)"
    async with engine.transaction(5.0) as one, engine.transaction(5.0) as other:
        for name in ("a", "b", "c"):
            await one.execute(add, {"tenant": TENANT, "name": name})
            await other.execute(add, {"tenant": "another", "name": name})
        await one.commit()

    assert await engine.read(secrets.names(TENANT)) == ["a", "b", "c"]
    assert await engine.read(secrets.names("another")) == []


async def test_what_fails_is_rolled_back_and_the_next_one_is_well(engine: PostgresEngine) -> None:
    await engine.write(put("a"))

    for _ in range(OFTEN):
        with pytest.raises(CollisionError):
            await engine.write(twice("b"))
    await engine.write(put("c"))

    assert await engine.read(secrets.names(TENANT)) == ["a", "c"]


async def test_a_group_is_committed_together(pooled_address: PostgresAddress) -> None:
    async with opened(pooled_address) as engine, serving(Store(engine)) as store:
        created = await asyncio.gather(*(queued(store) for _ in range(64)))
        claims = await store.write(queue.claim("nobody", 10, "append_1", NOW_MS))

    assert len({run.id for run in created}) == 64
    assert claims == []


async def test_a_thread_renews_its_lease(pooled_address: PostgresAddress) -> None:
    def renew() -> None:
        store = open_thread_store(pooled_address)
        store.write(queue.register("worker_1", 60_000))
        for _ in range(OFTEN):
            store.write(queue.renew("worker_1", 60_000))
        store.close()

    await asyncio.wait_for(asyncio.to_thread(renew), TIMEOUT_S)


async def test_several_migrate_at_once_and_leave_no_lock(postgres_url: str) -> None:
    with database(postgres_url) as name:
        async with pooled(named(postgres_url, name)) as (url, pooler):
            address = PostgresAddress(url)
            both = (asyncio.to_thread(migrate, address) for _ in range(3))
            await asyncio.wait_for(asyncio.gather(*both), TIMEOUT_S)
            await asyncio.to_thread(require_usable, address)

        assert pooler.transactions > 3
        assert pooler.lent == 0
        with psycopg.connect(named(postgres_url, name)) as connection:
            locks = connection.execute(LOCKS)
            assert locks.fetchall() == []


async def test_a_session_that_is_ours_has_our_settings_and_keeps_statements(
    postgres_address: PostgresAddress,
) -> None:
    async with opened(postgres_address) as engine:
        settings = {await engine.read(row_of(SETTINGS)) for _ in range(5 * OFTEN)}
        (prepared,) = await engine.read(row_of(PREPARED))

    assert settings == {(LOCK_TIMEOUT, "30s", "5s", "off", "off")}
    assert prepared > 0
