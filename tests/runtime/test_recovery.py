"""A run whose worker died, or may have: nothing is lost, and nothing happens twice."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import pytest

from milepost.core.admission import UNKNOWN_OUTCOME
from milepost.core.errors import FencedError, OverloadedError
from milepost.core.events import (
    Custom,
    MessageAborted,
    MessageCompleted,
    RunRetried,
    RunRetrying,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallStarted,
)
from milepost.core.guardrails import Guardrails, PythonRail
from milepost.core.json import Json
from milepost.core.policy import NOTHING_STANDS, Standing
from milepost.core.repetition import ToolEffect
from milepost.guardrails import Subject, rail
from milepost.providers.scripted import Scripted, calling, saying
from milepost.store.store import Store
from milepost.store.work import Work
from milepost.tools import ToolContext, tool
from tests.runtime.tools import listening
from tests.runtime.workshop import (
    TIMEOUT_S,
    Held,
    Workshop,
    in_background,
    of,
    putting,
)
from tests.store.breaking import BreakingEngine
from tests.store.conftest import serving

T = TypeVar("T")


@pytest.mark.parametrize(("effect", "attempts"), [("read", 2), ("idempotent", 2), ("once", 1)])
async def test_what_a_dead_worker_had_begun_is_recovered_by_its_effect(
    shop: Workshop, effect: ToolEffect, attempts: int
) -> None:
    began = asyncio.Event()
    keys: list[str] = []

    @tool(effect=effect)
    async def act(context: ToolContext) -> str:
        """Act; the first worker dies over it."""
        keys.append(context.idempotency_key)
        began.set()
        if context.attempt == 1:
            await asyncio.Event().wait()
        return "acted"

    run = await shop.queue()
    claim = await shop.claim()
    driven = await shop.driving(claim, shop.agent(act), shop.means([calling(("act", {}))], act))
    dying = asyncio.create_task(driven.run())
    await asyncio.wait_for(began.wait(), TIMEOUT_S)
    successor = await shop.take_over()
    dying.cancel()
    await asyncio.wait({dying})

    model = Scripted([saying("Well.")])
    await shop.go_on(model, act, claim=successor)

    log = await shop.log(run.id)
    assert len(of(log, ToolCallStarted)) == len(keys) == attempts
    assert len(set(keys)) == 1
    [interrupted] = of(log, ToolCallInterrupted)
    assert interrupted.then == ("repeat" if attempts == 2 else "tell_model")
    told = model.requests[0].messages[-1].content
    assert told == "acted" if attempts == 2 else UNKNOWN_OUTCOME.message in told


async def test_a_tool_that_is_ready_when_the_lease_has_lapsed_is_not_run(shop: Workshop) -> None:
    ran = []

    async def connect() -> str:
        shop.lease.lapsed = True
        return "db"

    @tool(inject={"db": connect})
    async def act(db: str) -> None:
        """Act."""
        ran.append(db)

    run = await shop.queue()

    with pytest.raises(FencedError):
        await shop.go_on([calling(("act", {}))], act)

    assert ran == []
    assert (await shop.types(run.id))[-1] == "tool_call.started"


async def test_a_call_that_ends_the_drive_loses_no_result_that_came_with_it(shop: Workshop) -> None:
    finished = asyncio.Event()

    @tool(inject={"_": finished.wait})
    async def late(_: bool) -> None:
        """Begin when the lease has lapsed."""

    @tool
    async def prompt() -> str:
        """Act, as the last thing under the lease."""
        shop.lease.lapsed = True
        finished.set()
        return "acted"

    run = await shop.queue()

    with pytest.raises(FencedError):
        await shop.go_on([calling(("late", {}), ("prompt", {}))], late, prompt)

    [completed] = of(await shop.log(run.id), ToolCallCompleted)
    assert completed.result == "acted"


async def test_a_call_that_ends_the_drive_stops_none_that_could_not_be_repeated(
    shop: Workshop,
) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()
    listen = listening(stopped)

    @tool(inject={"_": begun.wait})
    async def late(_: bool) -> None:
        """Begin when the lease has lapsed."""

    @tool
    async def pay() -> str:
        """Pay, and be done when all others are."""
        shop.lease.lapsed = True
        begun.set()
        await stopped.wait()
        return "paid"

    tools = (late, listen, pay)
    run = await shop.queue()

    with pytest.raises(FencedError):
        await shop.go_on([calling(("late", {}), ("listen", {}), ("pay", {}))], *tools)

    [completed] = of(await shop.log(run.id), ToolCallCompleted)
    assert completed.result == "paid"


async def test_a_call_that_nobody_may_begin_stops_none_that_could_not_be_repeated(
    shop: Workshop,
) -> None:
    """It is written down as begun, and the lease is not back."""
    begun, stopped = asyncio.Event(), asyncio.Event()
    listen = listening(stopped)

    @tool(effect="read")
    async def look() -> None:
        """Never begin."""

    @tool
    async def pay() -> str:
        """Pay, and be done when all others are."""
        begun.set()
        await stopped.wait()
        return "paid"

    @rail(name="lapsing")
    async def lapsing(_: Subject) -> None:
        await begun.wait()
        shop.lease.lapsed = True

    guardrails = Guardrails(tool_arguments=(PythonRail(name="lapsing", tools=("look",)),))
    tools = (look, listen, pay)
    agent = shop.agent(*tools, guardrails=guardrails)
    run = await shop.queue()
    model = [calling(("look", {}), ("listen", {}), ("pay", {}))]
    means = shop.means(model, *tools, rails={"lapsing": lapsing})
    driven = await shop.driving(await shop.claim(), agent, means)

    with pytest.raises(FencedError):
        await asyncio.wait_for(driven.run(), TIMEOUT_S)

    [completed] = of(await shop.log(run.id), ToolCallCompleted)
    assert completed.result == "paid"


async def test_nothing_is_written_down_as_begun_by_a_drive_that_is_over(shop: Workshop) -> None:
    """It would be lost to whoever goes on, although nobody has made the call."""
    finished = asyncio.Event()
    paid = []

    @tool(inject={"_": finished.wait}, effect="read")
    async def late(_: bool) -> None:
        """Begin when the lease is late."""

    @tool(effect="read")
    async def listen(context: ToolContext) -> None:
        """Listen, and tell of it."""
        if context.attempt == 1:
            context.emit("listening")
            shop.lease.lapsed = True
            finished.set()
            await asyncio.Event().wait()

    @tool
    async def pay(context: ToolContext) -> None:
        """Pay."""
        paid.append(context.attempt)

    @rail(name="looking")
    async def looking(_: Subject) -> None:
        await finished.wait()

    @rail(name="slow")
    async def slow(_: Subject) -> None:
        for _turn in range(50):  # until one call is over, and another has been looked at
            await asyncio.sleep(0)
        shop.lease.lapsed = False

    guardrails = Guardrails(
        tool_arguments=(PythonRail(name="looking", tools=("pay",)),),
        tool_results=(PythonRail(name="slow", tools=("listen",)),),
    )
    tools = (late, listen, pay)
    agent = shop.agent(*tools, guardrails=guardrails)
    run = await shop.queue()
    model = [calling(("late", {}), ("listen", {}), ("pay", {})), saying("Done.")]
    means = shop.means(model, *tools, rails={"looking": looking, "slow": slow})

    with pytest.raises(FencedError):
        await asyncio.wait_for((await shop.driving(await shop.claim(), agent, means)).run(), 9)
    await asyncio.wait_for((await shop.driving(await shop.take_over(), agent, means)).run(), 9)

    assert of(await shop.log(run.id), ToolCallFailed) == []
    assert paid == [1]


async def test_a_message_that_a_dead_worker_had_begun_is_aborted_and_begun_anew(
    shop: Workshop,
) -> None:
    model = Held()
    run = await shop.queue()
    claim = await shop.claim()
    driven = await shop.driving(claim, shop.agent(), shop.means(model))
    dying = asyncio.create_task(driven.run())
    await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
    successor = await shop.take_over()
    dying.cancel()
    await asyncio.wait({dying})

    await shop.go_on([saying("Anew.")], claim=successor)

    log = await shop.log(run.id)
    assert of(log, MessageAborted)[0].message_id == "msg_1"
    assert of(log, MessageCompleted)[0].message_id == "msg_2"


async def test_who_lost_the_run_writes_nothing_more_and_stops_all_work(shop: Workshop) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()
    release = asyncio.Event()

    @tool
    async def linger() -> None:
        """Linger."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @tool(effect="read")
    async def quick() -> str:
        """Come back when it is too late."""
        await release.wait()
        return "late"

    run = await shop.queue()
    claim = await shop.claim()
    means = shop.means([calling(("linger", {}), ("quick", {}))], linger, quick)
    driven = await shop.driving(claim, shop.agent(linger, quick), means)
    driving = asyncio.create_task(driven.run())
    await asyncio.wait_for(began.wait(), TIMEOUT_S)
    await shop.take_over()
    before = await shop.types(run.id)

    release.set()
    with pytest.raises(FencedError):
        await asyncio.wait_for(driving, TIMEOUT_S)

    assert stopped.is_set()
    assert await shop.types(run.id) == before


