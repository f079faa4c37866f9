"""A worker: it claims, drives, gives up what it cannot drive, and hands back what it must."""

import asyncio
import contextlib
import errno
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest
from sqlalchemy import select, update

from milepost.core.agents import Agent
from milepost.core.effects import CallTool
from milepost.core.errors import UnavailableError
from milepost.core.events import Event, RunResumed, RunRetried, RunWaiting, ToolCallCompleted
from milepost.core.ids import child_run_id
from milepost.core.model import Delta, ModelRequest
from milepost.core.state import State
from milepost.dispatch.port import Dispatcher, Offer
from milepost.dispatch.sql import Sql
from milepost.live.hub import QUEUE_BELL, Hub
from milepost.providers.scripted import Scripted, calling, saying
from milepost.runtime.definitions import encode_definition
from milepost.runtime.means import Means
from milepost.runtime.stored_children import StoredChildren
from milepost.runtime.tenant_policies import FRESH_MS
from milepost.store import agents, queue, schema
from milepost.store.address import PostgresAddress
from milepost.store.dialect import now_ms, number, text
from milepost.store.engine import Engine
from milepost.store.records import Claim
from milepost.store.store import Store
from milepost.store.work import Statement, Work
from milepost.tools import Registry, ToolContext, ToolThreads, tool
from milepost.worker import worker as worker_module
from milepost.worker.worker import Worker, _Driven, _leaves_some
from tests.runtime.tools import add
from tests.runtime.workshop import TENANT, TIMEOUT_S, Held, Turns, Workshop, of
from tests.store.breaking import BreakingEngine
from tests.store.conftest import opened, serving

T = TypeVar("T")

_READY = Statement(
    update(schema.runs).where(schema.runs.c.id == text("run_id")).values(run_at_ms=0)
)


def ready(run_id: str) -> Work[None]:
    """Let the pause behind a crash be over."""
    yield _READY(run_id=run_id)


_CRASHES = Statement(select(schema.runs.c.crashes).where(schema.runs.c.id == text("run_id")))


def crashed(run_id: str) -> Work[int]:
    """Return how often the run has crashed since it was last let go of in peace."""
    ((crashes,),) = yield _CRASHES(run_id=run_id)
    return int(crashes)


@pytest.fixture
async def agent(shop: Workshop) -> Agent:
    """An agent that the database knows, too."""
    return await hired(shop, shop.agent())


async def hired(shop: Workshop, agent: Agent) -> Agent:
    row = await shop.store.write(
        agents.create(
            TENANT, agent.name, encode_definition(agent), agent_id=agent.id, now_ms=shop.clock()
        )
    )
    assert (row.id, row.version) == (agent.id, agent.version)
    return agent


@contextlib.asynccontextmanager
async def working(
    shop: Workshop,
    means: Means,
    *,
    slots: int = 4,
    poll_s: float = 60,
    strays_s: float = 60,
    dispatcher: Dispatcher | None = None,
) -> AsyncIterator[Worker]:
    """Have a worker at work until the test is done with it; it polls so rarely that bells count."""
    worker = Worker(
        await shop.worker(),
        slots,
        shop.ports,
        means,
        poll_s=poll_s,
        strays_s=strays_s,
        dispatcher=dispatcher,
    )
    task = asyncio.create_task(worker.run())
    try:
        yield worker
        worker.drain()
        await asyncio.wait_for(task, TIMEOUT_S)
    finally:
        task.cancel()


async def status(shop: Workshop, run_id: str, wanted: str) -> None:
    """Wait until the run has this status: whatever changes it rings."""
    async with asyncio.timeout(TIMEOUT_S):
        with shop.hub.listen(run_id) as (_, woken), shop.hub.bell(QUEUE_BELL) as rung:
            while (await shop.row(run_id)).status != wanted:
                waits = [asyncio.create_task(each.wait()) for each in (woken, rung)]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for wait in waits:
                    wait.cancel()
                woken.clear()
                rung.clear()


@pytest.mark.usefixtures("agent")
async def test_a_queued_run_is_driven_at_once(shop: Workshop) -> None:
    async with working(shop, shop.means([saying("One."), saying("Two.")])):
        first = await shop.queue()
        await status(shop, first.id, "completed")
        second = await shop.queue()
        await status(shop, second.id, "completed")


