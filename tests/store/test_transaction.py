"""A transaction that stays open between statements, on both databases."""

import asyncio

import pytest
from sqlalchemy import func, select

from milepost.core.errors import FencedError
from milepost.store import log, schema
from milepost.store.engine import DatabaseUnavailableError, Engine
from milepost.store.records import Append, Entry
from milepost.store.transaction import StatementRefusedError
from milepost.store.work import Rows, Statement, Work

LIMIT_S = 5.0
TABLE = "CREATE TABLE shelf (name TEXT PRIMARY KEY, amount INTEGER NOT NULL)"
PUT = "INSERT INTO shelf (name, amount) VALUES (:name, :amount)"
HIGH = "SELECT name, amount FROM shelf WHERE amount > :low"
COUNT = "SELECT count(*) AS many FROM shelf"


@pytest.fixture
async def shelf(engine: Engine) -> Engine:
    """An engine whose database has a table of somebody else's."""
    async with engine.transaction(LIMIT_S) as opened:
        await opened.execute(TABLE, {})
        await opened.commit()
    return engine


async def many(engine: Engine) -> int:
    async with engine.transaction(LIMIT_S) as opened:
        [row] = await opened.execute(COUNT, {})
    return int(row["many"])


async def test_what_was_committed_is_there(shelf: Engine) -> None:
    async with shelf.transaction(LIMIT_S) as opened:
        await opened.execute(PUT, {"name": "nails", "amount": 7})
        found = await opened.execute(
            "SELECT name, amount FROM shelf WHERE amount > :low", {"low": 1}
        )
        await opened.commit()

    assert found == [{"name": "nails", "amount": 7}]
    assert await many(shelf) == 1


async def test_what_was_not_committed_is_not(shelf: Engine) -> None:
    async with shelf.transaction(LIMIT_S) as opened:
        await opened.execute(PUT, {"name": "nails", "amount": 7})
    with pytest.raises(ZeroDivisionError):
        await failing(shelf)

    assert await many(shelf) == 0


async def test_the_stores_own_work_is_done_within_it(shelf: Engine) -> None:
    async with shelf.transaction(LIMIT_S) as opened:
        await opened.execute(PUT, {"name": "nails", "amount": 7})
        assert await opened.work(_runs()) == 0
        await opened.commit()

    assert await many(shelf) == 1


def _runs() -> Work[int]:
    ((count,),) = yield Statement(select(func.count()).select_from(schema.runs))()
    return int(count)


async def test_whoever_is_cancelled_leaves_nothing_behind(shelf: Engine) -> None:
    written = asyncio.Event()

    async def write() -> None:
        async with shelf.transaction(LIMIT_S) as opened:
            await opened.execute(PUT, {"name": "nails", "amount": 7})
            written.set()
            await asyncio.Event().wait()

    writing = asyncio.create_task(write())
    await written.wait()
    writing.cancel()
    await asyncio.wait({writing})

    assert await many(shelf) == 0


async def test_a_transaction_that_lasts_too_long_is_rolled_back_by_itself(
    shelf: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.store.transaction_sqlite.FINISH_S", 0.05)
    monkeypatch.setattr("milepost.store.transaction_postgres.FINISH_S", 0.05)

    with pytest.raises(StatementRefusedError):
        await counting_without_end(shelf)

    assert await many(shelf) == 0


async def failing(engine: Engine) -> None:
    async with engine.transaction(LIMIT_S) as opened:
        await opened.execute(PUT, {"name": "nails", "amount": 7})
        raise ZeroDivisionError


async def counting_without_end(engine: Engine) -> None:
    """Write, and keep the database busy until it has had enough."""
    endless = (
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers)"
        " SELECT max(n) FROM numbers"
    )
    async with engine.transaction(0.05) as opened:
        await opened.execute(PUT, {"name": "nails", "amount": 7})
        await opened.execute(endless, {})


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("COMMIT", "COMMIT is no statement for a tool"),
        ("DEALLOCATE ALL", "DEALLOCATE is no statement for a tool"),
        ("  -- a word\n /* and\n another */ rollback", "ROLLBACK is no statement for a tool"),
        ("pragma synchronous = off", "PRAGMA is no statement"),
        ("SET statement_timeout = 0", "SET is no statement"),
        ("", "nothing is no statement"),
        (PUT, r"the statement names :amount, which has no value; .* is written \\:"),
        ("SELECT 1", r"the statement does not name :name; .* CAST\(:name AS \.\.\.\)"),
    ],
)
async def test_what_is_not_for_a_tool_is_refused(shelf: Engine, sql: str, complaint: str) -> None:
    async with shelf.transaction(LIMIT_S) as opened:
        with pytest.raises(StatementRefusedError, match=complaint):
            await opened.execute(sql, {"name": "nails"} if sql in {PUT, "SELECT 1"} else {})


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO shelf (name, amount) VALUES ('a', 1); COMMIT",
        "SELECT 1; SELECT 2",
        "INSERT INTO nowhere VALUES (1)",
        "INSERT INTO shelf (name, amount) VALUES ('a', NULL)",
    ],
)
async def test_what_the_database_refuses_says_so_and_can_only_be_rolled_back(
    shelf: Engine, sql: str
) -> None:
    async with shelf.transaction(LIMIT_S) as opened:
        with pytest.raises(StatementRefusedError, match="refused a statement"):
            await opened.execute(sql, {})

    assert await many(shelf) == 0