async def test_who_reads_late_does_not_take_a_successors_log_for_its_own(shop: Workshop) -> None:
    run = await shop.queue()
    claim = replace(await shop.claim(), entries=None)
    await shop.take_over()

    driven = await shop.driving(claim, shop.agent(), shop.means([saying("never")]))

    with pytest.raises(FencedError):
        await asyncio.wait_for(driven.run(), TIMEOUT_S)
    assert await shop.types(run.id) == ["run.queued", "run.started", "run.resumed"]


async def test_nothing_new_is_begun_once_the_lease_may_have_lapsed(shop: Workshop) -> None:
    model = Scripted([saying("never")])
    await shop.queue()
    claim = await shop.claim()
    shop.lease.lapsed = True

    driven = await shop.driving(claim, shop.agent(), shop.means(model))

    with pytest.raises(FencedError, match="may have lapsed"):
        await asyncio.wait_for(driven.run(), TIMEOUT_S)
    assert model.requests == []


async def test_what_is_begun_in_the_log_waits_for_a_lease_that_is_only_late(
    shop: Workshop,
) -> None:
    await shop.queue()
    claim = await shop.claim()
    shop.lease.lapsed = True
    means = shop.means([saying("Here.")], lease_wait_s=TIMEOUT_S)
    driven = await shop.driving(claim, shop.agent(), means)

    running = asyncio.create_task(driven.run())
    await shop.lease.asked.wait()
    shop.lease.lapsed = False

    await asyncio.wait_for(running, TIMEOUT_S)
    assert (await shop.types(claim.run_id))[-1] == "run.completed"