@pytest.mark.usefixtures("agent")
async def test_runs_are_driven_side_by_side_up_to_the_slots(shop: Workshop) -> None:
    models = [Held(rest=saying("Done.")) for _ in range(3)]
    runs = [await shop.queue() for _ in models]

    async with working(shop, shop.means(Turns(*models)), slots=2) as worker:
        for model in models[:2]:
            await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        assert worker.busy == 2
        statuses = sorted([(await shop.row(run.id)).status for run in runs])
        assert statuses == ["queued", "running", "running"]
        models[0].go.set()
        await asyncio.wait_for(models[2].reached.wait(), TIMEOUT_S)
        for model in models[1:]:
            model.go.set()
        for run in runs:
            await status(shop, run.id, "completed")


@pytest.mark.usefixtures("agent")
async def test_a_higher_lane_is_driven_before_an_older_run_of_a_lower_one(shop: Workshop) -> None:
    model = Held(rest=saying("Done."))
    low, high = await shop.queue(lane=-10), await shop.queue()

    async with working(shop, shop.means(Turns(model, Scripted([saying("Done.")]))), slots=1):
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        statuses = [(await shop.row(run.id)).status for run in (high, low)]
        assert statuses == ["running", "queued"]
        model.go.set()
        await status(shop, low.id, "completed")


class Offering(Sql):
    """The queue as a dispatcher that offers just this."""

    def __init__(self, offer: Offer) -> None:
        super().__init__(QUEUE_BELL)
        self._offer = offer

    def next(self, most: int) -> Offer:
        """Offer it."""
        return replace(self._offer, run_ids=self._offer.run_ids[:most])


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("by_name", [True, False])
async def test_what_was_not_offered_is_left_to_others(shop: Workshop, *, by_name: bool) -> None:
    other, offered = [await shop.queue() for _ in range(2)]
    await shop.store.write(having_crashed(offered.id, 0, ready_in_ms=-3_600_000))
    offer = Offer((offered.id,)) if by_name else Offer(ready_for_ms=1_800_000)

    async with working(shop, shop.means([saying("Done.")]), dispatcher=Offering(offer)):
        await status(shop, offered.id, "completed")

    assert (await shop.row(other.id)).status == "queued"


class Asked(Sql):
    """The queue as its own dispatcher, which counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__(QUEUE_BELL)
        self.times = 0
        self.freed = asyncio.Event()

    def next(self, most: int) -> Offer:
        """Offer whatever is ready."""
        self.times += 1
        return super().next(most)

    def let_go(self, run_id: str) -> None:
        """Note that a slot is free again."""
        super().let_go(run_id)
        self.freed.set()


@pytest.mark.usefixtures("agent")
async def test_who_has_taken_all_there_is_asks_for_no_more_even_with_a_slot_free_again(
    shop: Workshop,
) -> None:
    asked, model = Asked(), Held(rest=saying("Done."))
    await shop.queue()

    async with working(shop, shop.means(model), dispatcher=asked):
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        model.go.set()
        await asyncio.wait_for(asked.freed.wait(), TIMEOUT_S)
        await shop.store.write(queue.sweep())  # A turn of the database, in which it would ask.

        assert asked.times == 1


class Letting(BreakingEngine):
    """A line over which `let_go` is called once so many transactions are through."""

    def __init__(self, engine: Engine, writes: int, let_go: Callable[[], None]) -> None:
        super().__init__(engine)
        self._writes = writes
        self._let_go = let_go

    async def write(self, work: Work[T]) -> T:
        """Do work in one transaction, and let go if it was the last of those."""
        result = await super().write(work)
        self._writes -= 1
        if not self._writes:
            self._let_go()
        return result


async def test_a_run_whose_row_was_held_when_it_was_rung_for_is_driven_all_the_same(
    postgres_address: PostgresAddress, tmp_path: Path
) -> None:
    """Whoever only looked at it and let go has nothing to ring for: it would wait for the poll."""
    async with opened(postgres_address) as engine, serving(Store(engine)) as store:
        with closing(ToolThreads(1)) as threads, psycopg.connect(postgres_address.url) as holder:
            shop = Workshop(store, threads, tmp_path / "unused")
            await hired(shop, shop.agent())
            run = await shop.queue()
            holder.execute("SELECT FROM runs FOR UPDATE")
            line = Letting(engine, 2, holder.rollback)  # Unasked it looks once, and rung for again.
            shop.ports = replace(shop.ports, store=Store(line))
            async with serving(shop.ports.store), working(shop, shop.means([saying("Here.")])):
                await asyncio.wait_for(shop.lease.asked.wait(), TIMEOUT_S)
                shop.hub.ring(QUEUE_BELL)
                await status(shop, run.id, "completed")


async def test_who_was_rung_for_nothing_looks_once_more_and_then_rests(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "AGAIN_S", 0)
    asked = Asked()

    async with working(shop, shop.means([]), dispatcher=asked):
        for times in (1, 3, 5):
            async with asyncio.timeout(TIMEOUT_S):
                while asked.times < times:
                    await shop.store.write(queue.sweep())
            for _ in range(3):  # Turns of the database, in each of which it would ask.
                await shop.store.write(queue.sweep())
            assert asked.times == times
            shop.hub.ring(QUEUE_BELL)


@pytest.mark.usefixtures("agent")
async def test_who_has_taken_as_many_as_a_claim_may_asks_for_more_at_once(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "CLAIM_MAX", 2)
    runs = [await shop.queue() for _ in range(3)]

    async with working(shop, shop.means([saying("Done.")] * 3)):
        for run in runs:
            await status(shop, run.id, "completed")


@pytest.mark.usefixtures("agent")
async def test_who_has_taken_a_run_that_crashed_asks_for_what_that_has_hidden(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim finds few at a time, and of those that have crashed it leaves some behind."""
    monkeypatch.setattr(queue, "CLAIM_MAX", 2)
    last, once, fresh = [await shop.queue() for _ in range(3)]
    await shop.store.write(having_crashed(last.id, queue.LAST_TRY, ready_in_ms=-10_000))
    await shop.store.write(having_crashed(once.id, 1, ready_in_ms=-10_000))
    models = [Held(rest=saying("Done.")) for _ in range(2)]

    async with working(shop, shop.means(Turns(*models)), slots=2) as worker:
        for model in models:
            await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)

        assert worker.busy == 2
        assert (await shop.row(fresh.id)).status == "running"
        for model in models:
            model.go.set()


