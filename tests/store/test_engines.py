"""The two engines: what a write and a read are, and what becomes of them when things break."""

import asyncio
import contextlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from select import select as select_ready
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.pq import ConnStatus
from psycopg.waiting import Ready
from psycopg_pool import AsyncConnectionPool as Pool
from psycopg_pool import pool_async
from psycopg_pool.pool_async import AddConnection, MaintenanceTask
from sqlalchemy import bindparam, func, insert, select

from milepost.core.errors import ConflictError
from milepost.store import engine_postgres, engine_sqlite, schema, secrets
from milepost.store.address import Address, PostgresAddress, SqliteAddress
from milepost.store.engine import (
    CollisionError,
    DatabaseRefusedError,
    DatabaseUnavailableError,
    Engine,
)
from milepost.store.engine_postgres import POOL_MAX, PostgresEngine
from milepost.store.engine_sqlite import GROUP_MAX, SqliteEngine
from milepost.store.opening import open_thread_store
from milepost.store.postgres_session import Connection, connect, parameters
from milepost.store.thread import PostgresThreadStore, SqliteThreadStore
from milepost.store.work import Statement, Work
from tests.store.conftest import opened
from tests.store.making import TENANT

ROUNDS = 200
AT_ONCE = 4
AWAY_S = 120.0
AWAY_TIMEOUT_S = 30.0
RECONNECTED_S = 2.5


def put(name: str) -> Work[None]:
    return secrets.put(TENANT, name, "sealed", 1)


def names() -> Work[list[str]]:
    return secrets.names(TENANT)


def put_and_fail(name: str) -> Work[None]:
    yield from put(name)
    raise ConflictError("changed my mind")


ADD = Statement(
    insert(schema.secrets).values(
        tenant=bindparam("tenant"), name=bindparam("name"), ciphertext="sealed"
    )
)
REST = Statement(select(func.pg_sleep(5)))
NAMES = Statement(select(schema.secrets.c.name).order_by(schema.secrets.c.name))


def put_twice(name: str) -> Work[None]:
    yield ADD(tenant=TENANT, name=name)
    yield ADD(tenant=TENANT, name=name)


def put_both_at_once(one: str, other: str) -> Work[list[str]]:
    first, second, found = yield (
        ADD(tenant=TENANT, name=one),
        ADD(tenant=TENANT, name=other),
        NAMES(),
    )
    assert (first, second) == ([], [])
    return [name for (name,) in found]


def rest() -> Work[None]:
    """Take longer than whoever cancels it needs."""
    yield REST()


async def test_what_was_written_is_read(engine: Engine) -> None:
    await engine.write(put("a"))

    assert await engine.read(names()) == ["a"]


async def test_a_write_that_raises_leaves_no_trace(engine: Engine) -> None:
    with pytest.raises(ConflictError):
        await engine.write(put_and_fail("a"))

    assert await engine.read(names()) == []


async def test_a_row_that_is_there_already_is_a_collision(engine: Engine) -> None:
    with pytest.raises(CollisionError):
        await engine.write(put_twice("a"))

    assert await engine.read(names()) == []


@pytest.mark.parametrize("row", [{}, {"name": None}])
async def test_a_row_that_can_never_be_stored_is_refused(
    engine: Engine, row: dict[str, None]
) -> None:
    def add() -> Work[None]:
        yield ADD(tenant=TENANT, **row)

    with pytest.raises(DatabaseRefusedError) as caught:
        await engine.write(add())

    assert not caught.value.retryable
    assert await engine.read(names()) == []


async def test_statements_that_go_together_are_answered_together(engine: Engine) -> None:
    assert await engine.write(put_both_at_once("a", "b")) == ["a", "b"]


async def test_work_that_asks_for_nothing_is_done_too(engine: Engine) -> None:
    def nothing() -> Work[int]:
        yield ()
        return 7

    assert await engine.write(nothing()) == 7
    assert await engine.read(nothing()) == 7


async def test_writes_at_once_are_each_all_or_nothing(engine: Engine) -> None:
    wanted = [f"{number:03}" for number in range(3 * GROUP_MAX)]

    outcomes = await asyncio.gather(
        *(engine.write(put(name) if int(name) % 3 else put_and_fail(name)) for name in wanted),
        return_exceptions=True,
    )

    kept = [name for name in wanted if int(name) % 3]
    assert await engine.read(names()) == kept
    assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == GROUP_MAX


async def test_who_gave_up_waiting_does_not_disturb_the_others(engine: Engine) -> None:
    async with asyncio.TaskGroup() as tasks:
        patient = [tasks.create_task(engine.write(put(f"{number}"))) for number in range(5)]
        impatient = tasks.create_task(engine.write(put("x")))
        await asyncio.sleep(0)
        impatient.cancel()

    assert all(task.done() for task in patient)
    assert {"0", "1", "2", "3", "4"} <= set(await engine.read(names()))