async def test_a_tool_that_is_ready_waits_for_a_lease_that_is_only_late(shop: Workshop) -> None:
    """Who waited out an outage is back before the lease is."""
    begun, looked = asyncio.Event(), asyncio.Event()

    async def connect() -> str:
        if not looked.is_set():
            await begun.wait()
            shop.lease.lapsed = True
            shop.lease.asked.clear()
            looked.set()
        return "db"

    @tool(inject={"db": connect})
    async def look(db: str) -> str:
        """Look."""
        return db

    @tool
    async def pay() -> str:
        """Pay, under a lease that is there again."""
        begun.set()
        await looked.wait()
        await shop.lease.asked.wait()
        shop.lease.lapsed = False
        return "paid"

    run = await shop.queue()
    model = [calling(("look", {}), ("pay", {})), saying("Done.")]
    means = shop.means(model, look, pay, lease_wait_s=TIMEOUT_S)
    driven = await shop.driving(await shop.claim(), shop.agent(look, pay), means)

    await asyncio.wait_for(driven.run(), TIMEOUT_S)

    log = await shop.log(run.id)
    assert {event.result for event in of(log, ToolCallCompleted)} == {"db", "paid"}
    assert log[-1].type == "run.completed"


async def test_what_came_in_is_written_down_once_where_its_drive_ends_by_an_error(
    shop: Workshop,
) -> None:
    """A run that an operator sends on would else be sent on, and crash its worker, for ever."""
    begun, sent_on, unreadable = asyncio.Event(), asyncio.Event(), [False]

    @tool
    async def pay() -> str:
        """Pay for as long as it takes an operator to send the run on."""
        begun.set()
        await sent_on.wait()
        return "paid"

    async def find(_: str, __: str, *, fresh: bool = False) -> Standing:
        if unreadable[0]:
            sent_on.set()
            raise KeyError("whom")
        return NOTHING_STANDS

    run, agent = await shop.queue(), shop.agent(pay)
    means = shop.means([calling(("pay", {})), saying("Done.")], pay, standing_of=find)
    dying = asyncio.create_task((await shop.driving(await shop.claim(), agent, means)).run())
    await asyncio.wait_for(begun.wait(), TIMEOUT_S)
    unreadable[0] = True
    await shop.deliver(run.id, "retry", {"by": "ann"}, "retry")
    with pytest.raises(KeyError):
        await asyncio.wait_for(dying, TIMEOUT_S)
    unreadable[0] = False

    driven = await shop.driving(await shop.take_over(), agent, means)
    await asyncio.wait_for(driven.run(), TIMEOUT_S)

    log = await shop.log(run.id)
    assert len(of(log, RunRetried)) == 1
    assert [event.result for event in of(log, ToolCallCompleted)] == ["paid"]
    assert log[-1].type == "run.completed"