@pytest.mark.parametrize("offer", [Offer(("run_1", "run_2")), Offer(ready_for_ms=1_000)])
async def test_who_takes_what_somebody_else_names_asks_for_more_until_there_is_nothing(
    shop: Workshop, offer: Offer
) -> None:
    await shop.queue()
    claim = await shop.claim()

    assert _leaves_some(offer, [claim], 4)
    assert not _leaves_some(offer, [], 4)


@pytest.mark.usefixtures("agent")
async def test_the_next_run_of_a_session_starts_when_the_last_one_ends(shop: Workshop) -> None:
    model = Held(rest=saying("Done."))

    async with working(shop, shop.means(Turns(model, Scripted([saying("And again.")])))):
        first = await shop.queue()
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        second = await shop.queue(session_id=first.session_id)
        assert (await shop.row(second.id)).status == "blocked"
        model.go.set()
        await status(shop, second.id, "completed")


@pytest.mark.usefixtures("agent")
async def test_a_drained_worker_hands_back_what_it_drives_and_claims_nothing(
    shop: Workshop,
) -> None:
    model = Held()
    run = await shop.queue()

    async with working(shop, shop.means(model)) as worker:
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        worker.drain()

    assert worker.busy == 0
    assert (await shop.types(run.id))[-1] == "run.retrying"
    assert (await shop.row(run.id)).status == "queued"


@pytest.mark.usefixtures("agent")
async def test_a_worker_that_is_drained_as_it_loads_a_run_hands_it_back_at_once(
    shop: Workshop,
) -> None:
    drained = asyncio.Event()

    async def tools_of(_: str) -> Registry:
        worker.drain()
        drained.set()
        return Registry([])

    model = Scripted([saying("never")])
    run = await shop.queue()

    async with working(shop, shop.means(model, tools_of=tools_of)) as worker:
        await asyncio.wait_for(drained.wait(), TIMEOUT_S)
        await status(shop, run.id, "queued")

    assert model.requests == []
    assert (await shop.types(run.id))[-1] == "run.retrying"


