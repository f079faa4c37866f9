"""Statements that share a round trip: their values, their order, what fails, and what is kept."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from milepost.store.address import PostgresAddress
from milepost.store.postgres_pipeline import exchange
from milepost.store.postgres_session import Connection, claim, parameters
from milepost.store.prepared import NAMES_MAX
from milepost.store.work import Rows

MUCH = 16_000_000
KEPT = "SELECT name FROM pg_prepared_statements WHERE name LIKE 'milepost%%' ORDER BY name"


@pytest.fixture
async def connection(postgres_address: PostgresAddress) -> AsyncIterator[Connection]:
    opened = await Connection.connect(**parameters(postgres_address.url))
    await claim(opened)
    yield opened
    await opened.close()


async def ask(connection: Connection, *texts: str) -> list[Rows]:
    return await exchange(connection, [(text, {}) for text in texts])


async def sleeping(address: PostgresAddress, process_id: int) -> None:
    """Return once this process sleeps: one between two statements takes no interruption."""
    async with await Connection.connect(**parameters(address.url)) as watching:
        seen = "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
        while not (await watching.execute(seen, [process_id])).rowcount:
            pass


async def test_values_come_back_as_they_were_sent(connection: Connection) -> None:
    values = {
        "text": "ü % $1 '\\",
        "none": None,
        "number": 2**40,
        "small": 1,
        "yes": True,
        "half": 0.1,
        "bytes": b"\x00\xff",
    }
    text = (
        "SELECT %(text)s::VARCHAR, %(none)s::VARCHAR, %(number)s::BIGINT, %(small)s::INTEGER,"
        " %(yes)s::BOOLEAN, %(half)s::FLOAT, %(bytes)s::BYTEA"
    )

    (rows,) = await exchange(connection, [(text, values)])

    assert rows == [tuple(values.values())]


async def test_a_value_that_is_named_twice_is_sent_once_and_a_percent_sign_is_one(
    connection: Connection,
) -> None:
    text = "SELECT %(a)s::VARCHAR || %(b)s::VARCHAR || %(a)s::VARCHAR, 7 %% 4"

    (rows,) = await exchange(connection, [(text, {"a": "a", "b": "b"})])

    assert rows == [("aba", 3)]


async def test_each_statement_has_its_own_rows(connection: Connection) -> None:
    answers = await ask(
        connection,
        "SELECT 1",
        "CREATE TEMPORARY TABLE here (a INTEGER)",
        "SELECT 2 WHERE false",
        "INSERT INTO here SELECT generate_series(1, 3) RETURNING a",
        "SELECT 1",
    )

    assert answers == [[(1,)], [], [], [(1,), (2,), (3,)], [(1,)]]


async def test_what_stands_behind_a_failure_is_not_run(connection: Connection) -> None:
    await ask(connection, "CREATE TEMPORARY TABLE here (a INTEGER PRIMARY KEY)")

    with pytest.raises(psycopg.errors.UniqueViolation) as failure:
        await ask(
            connection,
            "BEGIN",
            "INSERT INTO here VALUES (1)",
            "INSERT INTO here VALUES (1)",
            "COMMIT",
        )

    assert "(1)" in (failure.value.diag.message_detail or "")
    assert connection.info.transaction_status is TransactionStatus.INERROR
    await connection.rollback()
    assert await ask(connection, "SELECT count(*) FROM here") == [[(0,)]]


async def test_statements_are_prepared_once_also_where_others_failed(
    connection: Connection,
) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        await ask(connection, "SELECT 1", "SELECT 1 / 0", "SELECT 2")

    assert await ask(connection, "SELECT 1", "SELECT 2", "SELECT 2") == [[(1,)], [(2,)], [(2,)]]
    (kept,) = await ask(connection, KEPT)
    assert len(kept) == 4  # With the one that asks, and the one that was prepared and failed.


async def test_a_rollback_leaves_what_is_prepared(connection: Connection) -> None:
    await ask(connection, "BEGIN", "SELECT 1")
    await connection.rollback()

    assert await ask(connection, "BEGIN", "SELECT 1", "ROLLBACK") == [[], [(1,)], []]


async def test_a_session_that_lost_what_is_prepared_is_given_up(connection: Connection) -> None:
    await ask(connection, "BEGIN", "SELECT 1", "COMMIT")
    await connection.execute(b"DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")

    with pytest.raises(psycopg.OperationalError, match="of no use"):
        await ask(connection, "BEGIN")

    assert connection.closed


async def test_a_session_whose_rows_are_of_another_kind_now_is_given_up(
    connection: Connection,
) -> None:
    await ask(connection, "CREATE TEMPORARY TABLE here (a INTEGER)", "SELECT a FROM here")
    await connection.execute(b"ALTER TABLE here ALTER COLUMN a TYPE BIGINT")

    with pytest.raises(psycopg.OperationalError, match="of no use"):
        await ask(connection, "SELECT a FROM here")

    assert connection.closed


async def test_what_the_server_cannot_do_is_told_and_the_session_goes_on(
    connection: Connection,
) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        await ask(connection, "SELECT * FROM elsewhere.information_schema.tables")

    assert await ask(connection, "SELECT 2") == [[(2,)]]


async def test_a_session_keeps_the_statements_that_were_used_last(connection: Connection) -> None:
    often = "SELECT 'often'"
    for number in range(NAMES_MAX):
        answers = await ask(connection, often, f"SELECT {number}", f"SELECT -{number}")
        assert answers == [[("often",)], [(number,)], [(-number,)]]

    await ask(connection, often)
    (kept,) = await ask(connection, KEPT)

    assert len(kept) == NAMES_MAX + 1  # With the one that asks.
    assert kept[0] == ("milepost_1",)


async def test_a_session_that_is_not_ours_keeps_nothing(postgres_address: PostgresAddress) -> None:
    connection = await Connection.connect(**parameters(postgres_address.url))

    for _ in range(3):
        (rows, _) = await exchange(
            connection, [("SELECT %(a)s::VARCHAR", {"a": "a"}), ("SELECT 1", {})]
        )
        assert rows == [("a",)]

    assert await ask(connection, KEPT) == [[]]
    await connection.close()


async def test_both_sides_may_have_much_to_say(connection: Connection) -> None:
    """A server that waits until its answers are read takes in nothing more."""
    much = "x" * MUCH

    answers = await exchange(connection, [("SELECT %(a)s::VARCHAR", {"a": much})] * 3)

    assert answers == [[(much,)]] * 3


async def test_a_value_that_cannot_be_sent_leaves_the_connection_as_it_was(
    connection: Connection,
) -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        await exchange(
            connection,
            [("SELECT 1", {}), ("SELECT %(a)s::VARCHAR", {"a": "a\0b"})],
        )

    assert await ask(connection, "SELECT 2") == [[(2,)]]


async def test_who_is_interrupted_leaves_no_answers_to_the_next(
    connection: Connection, postgres_address: PostgresAddress
) -> None:
    asked = asyncio.ensure_future(ask(connection, "SELECT 1", "SELECT pg_sleep(60)", "SELECT 3"))
    await sleeping(postgres_address, connection.info.backend_pid)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked

    assert await ask(connection, "SELECT 4") == [[(4,)]]


async def test_who_is_interrupted_while_sending_has_a_session_that_goes_on(
    connection: Connection,
) -> None:
    asked = asyncio.ensure_future(
        exchange(connection, [("SELECT length(%(a)s::VARCHAR)", {"a": "x" * MUCH})] * 2)
    )
    while connection.info.transaction_status is not TransactionStatus.ACTIVE:  # noqa: ASYNC110
        await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked

    assert await ask(connection, "SELECT 4") == [[(4,)]]


async def test_a_copy_is_refused_and_its_session_given_up(connection: Connection) -> None:
    with pytest.raises(psycopg.NotSupportedError, match="COPY"):
        await ask(connection, "COPY (SELECT 1) TO STDOUT")

    assert connection.closed


@asynccontextmanager
async def raving(url: str, nonsense: bytes) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Give the URL of a server that answers as the one at `url` does, until it goes mad."""
    parts, mad = urlsplit(url), asyncio.Event()
    serving = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        there_reader, there_writer = await asyncio.open_connection(parts.hostname, parts.port)
        answering = asyncio.create_task(answer(there_reader, writer))
        while piece := await reader.read(65_536):
            if mad.is_set():
                writer.write(nonsense)
            else:
                there_writer.write(piece)
        answering.cancel()
        for each in (there_writer, writer):
            each.close()
            await each.wait_closed()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65_536):
            writer.write(piece)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl(), mad
        await asyncio.gather(*filter(None, serving))


TOO_SHORT = b"T\x00\x00\x00\x01"  # A message counts the four bytes of its length.
NO_ANSWERS = b"Z\x00\x00\x00\x05I"


@pytest.mark.parametrize("nonsense", [TOO_SHORT, NO_ANSWERS])
async def test_who_is_answered_nonsense_does_not_wait_for_sense(
    postgres_address: PostgresAddress, nonsense: bytes
) -> None:
    async with raving(postgres_address.url, nonsense) as (url, mad):
        connection = await Connection.connect(**parameters(url))
        mad.set()

        with pytest.raises(psycopg.OperationalError):
            await ask(connection, "SELECT 1", "SELECT 2")

        assert connection.closed
        await connection.close()