async def test_an_engine_sees_what_another_one_wrote(address: Address) -> None:
    async with opened(address) as one, opened(address) as other:
        await one.write(put("a"))

        assert await other.read(names()) == ["a"]


def test_a_thread_s_store_does_each_work_in_its_own_transaction(address: Address) -> None:
    store = open_thread_store(address)
    store.write(put("a"))

    with pytest.raises(ConflictError):
        store.write(put_and_fail("b"))
    with pytest.raises(CollisionError):
        store.write(put_twice("c"))

    assert store.write(names()) == ["a"]
    assert store.write(put_both_at_once("d", "e")) == ["a", "d", "e"]
    store.close()


async def test_a_thread_s_store_and_the_engine_see_each_other_s_work(address: Address) -> None:
    store = open_thread_store(address)
    async with opened(address) as engine:
        await engine.write(put("a"))
        await asyncio.to_thread(store.write, put("b"))

        assert await engine.read(names()) == ["a", "b"]
    store.close()


# --- SQLite ---------------------------------------------------------------------------------


async def test_closing_sqlite_finishes_what_was_handed_in(sqlite_address: SqliteAddress) -> None:
    engine = SqliteEngine(sqlite_address.path)
    handed_in = [asyncio.ensure_future(engine.write(put(f"{n:03}"))) for n in range(100)]
    await asyncio.sleep(0)

    await engine.close()

    await asyncio.gather(*handed_in)
    async with opened(sqlite_address) as again:
        assert len(await again.read(names())) == 100


async def test_a_closed_sqlite_refuses_instead_of_waiting(sqlite_address: SqliteAddress) -> None:
    engine = SqliteEngine(sqlite_address.path)
    await engine.close()

    for asked in (engine.write(put("a")), engine.read(names())):
        with pytest.raises(DatabaseUnavailableError):
            await asyncio.wait_for(asked, timeout=5)


def test_a_file_that_cannot_be_opened_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailableError):
        SqliteEngine(tmp_path)


def test_a_thread_is_told_of_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailableError):
        SqliteThreadStore(tmp_path)


async def test_a_reader_that_could_not_open_the_file_tries_again(
    sqlite_address: SqliteAddress, tmp_path: Path
) -> None:
    async with opened(sqlite_address) as engine:
        await engine.write(put("a"))
        aside = sqlite_address.path.rename(tmp_path / "aside.db")
        sqlite_address.path.mkdir()
        with pytest.raises(DatabaseUnavailableError):
            await engine.read(names())
        sqlite_address.path.rmdir()
        aside.rename(sqlite_address.path)

        assert await engine.read(names()) == ["a"]


def test_connections_that_open_a_new_file_at_once_all_get_it(
    sqlite_template: Path, tmp_path: Path
) -> None:
    failures: list[BaseException] = []

    def open_it(path: Path, barrier: threading.Barrier) -> None:
        barrier.wait()
        try:
            engine_sqlite.connect(path).close()
        except Exception as error:
            failures.append(error)

    for number in range(ROUNDS):
        path = shutil.copy(sqlite_template, tmp_path / f"{number}.db")
        barrier = threading.Barrier(AT_ONCE)
        threads = [threading.Thread(target=open_it, args=(path, barrier)) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert failures == []


def test_sqlite_syncs_every_commit_and_erases_what_was_deleted(tmp_path: Path) -> None:
    connection = engine_sqlite.connect(tmp_path / "new.db")

    told = {
        name: connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "secure_delete", "foreign_keys")
    }
    connection.close()

    assert told == {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1, "foreign_keys": 1}


# --- Postgres -------------------------------------------------------------------------------