@pytest.mark.usefixtures("agent")
async def test_a_run_that_crashes_its_worker_three_times_waits_for_an_operator(
    shop: Workshop,
) -> None:
    bugs = [ZeroDivisionError("a bug")] * 3
    run = await shop.queue()

    async with working(shop, shop.means([*bugs, saying("At last.")])):
        await hurried(shop, run.id, crashes=2)
        await hurried(shop, run.id, crashes=3)
        await status(shop, run.id, "waiting")
        assert of(await shop.log(run.id), RunWaiting) == [RunWaiting("operator", ())]
        assert await shop.store.read(crashed(run.id)) == 0, "an operator has it begin anew"
        assert [event.why for event in of(await shop.log(run.id), RunResumed)] == ["crash"] * 3

        await shop.deliver(run.id, "retry", {"by": "ann"}, "retry")
        await status(shop, run.id, "completed")

    assert of(await shop.log(run.id), RunRetried) == [RunRetried("ann")]


async def hurried(shop: Workshop, run_id: str, *, crashes: int) -> None:
    """Wait until the run has crashed so many times, and have it go on without its pause."""
    async with asyncio.timeout(TIMEOUT_S):
        with shop.hub.bell(QUEUE_BELL) as rung:
            while await shop.store.read(crashed(run_id)) < crashes:
                await rung.wait()
                rung.clear()
    await shop.store.write(ready(run_id))
    shop.hub.ring(QUEUE_BELL)


async def test_a_tool_that_cancels_the_task_that_drives_its_run_has_crashed_its_worker(
    shop: Workshop,
) -> None:
    @tool(effect="read")
    async def rage(context: ToolContext) -> str:
        """Cancel what is none of its business, once."""
        if context.attempt == 1:
            for task in asyncio.all_tasks():
                if getattr(task.get_coro(), "__name__", "") == "_drive":
                    task.cancel()
            await asyncio.Event().wait()
        return "calm"

    await hired(shop, shop.agent(rage))
    run = await shop.queue()

    async with working(shop, shop.means([calling(("rage", {})), saying("Well.")], rage)):
        await status(shop, run.id, "completed")

    assert [event.why for event in of(await shop.log(run.id), RunResumed)] == ["crash"]


@pytest.mark.usefixtures("agent")
async def test_a_run_that_waits_for_an_operator_can_be_cancelled(shop: Workshop) -> None:
    run = await shop.queue()

    async with working(shop, shop.means([ZeroDivisionError("a bug")] * 3)):
        await hurried(shop, run.id, crashes=2)
        await hurried(shop, run.id, crashes=3)
        await status(shop, run.id, "waiting")
        await shop.cancel(run.id)
        await status(shop, run.id, "cancelled")


async def test_a_run_whose_agent_cannot_be_read_does_not_stop_the_worker(shop: Workshop) -> None:
    lost = await shop.queue()

    async with working(shop, shop.means([saying("Here.")] * 2)):
        await hurried(shop, lost.id, crashes=2)
        await hired(shop, shop.agent())
        run = await shop.queue()
        await status(shop, run.id, "completed")


@pytest.mark.usefixtures("agent")
async def test_what_an_outage_broke_off_does_not_count_as_a_crash(shop: Workshop) -> None:
    run = await shop.queue()

    async with working(shop, shop.means([UnavailableError("away")] * 4 + [saying("Back.")])):
        await status(shop, run.id, "completed")

    whys = {event.why for event in of(await shop.log(run.id), RunResumed)}
    assert whys == {"outage"}


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize(
    "lack",
    [OSError(errno.EMFILE, "Too many open files"), RuntimeError("can't start new thread")],
    ids=["files", "threads"],
)
async def test_what_its_machine_has_none_left_of_does_not_count_as_a_crash_of_a_run(
    shop: Workshop, lack: Exception
) -> None:
    run = await shop.queue()

    async with working(shop, shop.means([*[lack] * 4, saying("Here.")]), poll_s=0.001):
        await status(shop, run.id, "completed")

    whys = {event.why for event in of(await shop.log(run.id), RunResumed)}
    assert whys == {"outage"}


@pytest.mark.usefixtures("agent")
async def test_a_run_is_not_left_alone_when_the_lease_lapsed_for_a_while(shop: Workshop) -> None:
    """The lease is renewed before anybody swept: nobody else would ever drive the run."""
    model = Turns(Scripted([saying("never")]), Scripted([saying("Here.")]))
    means = shop.means(model)
    shop.lease.lapsed = True
    run = await shop.queue()
    worker = Worker(await shop.worker(), 1, shop.ports, means, poll_s=60)
    claim = await shop.claim(worker.id)

    await worker._drive(_Driven(claim))

    assert (await shop.row(run.id)).status == "queued"
    assert (await shop.row(run.id)).epoch == 1


