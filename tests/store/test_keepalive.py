"""A connection to a Postgres whose machine is gone does not wait for an answer for hours."""

import asyncio
import os
import socket
from contextlib import closing

import pytest
from sqlalchemy import func, select

from milepost.store import postgres_session
from milepost.store.address import PostgresAddress
from milepost.store.engine import DatabaseUnavailableError
from milepost.store.engine_postgres import PostgresEngine
from milepost.store.postgres_session import Connection
from milepost.store.thread import PostgresThreadStore
from milepost.store.work import Statement, Work

SILENCE = Statement(select(func.pg_sleep(20)))
ANSWER = Statement(select(func.pg_backend_pid()))
ANSWER_S = 0.5


def keep_silent() -> Work[None]:
    """Have the server take its time, as one does that is gone behind a proxy that lives."""
    yield SILENCE()


def ask() -> Work[int]:
    ((pid,),) = yield ANSWER()
    return int(pid)


def test_a_server_that_fell_silent_is_asked_within_seconds_whether_it_is_there(
    postgres_url: str,
) -> None:
    with (
        closing(postgres_session.connect(postgres_url)) as connection,
        socket.socket(fileno=os.dup(connection.fileno())) as opened,
    ):
        asked = opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle_s = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        patience_ms = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    assert asked
    assert idle_s == postgres_session.KEEPALIVE_S
    assert patience_ms == postgres_session.TCP_USER_TIMEOUT_MS


async def test_an_answer_that_never_comes_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, postgres_address: PostgresAddress
) -> None:
    """Nobody would ever wake who waits for it: not the commits of a process, nor its sweeper."""
    monkeypatch.setattr(Connection, "answer_s", ANSWER_S)
    engine = PostgresEngine(postgres_address.url, pool_max=2)
    await engine.open()
    held, other = await asyncio.gather(engine.read(ask()), engine.read(ask()))

    with pytest.raises(DatabaseUnavailableError):
        await engine.write(keep_silent())

    after = {await engine.read(ask()) for _ in range(4)}
    assert after.isdisjoint({held, other})  # What leads to a silent server is none to ask again.
    await engine.close()


async def test_a_statement_of_a_tool_s_own_may_take_as_long_as_the_tool(
    monkeypatch: pytest.MonkeyPatch, postgres_address: PostgresAddress
) -> None:
    monkeypatch.setattr(Connection, "answer_s", ANSWER_S)
    engine = PostgresEngine(postgres_address.url, pool_max=1)
    await engine.open()

    async with engine.transaction(limit_s=20.0) as opened:
        await opened.execute(f"SELECT pg_sleep({2 * ANSWER_S})", {})
    with pytest.raises(DatabaseUnavailableError):
        await engine.read(keep_silent())

    await engine.close()


def test_a_thread_hangs_up_on_a_silent_server_and_connects_again(
    monkeypatch: pytest.MonkeyPatch, postgres_address: PostgresAddress
) -> None:
    """Else a lease is renewed no more, and a worker that nobody told so takes no run any more."""
    monkeypatch.setattr(postgres_session, "THREAD_ANSWER_S", ANSWER_S)
    store = PostgresThreadStore(postgres_address.url)

    with pytest.raises(DatabaseUnavailableError):
        store.write(keep_silent())

    assert store.write(ask())
    store.close()