def terminate_others(url: str) -> None:
    """Break every other connection to the database, as a restart would."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


async def test_a_broken_connection_is_told_apart_and_replaced(
    postgres_address: PostgresAddress,
) -> None:
    async with opened(postgres_address) as engine:

        def broken() -> Work[None]:
            yield from put("a")
            terminate_others(postgres_address.url)
            yield from put("b")

        with pytest.raises(DatabaseUnavailableError):
            await engine.write(broken())

        assert await engine.read(names()) == []


def read_only(url: str, *, on: bool) -> None:
    """Have the sessions that begin from now on refuse writes, as those of a standby do."""
    writing = "-c default_transaction_read_only=off"
    with psycopg.connect(url, autocommit=True, options=writing) as connection:
        name = connection.info.dbname
        said = "on" if on else "off"
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {said}")


async def test_a_server_that_refuses_writes_is_away_until_there_is_one_that_takes_them(
    postgres_address: PostgresAddress,
) -> None:
    read_only(postgres_address.url, on=True)
    async with opened(postgres_address) as engine:
        with pytest.raises(DatabaseUnavailableError):
            await engine.write(put("a"))
        read_only(postgres_address.url, on=False)

        for _ in range(POOL_MAX):  # A session that began on a standby stays there.
            with contextlib.suppress(DatabaseUnavailableError):
                await engine.write(put("a"))
                break

        assert await engine.read(names()) == ["a"]


def test_a_thread_leaves_a_server_that_refuses_writes(postgres_address: PostgresAddress) -> None:
    read_only(postgres_address.url, on=True)
    store = PostgresThreadStore(postgres_address.url)
    with pytest.raises(DatabaseUnavailableError):
        store.write(put("a"))
    read_only(postgres_address.url, on=False)

    store.write(put("a"))

    assert store.write(names()) == ["a"]
    store.close()


async def test_a_value_that_postgres_cannot_hold_is_refused(
    postgres_address: PostgresAddress,
) -> None:
    async with opened(postgres_address) as engine:
        with pytest.raises(DatabaseRefusedError):
            await engine.write(put("a\0b"))

        assert await engine.read(names()) == []


def test_a_server_that_is_not_there_is_told_apart() -> None:
    store = PostgresThreadStore("postgresql://nobody@127.0.0.1:1/nowhere")

    with pytest.raises(DatabaseUnavailableError):
        store.write(put("a"))

    store.close()


async def test_work_holds_a_connection_only_while_it_runs(
    postgres_address: PostgresAddress,
) -> None:
    engine = PostgresEngine(postgres_address.url, pool_max=2)
    await engine.open()

    await asyncio.gather(*(engine.write(put(f"{number}")) for number in range(20)))
    for _ in range(3):
        with pytest.raises(ConflictError):
            await engine.write(put_and_fail("x"))

    assert sorted(await engine.read(names()), key=int) == [f"{number}" for number in range(20)]
    await engine.close()


@pytest.mark.parametrize("turns", range(8))
async def test_who_is_cancelled_while_a_connection_is_handed_over_hears_of_it(
    postgres_address: PostgresAddress, turns: int
) -> None:
    engine = PostgresEngine(postgres_address.url, pool_max=1)
    await engine.open()
    try:
        async with engine.transaction(10.0):
            waiting = asyncio.create_task(engine.read(rest()))
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        assert waiting.cancel()
        await asyncio.wait({waiting})

        assert waiting.cancelled()
        assert await engine.read(names()) == []
    finally:
        await engine.close()


@contextlib.contextmanager
def away(url: str, address: PostgresAddress) -> Iterator[None]:
    """Let nobody into the database, and throw out who is there; `url` leads to another one."""
    name = urlsplit(address.url).path.removeprefix("/")
    terminate_others(address.url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )
        yield
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


async def test_who_gave_up_waiting_for_a_database_that_is_away_takes_no_place(
    monkeypatch: pytest.MonkeyPatch, postgres_url: str, postgres_address: PostgresAddress
) -> None:
    monkeypatch.setattr(engine_postgres, "POOL_WAIT_S", 0.1)
    engine = PostgresEngine(postgres_address.url, pool_max=1, waiting_max=2)
    monkeypatch.undo()
    await engine.open()
    with away(postgres_url, postgres_address):
        with pytest.raises(DatabaseUnavailableError):
            await engine.read(names())  # on the connection that was thrown out
        waiting = [engine.read(names()) for _ in range(3)]
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        kinds = sorted(type(answer).__name__ for answer in answers)
        assert kinds == ["DatabaseUnavailableError"] * 2 + ["OverloadedError"]

        with pytest.raises(DatabaseUnavailableError):
            await engine.read(names())
    await engine.close()


async def test_a_database_that_was_away_for_minutes_is_found_again_at_once(
    monkeypatch: pytest.MonkeyPatch, postgres_url: str, postgres_address: PostgresAddress
) -> None:
    """The pool's clock is moved on to each attempt, so that nobody waits for it."""
    now_s, pauses_s, minutes_later = 0.0, list[float](), asyncio.Event()

    async def hurry(pool: Pool, task: MaintenanceTask, delay: float) -> None:
        nonlocal now_s
        if isinstance(task, AddConnection):
            now_s += delay
            pauses_s.append(delay)
            pool.run_task(task)
        if now_s >= AWAY_S:
            minutes_later.set()

    monkeypatch.setattr(pool_async, "monotonic", lambda: now_s)
    monkeypatch.setattr(Pool, "schedule_task", hurry)
    engine = PostgresEngine(postgres_address.url, pool_max=2)
    await engine.open()
    with away(postgres_url, postgres_address):
        with pytest.raises(DatabaseUnavailableError):
            await engine.read(names())  # on the connection that was thrown out
        waiting = asyncio.create_task(engine.read(names()))
        async with asyncio.timeout(AWAY_TIMEOUT_S):
            await minutes_later.wait()

    assert await waiting == []
    assert max(pauses_s) < RECONNECTED_S
    await engine.close()