def over_a_line(shop: Workshop) -> BreakingEngine:
    """Have workers reach the database over a line that can be broken."""
    line = BreakingEngine(shop.store.engine)
    shop.ports = replace(shop.ports, store=Store(line, waits_s=(0,)))
    return line


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize(("absences", "strays_s"), [(0, 60), (3, 60), (0, 0)])
async def test_a_claim_whose_answer_was_lost_is_driven(
    shop: Workshop, absences: int, strays_s: float
) -> None:
    """Nobody else would ever look at the run: its owner lives. Nor is it one that went astray."""
    line = over_a_line(shop)
    async with serving(shop.ports.store):
        runs = [await shop.queue(), await shop.queue()]
        means = shop.means([saying("Here.")] * 2)
        async with working(shop, means, poll_s=0.001, strays_s=strays_s) as worker:
            line.breaks, line.absences_after = 1, absences
            for run in runs:
                await status(shop, run.id, "completed")
            async with asyncio.timeout(5):
                # The log says so a moment before the worker knows.
                while worker.busy:  # noqa: ASYNC110 - there is no event to wait for
                    await asyncio.sleep(0)

    for run in runs:
        assert of(await shop.log(run.id), RunResumed) == []


@pytest.mark.usefixtures("agent")
async def test_a_claim_whose_answer_was_lost_is_given_back_by_a_worker_that_leaves(
    shop: Workshop,
) -> None:
    """It has crashed nobody: who swept it would count that against it."""
    line = over_a_line(shop)
    async with serving(shop.ports.store):
        run = await shop.queue()
        line.breaks, line.absences_after = 1, 1
        async with working(shop, shop.means([]), poll_s=0.1) as worker:
            await asyncio.wait_for(line.back.wait(), TIMEOUT_S)
            worker.drain()

    await shop.store.write(queue.dismiss(worker.id))
    await shop.store.write(queue.sweep())
    row = await shop.row(run.id)
    assert (row.status, row.epoch, await shop.store.read(crashed(run.id))) == ("queued", 1, 0)
    await shop.claim()
    assert [event.why for event in of(await shop.log(run.id), RunResumed)] == ["outage"]


@pytest.mark.usefixtures("agent")
async def test_a_claim_whose_answer_was_lost_is_driven_once(shop: Workshop) -> None:
    line, model = over_a_line(shop), Held(rest=saying("Here."))
    async with serving(shop.ports.store):
        run = await shop.queue()
        line.breaks = 1
        async with working(shop, shop.means(model), poll_s=0.001) as worker:
            await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
            await looks(shop)
            assert worker.busy == 1
            model.go.set()
            await status(shop, run.id, "completed")


@pytest.mark.usefixtures("agent")
async def test_a_run_whose_driving_an_outage_broke_off_is_queued_once_that_is_over(
    shop: Workshop,
) -> None:
    line = over_a_line(shop)

    async def tools_of(_: str) -> Registry:
        if not line.back.is_set():
            line.absences = 3
            raise UnavailableError("away")
        return Registry([])

    async with serving(shop.ports.store):
        run = await shop.queue()
        async with working(shop, shop.means([saying("Back.")], tools_of=tools_of)):
            await status(shop, run.id, "completed")

    assert [event.why for event in of(await shop.log(run.id), RunResumed)] == ["outage"]


@pytest.mark.parametrize("within", [False, True])
async def test_an_outage_takes_no_result_from_a_tool(shop: Workshop, *, within: bool) -> None:
    """Whether it is over before the tool is, which is when the inbox is looked at, or lasts on."""
    line = over_a_line(shop)

    @tool
    async def charge() -> str:
        """Charge."""
        line.absences = 30
        shop.ring(run.id)
        if within:
            await line.back.wait()
        return "charged"

    await hired(shop, shop.agent(charge))
    async with serving(shop.ports.store):
        run = await shop.queue()
        means = shop.means([calling(("charge", {})), saying("Done.")], charge)
        async with working(shop, means, poll_s=0.001):
            await status(shop, run.id, "completed")

    log = await shop.log(run.id)
    assert [event.result for event in of(log, ToolCallCompleted)] == ["charged"]
    assert of(log, RunResumed) == []