class Chatty(BreakingEngine):
    """A database in which something comes in for a run whenever anything is about to be written."""

    run_id: str | None = None

    async def write_each(self, work: Work[list[T]], told: Sequence[asyncio.Future[T]]) -> None:
        """Let something come in that concerns nobody, and do the work."""
        if self.run_id:
            said: dict[str, Json] = {"call_id": "call_9_9", "result": None, "duration_ms": 0}
            await self._engine.write(putting(self.run_id, "tool_result", said, "client_tool"))
        await super().write_each(work, told)


@pytest.mark.parametrize("drains", [False, True])
async def test_who_gets_messages_faster_than_it_reads_them_loses_no_result(
    shop: Workshop, *, drains: bool
) -> None:
    line = Chatty(shop.store.engine)
    shop.ports = replace(shop.ports, store=Store(line))

    @tool(terminal=True)
    async def pay() -> str:
        """Pay, while the messages begin to pour in."""
        line.run_id = run.id
        if drains:
            driven.drain()
        return "paid"

    async with serving(shop.ports.store):
        run = await shop.queue()
        means = shop.means([calling(("pay", {}))], pay)
        driven = await shop.driving(await shop.claim(), shop.agent(pay), means)

        with pytest.raises(OverloadedError):
            await asyncio.wait_for(driven.run(), TIMEOUT_S)

    [completed] = of(await shop.log(run.id), ToolCallCompleted)
    assert completed.result == "paid"


async def test_a_bug_in_a_provider_is_not_swallowed(shop: Workshop) -> None:
    await shop.queue()

    with pytest.raises(ZeroDivisionError):
        await shop.go_on([ZeroDivisionError("a bug")])


async def test_a_blocked_thread_does_not_hold_up_the_others(shop: Workshop) -> None:
    barrier = threading.Barrier(2, timeout=TIMEOUT_S)

    @tool(effect="read")
    def meet() -> str:
        """Wait for the other one."""
        barrier.wait()
        return "met"

    model = Scripted([calling(("meet", {}), ("meet", {})), saying("Both.")])
    await shop.driven(model, meet)

    assert [message.content for message in model.requests[1].messages[-2:]] == ["met", "met"]


async def test_a_call_that_ends_late_in_a_drain_is_made_again_and_has_not_failed(
    shop: Workshop,
) -> None:
    begun, looked_at = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def look(context: ToolContext) -> str:
        """Look."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            context.emit("stopping")
            await looked_at.wait()
        return "seen"

    @rail(name="slow")
    async def slow(_: Subject) -> None:
        looked_at.set()
        for _turn in range(50):  # until the call is over
            await asyncio.sleep(0)

    agent = shop.agent(look, guardrails=Guardrails(tool_results=(PythonRail(name="slow"),)))
    run = await shop.queue()
    means = shop.means([calling(("look", {}))], look, rails={"slow": slow}, drain_s=0.02)
    driven = await shop.driving(await shop.claim(), agent, means)

    async with in_background(driven):
        await begun.wait()
        driven.drain()

    log = await shop.log(run.id)
    assert [each.name for each in of(log, Custom)] == ["stopping"]
    assert of(log, ToolCallFailed) == []
    assert of(log, RunRetrying) == [RunRetrying("drain")]
