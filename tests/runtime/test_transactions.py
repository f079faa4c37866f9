"""Transactional tools: what they write is there with the event that says so, or neither is."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from milepost.core.agents import StopRule
from milepost.core.errors import FencedError
from milepost.core.events import (
    Custom,
    RunCompleted,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallStarted,
)
from milepost.providers.scripted import Scripted, calling, saying
from milepost.runtime.stored_transactions import StoredTransactions
from milepost.store.engine import CollisionError, DatabaseRefusedError, DatabaseUnavailableError
from milepost.store.transaction import OpenTransaction, StatementRefusedError
from milepost.tools import ToolContext, emit_artifact, stash_pending, tool
from tests.runtime.workshop import TIMEOUT_S, Workshop, in_background, of

ADD = "INSERT INTO shelf (call_id, amount) VALUES (:call, :amount)"
TWICE = [calling(("put", {"amount": 1}), ("put", {"amount": 2})), saying("Done.")]
ONCE = [calling(("put", {"amount": 1})), saying("Done.")]


@tool(effect="transactional")
async def put(amount: int, context: ToolContext) -> str:
    """Put something on the shelf."""
    await context.tx.execute(ADD, {"call": context.call_id, "amount": amount})
    [row] = await context.tx.execute("SELECT count(*) AS many FROM shelf")
    return f"there are {row['many']}"


@pytest.fixture(autouse=True)
async def shelf(shop: Workshop) -> None:
    """A table of somebody else's in the runs' database."""
    async with shop.store.transaction(TIMEOUT_S) as opened:
        await opened.execute("CREATE TABLE shelf (call_id TEXT, amount INTEGER)", {})
        await opened.commit()


async def amounts(shop: Workshop) -> list[int]:
    """Return what is on the shelf."""
    async with shop.store.transaction(TIMEOUT_S) as opened:
        return [row["amount"] for row in await opened.execute("SELECT amount FROM shelf", {})]


async def test_what_a_tool_writes_is_there_with_its_completion(shop: Workshop) -> None:
    model = Scripted(ONCE)

    run_id = await shop.driven(model, put)

    log = await shop.log(run_id)
    assert await amounts(shop) == [1]
    assert [each.result for each in of(log, ToolCallCompleted)] == ["there are 1"]
    assert model.requests[1].messages[-1].content == "there are 1"
    assert isinstance(log[-1], RunCompleted)


async def test_a_synchronous_tool_writes_from_its_thread(shop: Workshop) -> None:
    @tool(effect="transactional", name="put")
    def put_down(amount: int, context: ToolContext) -> int:
        """Put something on the shelf."""
        context.tx.execute_blocking(ADD, {"call": context.call_id, "amount": amount})
        return amount

    run_id = await shop.driven(ONCE, put_down)

    assert await amounts(shop) == [1]
    assert [each.result for each in of(await shop.log(run_id), ToolCallCompleted)] == [1]


async def test_calls_of_one_step_write_one_after_the_other(shop: Workshop) -> None:
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    both = calling(("put", {"amount": 1}), ("look", {}), ("put", {"amount": 2}))
    run_id = await shop.driven([both, saying("Done.")], put, look)

    log = await shop.log(run_id)
    assert sorted(await amounts(shop)) == [1, 2]
    assert len(of(log, ToolCallCompleted)) == 3
    assert isinstance(log[-1], RunCompleted)


async def test_a_tool_that_fails_has_written_nothing(shop: Workshop) -> None:
    @tool(effect="transactional", name="put")
    async def fail(amount: int, context: ToolContext) -> None:
        """Fail having written."""
        await context.tx.execute(ADD, {"call": context.call_id, "amount": amount})
        context.emit("written", amount)
        raise ValueError("the shelf is full")

    run_id = await shop.driven(ONCE, fail)

    log = await shop.log(run_id)
    [failed] = of(log, ToolCallFailed)
    assert failed.error.code == "tool_failed"
    assert "the shelf is full" in failed.error.message
    assert of(log, Custom) == []
    assert await amounts(shop) == []


async def test_a_tool_whose_time_is_up_has_written_nothing(shop: Workshop) -> None:
    @tool(effect="transactional", name="put", timeout_s=0.1)
    async def linger(amount: int, context: ToolContext) -> None:
        """Write, and linger."""
        await context.tx.execute(ADD, {"call": context.call_id, "amount": amount})
        await asyncio.Event().wait()

    run_id = await shop.driven(ONCE, linger)

    [failed] = of(await shop.log(run_id), ToolCallFailed)
    assert failed.error.code == "tool_timeout"
    assert "what it wrote was rolled back" in failed.error.message
    assert await amounts(shop) == []


async def test_a_refused_statement_fails_the_call_even_if_the_tool_goes_on(shop: Workshop) -> None:
    @tool(effect="transactional", name="put")
    async def stumble(amount: int, context: ToolContext) -> str:
        """Write, stumble, and go on as if nothing had been."""
        await context.tx.execute(ADD, {"call": context.call_id, "amount": amount})
        try:
            await context.tx.execute("INSERT INTO nowhere VALUES (1)")
        except Exception as error:
            return f"never mind {error}"
        raise AssertionError("there is no such table")

    run_id = await shop.driven(ONCE, stumble)

    [failed] = of(await shop.log(run_id), ToolCallFailed)
    assert failed.error.code == "not_committed"
    assert "nothing of the transaction is done" in failed.error.message
    assert await amounts(shop) == []


async def test_what_a_call_tells_of_stands_before_its_result(shop: Workshop) -> None:
    @tool(effect="transactional", name="put")
    async def tell(amount: int, context: ToolContext) -> int:
        """Tell of it."""
        context.emit("halfway", amount)
        return amount

    run_id = await shop.driven(ONCE, tell)

    kinds = [type(each) for each in await shop.log(run_id)]
    assert kinds.index(Custom) == kinds.index(ToolCallCompleted) - 1


async def test_artifacts_and_putting_off_belong_into_another_tool(shop: Workshop) -> None:
    refusals: list[str] = []

    @tool(effect="transactional", name="put")
    async def leave(amount: int, context: ToolContext) -> None:
        """Try what cannot be."""
        for attempt in (
            lambda: emit_artifact(content="x"),
            lambda: context.emit_artifact(content="x"),
            lambda: stash_pending("send", "Send it"),
        ):
            try:
                attempt()
            except Exception as error:
                refusals.append(str(error))

    await shop.driven(ONCE, leave)

    assert len(refusals) == 3
    assert all(each.endswith("in another tool") for each in refusals)


async def test_a_result_may_end_the_run(shop: Workshop) -> None:
    agent = replace(shop.agent(put), stop_when=(StopRule("put"),))

    run_id = await shop.driven(ONCE, put, agent=agent)

    log = await shop.log(run_id)
    assert isinstance(log[-1], RunCompleted)
    assert log[-1].output.text == "there are 1"


class Overtaken(StoredTransactions):
    """Has another worker take the run just before the transaction is opened."""

    def __init__(self, shop: Workshop) -> None:
        super().__init__(shop.store)
        self._shop = shop

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        self.successor = await self._shop.take_over()
        yield


async def test_whoever_lost_the_run_commits_nothing(shop: Workshop) -> None:
    run = await shop.queue()
    taken = Overtaken(shop)
    means = shop.means(ONCE, put, transactions=taken)
    driven = await shop.driving(await shop.claim(), shop.agent(put), means)

    with pytest.raises(FencedError):
        await driven.run()

    assert await amounts(shop) == []
    assert "tool_call.completed" not in await shop.types(run.id)
    await shop.go_on([saying("Done.")], put, claim=taken.successor)
    log = await shop.log(run.id)
    assert await amounts(shop) == [1]
    assert [each.then for each in of(log, ToolCallInterrupted)] == ["repeat"]
    assert len(of(log, ToolCallCompleted)) == 1


async def test_a_drained_worker_rolls_back_and_the_next_one_writes(shop: Workshop) -> None:
    written = asyncio.Event()

    @tool(effect="transactional", name="put")
    async def hesitate(amount: int, context: ToolContext) -> None:
        """Write, and hesitate at first."""
        await context.tx.execute(ADD, {"call": context.call_id, "amount": amount})
        written.set()
        if context.attempt == 1:
            await asyncio.Event().wait()

    run = await shop.queue()
    driven = await shop.driving(
        await shop.claim(), shop.agent(hesitate), shop.means(ONCE, hesitate)
    )
    async with in_background(driven):
        await asyncio.wait_for(written.wait(), TIMEOUT_S)
        driven.drain()
    assert await amounts(shop) == []

    await shop.go_on([saying("Done.")], hesitate)

    log = await shop.log(run.id)
    assert await amounts(shop) == [1]
    assert [each.attempt for each in of(log, ToolCallStarted)] == [1, 2]


class Losing:
    """A transaction whose commit is not answered; `lands` says whether it is done all the same."""

    def __init__(self, opened: OpenTransaction, *, lands: bool) -> None:
        self._opened = opened
        self._lands = lands

    async def execute(self, sql: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        return await self._opened.execute(sql, parameters)

    async def work(self, work: Any) -> Any:
        return await self._opened.work(work)

    async def commit(self) -> None:
        if self._lands:
            await self._opened.commit()
        raise DatabaseUnavailableError("the connection broke")


@pytest.mark.parametrize("lands", [True, False])
async def test_a_commit_without_an_answer_is_looked_for_in_the_log(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    whole = shop.store.transaction

    def losing(limit_s: float) -> AbstractAsyncContextManager[OpenTransaction]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[OpenTransaction]:
            async with whole(limit_s) as inner:
                yield Losing(inner, lands=lands)

        return opened()

    monkeypatch.setattr(shop.store, "transaction", losing)
    run_id = await shop.driven(ONCE, put)
    monkeypatch.undo()

    log = await shop.log(run_id)
    assert await amounts(shop) == ([1] if lands else [])
    assert len(of(log, ToolCallCompleted)) == lands
    assert [each.error.code for each in of(log, ToolCallFailed)] == (
        [] if lands else ["not_committed"]
    )
    assert isinstance(log[-1], RunCompleted)


class Failing(Losing):
    """A transaction that comes to nothing when its end is written, or is committed."""

    def __init__(self, opened: OpenTransaction, at: str, error: Exception) -> None:
        super().__init__(opened, lands=False)
        self._at, self._error = at, error

    async def work(self, work: Any) -> Any:
        written = await super().work(work)
        if self._at == "work":
            raise self._error
        return written

    async def commit(self) -> None:
        if self._at == "commit":
            raise self._error
        await self._opened.commit()


@pytest.fixture
def failing(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Exception], None]:
    """What has every transaction of the runs' database fail."""
    whole = shop.store.transaction

    def fail(at: str, error: Exception) -> None:
        @asynccontextmanager
        async def opened(limit_s: float) -> AsyncIterator[OpenTransaction]:
            async with whole(limit_s) as inner:
                yield Failing(inner, at, error)

        monkeypatch.setattr(shop.store, "transaction", opened)

    return fail