@pytest.mark.parametrize(
    ("name", "amount"), [("nails", 2**70), ("\ud800", 1), (object(), 1), ("a\x00", None)]
)
async def test_a_value_that_no_column_takes_is_refused_by_either_database(
    shelf: Engine, name: object, amount: object
) -> None:
    async with shelf.transaction(LIMIT_S) as opened:
        with pytest.raises(StatementRefusedError, match="refused a statement"):
            await opened.execute(PUT, {"name": name, "amount": amount})

    assert await many(shelf) == 0


async def test_more_rows_than_anybody_should_hold_are_refused(
    shelf: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("transaction", "transaction_sqlite", "transaction_postgres"):
        monkeypatch.setattr(f"milepost.store.{place}.ROWS_MAX", 2)
    three = "SELECT 1 AS n UNION SELECT 2 UNION SELECT 3"

    async with shelf.transaction(LIMIT_S) as opened:
        with pytest.raises(StatementRefusedError, match="LIMIT"):
            await opened.execute(three, {})


async def test_what_is_refused_only_as_it_is_committed_says_so(shelf: Engine) -> None:
    if shelf.dialect == "sqlite":
        pytest.skip("no row waits there until the commit to be unlike others")
    async with shelf.transaction(LIMIT_S) as opened:
        await opened.execute("ALTER TABLE shelf ADD UNIQUE (amount) INITIALLY DEFERRED", {})
        await opened.commit()

    async with shelf.transaction(LIMIT_S) as opened:
        await opened.execute(PUT, {"name": "nails", "amount": 7})
        await opened.execute(PUT, {"name": "screws", "amount": 7})
        with pytest.raises(StatementRefusedError, match="refused the commit"):
            await opened.commit()

    assert await many(shelf) == 0


async def test_a_row_that_must_be_there_by_the_commit_is_refused_where_it_is_not(
    shelf: Engine,
) -> None:
    async with shelf.transaction(LIMIT_S) as opened:
        await opened.execute(
            "CREATE TABLE label (shelf TEXT REFERENCES shelf (name) DEFERRABLE INITIALLY DEFERRED)",
            {},
        )
        await opened.commit()

    async with shelf.transaction(LIMIT_S) as opened:
        await opened.execute("INSERT INTO label (shelf) VALUES ('nails')", {})
        with pytest.raises(StatementRefusedError, match="refused the commit"):
            await opened.commit()

    async with shelf.transaction(LIMIT_S) as opened:
        assert await opened.execute("SELECT shelf FROM label", {}) == []


async def test_a_commit_of_what_had_failed_is_not_taken_for_one(shelf: Engine) -> None:
    if shelf.dialect == "sqlite":
        pytest.skip("a statement that fails there takes back nothing but itself")

    async with shelf.transaction(LIMIT_S) as opened:
        await opened.execute(PUT, {"name": "nails", "amount": 7})
        with pytest.raises(StatementRefusedError, match="refused a statement"):
            await opened.execute("INSERT INTO nowhere VALUES (1)", {})
        with pytest.raises(StatementRefusedError, match="nothing was committed"):
            await opened.commit()

    assert await many(shelf) == 0


async def test_a_connection_that_breaks_before_the_commit_says_that_nobody_knows(
    shelf: Engine,
) -> None:
    if shelf.dialect == "sqlite":
        pytest.skip("a file has no connection that could break")

    with pytest.raises(DatabaseUnavailableError):
        await cutting_itself_off(shelf)

    assert await many(shelf) == 0


async def cutting_itself_off(engine: Engine) -> None:
    async with engine.transaction(LIMIT_S) as opened:
        await opened.execute(PUT, {"name": "nails", "amount": 7})
        with pytest.raises(StatementRefusedError):
            await opened.execute("SELECT pg_terminate_backend(pg_backend_pid())", {})
        with pytest.raises(DatabaseUnavailableError):
            await opened.commit()
        await opened.commit()


async def test_statements_that_are_asked_for_at_once_are_run_one_after_another(
    shelf: Engine,
) -> None:
    async with shelf.transaction(LIMIT_S) as opened:
        asked = [
            opened.execute(f"SELECT {number} AS n WHERE 1 < :b", {"b": 2}) for number in range(5)
        ]
        found = await asyncio.wait_for(asyncio.gather(*asked), LIMIT_S)

    assert found == [[{"n": number}] for number in range(5)]


async def test_a_statement_that_nobody_waits_for_is_done_before_the_commit(shelf: Engine) -> None:
    async with shelf.transaction(LIMIT_S) as opened:
        putting = asyncio.create_task(opened.execute(PUT, {"name": "nails", "amount": 7}))
        await asyncio.sleep(0)
        await asyncio.wait_for(opened.work(_runs()), LIMIT_S)
        await opened.commit()

    assert await putting == []
    assert await many(shelf) == 1


async def test_what_is_appended_in_it_is_fenced_as_anywhere(shelf: Engine) -> None:
    item = Append("run_1", "acme", "ses_1", 1, 2, "apd_1", (Entry("custom", 1, "{}"),), 0)

    with pytest.raises(FencedError):
        await appending(shelf, item)

    assert await many(shelf) == 0


async def appending(engine: Engine, item: Append) -> None:
    async with engine.transaction(LIMIT_S) as opened:
        await opened.execute(PUT, {"name": "nails", "amount": 7})
        await opened.work(log.append([item]))
        await opened.commit()


async def test_others_write_when_it_is_over(shelf: Engine) -> None:
    async with shelf.transaction(LIMIT_S) as opened:
        await opened.execute(PUT, {"name": "nails", "amount": 7})
        waiting = asyncio.create_task(shelf.write(_nothing()))
        await opened.commit()
    await asyncio.wait_for(waiting, LIMIT_S)

    assert await many(shelf) == 1


def _nothing() -> Work[Rows]:
    found: Rows = yield Statement(select(func.count()).select_from(schema.runs))()
    return found