async def test_an_outage_takes_no_result_from_a_tool_by_which_rules_are_read_anew(
    shop: Workshop,
) -> None:
    """What the worker knows of them is old by then, and so they are the first to be asked for."""
    line = over_a_line(shop)

    @tool
    async def charge() -> str:
        """Charge."""
        line.absences = 30
        shop.clock.ahead_ms += FRESH_MS
        return "charged"

    await hired(shop, shop.agent(charge))
    async with serving(shop.ports.store):
        run = await shop.queue()
        means = shop.means([calling(("charge", {})), saying("Done.")], charge)
        async with working(shop, means, poll_s=0.001):
            await status(shop, run.id, "completed")

    log = await shop.log(run.id)
    assert [event.result for event in of(log, ToolCallCompleted)] == ["charged"]
    assert of(log, RunResumed) == []


async def test_an_outage_as_a_child_is_queued_takes_no_result_from_a_tool_beside_it(
    shop: Workshop,
) -> None:
    line, charging = over_a_line(shop), asyncio.Event()

    @tool
    async def charge() -> str:
        """Charge for as long as the database is away."""
        charging.set()
        await line.back.wait()
        return "charged"

    class Cut(StoredChildren):
        """Children that are queued as the database goes away, under a tool that has begun."""

        async def start(
            self, effect: CallTool, seq: int, claim: Claim, agent: Agent, state: State
        ) -> Event:
            """Queue the run."""
            await charging.wait()
            line.absences = 30
            return await super().start(effect, seq, claim, agent, state)

    await hired(shop, replace(shop.agent(charge), tools=("charge", "agent:clerk")))
    async with serving(shop.ports.store):
        run = await shop.queue()
        asked = calling(("charge", {}), ("agent:clerk", {"input": "Write."}))
        model = [asked, saying("Written."), saying("Done.")]
        means = shop.means(model, charge, children=Cut(shop.ports))
        async with working(shop, means, poll_s=0.001):
            await status(shop, run.id, "completed")

    log = await shop.log(run.id)
    assert [event.result for event in of(log, ToolCallCompleted)] == ["charged", "Written."]
    assert "outage" not in [event.why for event in of(log, RunResumed)]


class PanicError(BaseException):
    """What a library that is not written in Python may raise: no `Exception`."""


async def test_a_run_that_panics_takes_no_result_from_the_tools_of_others(shop: Workshop) -> None:
    charging, over = asyncio.Event(), asyncio.Event()

    @tool
    async def charge() -> str:
        """Charge for as long as it takes the other run to crash, and to go on."""
        charging.set()
        await over.wait()
        return "charged"

    class Panicking:
        """A model that panics for one run, the first time, and has the other charge."""

        def __init__(self) -> None:
            self._scripted = Scripted([calling(("charge", {})), saying("Well."), saying("Done.")])
            self._calm = False

        async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
            """Answer, or panic."""
            if request.messages[-1].content == "Panic.":
                await charging.wait()
                if not self._calm:
                    self._calm = True
                    raise PanicError
            async for delta in self._scripted.stream(request):
                yield delta

    await hired(shop, shop.agent(charge))
    run, other = await shop.queue(), await shop.queue("Panic.")
    async with working(shop, shop.means(Panicking(), charge), poll_s=0.001):
        await status(shop, other.id, "completed")
        over.set()
        await status(shop, run.id, "completed")

    log = await shop.log(run.id)
    assert [event.result for event in of(log, ToolCallCompleted)] == ["charged"]
    assert of(log, RunResumed) == []
    assert [event.why for event in of(await shop.log(other.id), RunResumed)] == ["crash"]


async def test_a_worker_that_rests_is_not_taken_for_one_that_was_stopped(shop: Workshop) -> None:
    """A run that crashes just then would stay its own, and be driven by nobody."""
    line = over_a_line(shop)
    async with working(shop, shop.means([]), poll_s=0) as worker:
        async with asyncio.timeout(TIMEOUT_S):
            while line.asked < 5:
                await asyncio.sleep(0)
                assert not worker._is_stopped()


async def test_a_child_is_driven_at_once_though_its_parent_is_busy(shop: Workshop) -> None:
    answered = asyncio.Event()

    @tool(effect="read")
    async def look() -> str:
        """Look for as long as the child has not answered."""
        await answered.wait()
        return "seen"

    await hired(shop, replace(shop.agent(look), tools=("look", "agent:clerk")))
    asked = calling(("agent:clerk", {"input": "Write."}), ("look", {}))
    means = shop.means([asked, saying("Written."), saying("Done.")], look)
    async with working(shop, means):
        run = await shop.queue()
        await shop.seen(run.id, "child_run.started")
        await status(shop, child_run_id(run.id, "call_1_0"), "completed")
        answered.set()
        await status(shop, run.id, "completed")