@pytest.mark.parametrize(
    ("at", "error", "retryable"),
    [
        ("work", StatementRefusedError("its time is up"), False),
        ("commit", StatementRefusedError("its time is up"), False),
        ("work", DatabaseUnavailableError("the connection broke"), True),
        ("work", DatabaseRefusedError("it is too long"), False),
        ("commit", DatabaseRefusedError("it is too long"), False),
    ],
)
async def test_what_the_database_does_not_take_at_the_end_is_a_call_that_wrote_nothing(
    shop: Workshop, failing: Callable[..., None], at: str, error: Exception, retryable: bool
) -> None:
    run = await shop.queue()
    claim = await shop.claim()
    failing(at, error)
    await shop.go_on(ONCE, put, claim=claim)

    log = await shop.log(run.id)
    [failed] = of(log, ToolCallFailed)
    assert (failed.error.code, failed.error.retryable) == ("not_committed", retryable)
    assert str(error) in failed.error.message
    assert isinstance(log[-1], RunCompleted)
    assert await amounts(shop) == []


async def test_whoever_is_beaten_to_the_next_event_commits_nothing(
    shop: Workshop, failing: Callable[..., None]
) -> None:
    await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(put), shop.means(ONCE, put))
    failing("work", CollisionError("there is such an event"))

    with pytest.raises(FencedError):
        await driven.run()

    assert await amounts(shop) == []


async def test_a_constraint_that_is_looked_at_only_in_the_end_fails_the_call_for_good(
    shop: Workshop,
) -> None:
    async with shop.store.transaction(TIMEOUT_S) as opened:
        await opened.execute(
            "CREATE TABLE label (id INTEGER PRIMARY KEY, shelf INTEGER REFERENCES label (id)"
            " DEFERRABLE INITIALLY DEFERRED)",
            {},
        )
        await opened.commit()

    @tool(effect="transactional", name="put")
    async def label(amount: int, context: ToolContext) -> int:
        """Name a shelf that is not there."""
        await context.tx.execute("INSERT INTO label (shelf) VALUES (:shelf)", {"shelf": -amount})
        return amount

    run_id = await shop.driven(ONCE, label)

    log = await shop.log(run_id)
    [failed] = of(log, ToolCallFailed)
    assert (failed.error.code, failed.error.retryable) == ("not_committed", False)
    assert "the database refused the commit" in failed.error.message
    assert isinstance(log[-1], RunCompleted)
