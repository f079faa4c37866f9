"""The pool: which of its sessions is used, and which no more."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import func, select

from milepost.store import postgres_pool, secrets
from milepost.store.address import PostgresAddress
from milepost.store.engine_postgres import POOL_MAX, POOL_MIN, PostgresEngine
from milepost.store.work import Statement, Work
from tests.store.conftest import opened
from tests.store.making import TENANT
from tests.store.test_engines import put, terminate_others

OFTEN = 5 * POOL_MAX
BACKEND = Statement(select(func.pg_backend_pid()))


@pytest.fixture
async def engine(postgres_address: PostgresAddress) -> AsyncIterator[PostgresEngine]:
    """An engine with all the sessions that it has when it is opened."""
    async with opened(postgres_address) as engine:
        assert isinstance(engine, PostgresEngine)
        yield engine


def backend() -> Work[int]:
    ((pid,),) = yield BACKEND()
    assert isinstance(pid, int)
    return pid


async def backends_at_once(engine: PostgresEngine) -> set[int]:
    """Return the processes that serve as many at once as there are sessions."""
    return set(await asyncio.gather(*(engine.read(backend()) for _ in range(POOL_MIN))))


async def test_who_comes_one_after_the_other_uses_one_session(engine: PostgresEngine) -> None:
    assert len(await backends_at_once(engine)) == POOL_MIN

    used = {await engine.read(backend()) for _ in range(OFTEN)}
    for number in range(OFTEN):
        await engine.write(put(f"{number}"))

    assert used == {await engine.read(backend())}


async def test_sessions_that_ended_while_they_lay_idle_are_not_given_out(
    engine: PostgresEngine, postgres_address: PostgresAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await backends_at_once(engine)
    monkeypatch.setattr(postgres_pool, "IDLE_S", 0)
    terminate_others(postgres_address.url)

    await engine.write(put("a"))

    assert await engine.read(secrets.names(TENANT)) == ["a"]
    assert not before & await backends_at_once(engine)


async def test_a_session_that_stands_is_given_out_however_long_it_lay(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await engine.read(backend())
    monkeypatch.setattr(postgres_pool, "IDLE_S", 0)

    assert {await engine.read(backend()) for _ in range(OFTEN)} == {before}