@pytest.mark.usefixtures("agent")
async def test_a_run_that_its_owner_does_not_drive_is_given_back(shop: Workshop) -> None:
    """A claim whose connection broke may land long after it was looked for in vain."""
    run = await shop.queue()

    async with working(shop, shop.means([saying("Here.")]), strays_s=0, poll_s=0.001) as worker:
        shop.lease.lapsed = True  # So that the worker's own claims do not take it.
        late = await shop.store.write(queue.claim(worker.id, 1, "apd_late", 1))
        shop.lease.lapsed = False
        await status(shop, run.id, "completed")

    assert [claim.run_id for claim in late] == [run.id]
    assert [event.why for event in of(await shop.log(run.id), RunResumed)] == ["outage"]


@pytest.mark.usefixtures("agent")
async def test_a_run_in_hand_is_not_given_back(shop: Workshop) -> None:
    model = Held(rest=saying("Done."))
    run = await shop.queue()

    async with working(shop, shop.means(model), strays_s=0, poll_s=0.001):
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        asked = shop.lease.asked
        for _ in range(3):
            asked.clear()
            await asyncio.wait_for(asked.wait(), TIMEOUT_S)
        model.go.set()
        await status(shop, run.id, "completed")

    assert of(await shop.log(run.id), RunResumed) == []


@pytest.mark.usefixtures("agent")
async def test_nothing_is_claimed_while_the_lease_may_have_lapsed(shop: Workshop) -> None:
    shop.lease.lapsed = True
    run = await shop.queue()

    async with working(shop, shop.means([saying("Here.")]), poll_s=0.001) as worker:
        await asyncio.wait_for(shop.lease.asked.wait(), TIMEOUT_S)
        assert (await shop.row(run.id)).status == "queued"
        assert worker.busy == 0
        shop.lease.lapsed = False
        await status(shop, run.id, "completed")


@pytest.mark.usefixtures("agent")
async def test_a_run_that_nobody_rang_for_is_found(shop: Workshop) -> None:
    model = Held(rest=saying("Done."))

    async with working(shop, shop.means(model), poll_s=0.001):
        hub, shop.hub = shop.hub, Hub()  # Queued in another process, whose bell is not heard here.
        run = await shop.queue()
        shop.hub = hub
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        model.go.set()
        await status(shop, run.id, "completed")


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("strays_s", [0, 60])
async def test_a_worker_whose_connection_breaks_as_it_is_stopped_stops(
    shop: Workshop, strays_s: float
) -> None:
    """Whether it looked for strays or for work: it may have heard of the connection alone."""
    line = over_a_line(shop)
    worker = Worker(
        await shop.worker(), 4, shop.ports, shop.means([]), poll_s=60, strays_s=strays_s
    )
    line.heard = 0

    await stopped_in_silence(line, asyncio.create_task(worker.run()))


@pytest.mark.usefixtures("agent")
async def test_a_worker_whose_run_looks_at_its_inbox_as_it_is_stopped_stops(
    shop: Workshop,
) -> None:
    """What waits for the database to be back is told only once that it is not to."""
    line, model = over_a_line(shop), Held()
    async with serving(shop.ports.store):
        run = await shop.queue()
        worker = Worker(await shop.worker(), 4, shop.ports, shop.means(model), poll_s=60)
        working = asyncio.create_task(worker.run())
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        line.heard = 0
        shop.ring(run.id)

        await stopped_in_silence(line, working)

    assert (await shop.row(run.id)).status == "running"


@pytest.mark.parametrize("heard", [1, 2])
async def test_a_worker_that_gives_a_run_back_as_it_is_stopped_stops(
    shop: Workshop, heard: int
) -> None:
    line = over_a_line(shop)
    run = await shop.queue()  # Of an agent that nobody knows.
    worker = Worker(await shop.worker(), 1, shop.ports, shop.means([]), poll_s=60)
    line.heard = heard  # The claim, or also the look for the agent.

    await stopped_in_silence(line, asyncio.create_task(worker.run()))

    assert (await shop.row(run.id)).status == "running"
    assert await shop.store.read(crashed(run.id)) == 0


async def stopped_in_silence(line: BreakingEngine, working: "asyncio.Task[None]") -> None:
    """Stop the worker once it waits for an answer that will not come, and see that it stops."""
    await asyncio.wait_for(line.silent.wait(), TIMEOUT_S)
    working.cancel()
    ended, _ = await asyncio.wait({working}, timeout=TIMEOUT_S)

    assert ended
    assert working.cancelled()