def test_a_thread_s_store_connects_again_after_a_break(postgres_address: PostgresAddress) -> None:
    store = PostgresThreadStore(postgres_address.url)
    store.write(put("a"))
    terminate_others(postgres_address.url)

    with pytest.raises(DatabaseUnavailableError):
        store.write(put("b"))
    store.write(put("c"))

    assert store.write(names()) == ["a", "c"]
    store.close()


async def test_a_statement_that_nobody_answered_is_not_taken_for_done(
    postgres_address: PostgresAddress,
) -> None:
    """A cancellation may leave the driver in a pipeline that is over."""
    engine = PostgresEngine(postgres_address.url, pool_max=1)
    await engine.open()
    await engine.write(put("a"))

    async with engine._pool.connection() as connection:
        lose_the_place(connection)
    with pytest.raises(DatabaseUnavailableError):
        await engine.read(names())

    assert await engine.read(names()) == ["a"]
    await engine.close()


def readiness(socket: int) -> Ready:
    """Wait for a socket, as the driver would."""
    readable, writable, _ = select_ready([socket], [socket], [])
    return Ready((Ready.R if readable else 0) | (Ready.W if writable else 0))


def end(pipeline: psycopg.AsyncPipeline, connection: Connection) -> None:
    """End a pipeline as the driver does; return where it would wait for what is there no more."""
    ending = pipeline._exit_gen()
    next(ending)
    while connection.pgconn.status != ConnStatus.BAD:
        ending.send(readiness(connection.pgconn.socket))


async def test_a_pipeline_whose_server_is_gone_waits_for_nothing_more(
    postgres_address: PostgresAddress,
) -> None:
    """Its socket is closed, and another connection may have got the number of it."""
    connection = await Connection.connect(**parameters(postgres_address.url))
    with contextlib.suppress(psycopg.OperationalError):
        async with connection.pipeline() as pipeline:
            await connection.execute("SELECT 1")
            terminate_others(postgres_address.url)

            with pytest.raises(psycopg.OperationalError):
                end(pipeline, connection)

            assert connection.pgconn.status == ConnStatus.BAD
    await connection.close()


_SOON_SILENT = Statement(
    select(func.set_config("idle_in_transaction_session_timeout", "100ms", True))
)
_LOCK = Statement(select(func.pg_advisory_xact_lock(42)))


def lock_and_fall_silent(address: PostgresAddress, *, together: bool) -> Work[None]:
    """Take a lock, and say nothing until another has it. Raises if that one waits too long."""
    if together:
        yield _SOON_SILENT(), _LOCK()
    else:
        yield _SOON_SILENT()
        yield _LOCK()
    with connect(address.url) as rival:
        rival.execute("SELECT pg_advisory_xact_lock(42)")


@pytest.mark.parametrize("together", [True, False])
async def test_who_falls_silent_in_a_transaction_keeps_no_lock_from_others(
    postgres_address: PostgresAddress, together: bool
) -> None:
    async with opened(postgres_address) as engine:
        with pytest.raises(DatabaseUnavailableError, match="idle-in-transaction"):
            await engine.write(lock_and_fall_silent(postgres_address, together=together))


async def test_who_falls_silent_with_a_groups_locks_loses_them_before_others_lose_patience(
    postgres_address: PostgresAddress,
) -> None:
    async with opened(postgres_address) as engine:
        with pytest.raises(DatabaseUnavailableError, match="idle-in-transaction"):
            await engine.write_each(_lock_and_fall_silent_as_ever(postgres_address), [])


def _lock_and_fall_silent_as_ever(address: PostgresAddress) -> Work[list[None]]:
    yield _LOCK()
    with connect(address.url) as rival:
        rival.execute("SELECT pg_advisory_xact_lock(42)")
    yield _LOCK()
    return []


async def test_a_commit_that_nobody_answered_is_not_taken_for_done(
    postgres_address: PostgresAddress,
) -> None:
    engine = PostgresEngine(postgres_address.url, pool_max=1)
    await engine.open()

    async with engine._pool.connection() as connection:
        only = connection
    with pytest.raises(DatabaseUnavailableError):
        await engine.write(put_and_lose_the_place(only))
    await engine.write(put("b"))

    assert "b" in await engine.read(names())  # Whether "a" is there nobody can say.
    await engine.close()


def put_and_lose_the_place(connection: psycopg.AsyncConnection) -> Work[None]:
    yield from put("a")
    lose_the_place(connection)


def lose_the_place(connection: psycopg.AsyncConnection) -> None:
    """Leave the driver in a pipeline that nobody will end."""
    connection._pipeline = psycopg.AsyncPipeline(connection)
    connection._pipeline.level = 1
    connection.pgconn.enter_pipeline_mode()