_CRASH = Statement(
    update(schema.runs)
    .where(schema.runs.c.id == text("run_id"))
    .values(crashes=number("times"), run_at_ms=now_ms() + number("ready_in_ms"))
)


def having_crashed(run_id: str, times: int, ready_in_ms: int = 0) -> Work[None]:
    """Have the run be as after so many crashes in a row."""
    yield _CRASH(run_id=run_id, times=times, ready_in_ms=ready_in_ms)


async def looks(shop: Workshop, times: int = 3) -> None:
    """Wait until the worker has looked for work so often."""
    asked = shop.lease.asked
    for _ in range(times):
        asked.clear()
        await asyncio.wait_for(asked.wait(), TIMEOUT_S)


async def test_a_run_on_its_last_try_is_beside_no_other_until_it_has_come_through_its_calls(
    shop: Workshop,
) -> None:
    """Whichever of them ends the worker, the other one is not there to be blamed for it."""
    begun, go = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def hold() -> str:
        """Take long."""
        begun.set()
        await go.wait()
        return "held"

    await hired(shop, shop.agent(hold))
    # Of those on their last try the smallest id comes first, and ids of one moment are by chance.
    first, second = sorted([await shop.queue() for _ in range(2)], key=lambda run: run.id)
    for run in (first, second):
        await shop.store.write(having_crashed(run.id, queue.LAST_TRY))
    thinking, ending = Held(rest=calling(("hold", {}))), Held(rest=saying("First."))
    model = Turns(thinking, ending, Scripted([saying("Second.")]))

    async with working(shop, shop.means(model, hold), poll_s=0.001) as worker:
        await asyncio.wait_for(thinking.reached.wait(), TIMEOUT_S)
        await looks(shop)
        assert worker.busy == 1
        thinking.go.set()
        await asyncio.wait_for(begun.wait(), TIMEOUT_S)
        await looks(shop)
        assert worker.busy == 1, "what it has asked for may be as deadly as what it did before"
        assert (await shop.row(second.id)).status == "queued"

        go.set()
        await asyncio.wait_for(ending.reached.wait(), TIMEOUT_S)
        await status(shop, second.id, "completed")
        assert (await shop.row(first.id)).status == "running"
        ending.go.set()
        await status(shop, first.id, "completed")


async def test_a_run_that_comes_through_its_calls_lets_those_in_that_had_to_wait_for_it(
    shop: Workshop,
) -> None:
    """At once: a worker's death is no reason to stand still until the next look at the queue."""
    await hired(shop, shop.agent(add))
    last, once = [await shop.queue() for _ in range(2)]
    await shop.store.write(having_crashed(last.id, queue.LAST_TRY))
    await shop.store.write(having_crashed(once.id, 1, ready_in_ms=60_000))
    thinking, ending = Held(rest=calling(("add", {"a": 1, "b": 2}))), Held(rest=saying("First."))
    model = Turns(thinking, ending, Scripted([saying("Second.")]))

    async with working(shop, shop.means(model, add)) as worker:
        await asyncio.wait_for(thinking.reached.wait(), TIMEOUT_S)
        await shop.store.write(having_crashed(once.id, 1))
        shop.hub.ring(QUEUE_BELL)
        await looks(shop, times=1)
        assert worker.busy == 1

        thinking.go.set()
        await asyncio.wait_for(ending.reached.wait(), TIMEOUT_S)
        await status(shop, once.id, "completed")
        assert (await shop.row(last.id)).status == "running"
        ending.go.set()
        await status(shop, last.id, "completed")


async def test_a_run_on_its_last_try_that_is_handed_back_is_still_driven_apart(
    shop: Workshop,
) -> None:
    """It has achieved nothing: the next crash, whoever's, has it wait for an operator."""
    run = await shop.queue()
    claim = await shop.claim()
    for _ in range(queue.LAST_TRY):
        await shop.store.write(queue.dismiss_others("nobody"))
        await shop.store.write(queue.sweep())
        await shop.store.write(ready(run.id))
        claim = await shop.claim()
    model = Held()
    driven = await shop.driving(claim, shop.agent(), shop.means(model))
    driving = asyncio.create_task(driven.run())
    await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)

    driven.drain()
    await asyncio.wait_for(driving, TIMEOUT_S)

    assert (await shop.claim()).crashes == queue.LAST_TRY
