"""What every dispatcher owes: each run that is ready is driven, and by one worker at a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from milepost.core.events import RunResumed, RunStarted
from milepost.dispatch.port import Ready
from milepost.providers.scripted import Scripted, calling, saying
from milepost.runtime.means import Means
from milepost.tools import tool
from milepost.worker.shifts import Dispatch
from tests.dispatch.dispatching import Dispatching, a_task_queue, by_sql, by_temporal, working
from tests.dispatch.temporal_server import TemporalServer
from tests.runtime.workshop import ASK, TIMEOUT_S, Held, Turns, Workshop, of
from tests.worker.test_worker import hired, hurried, status


@pytest.fixture(params=["sql", "temporal"])
def dispatching(request: pytest.FixtureRequest) -> Dispatching:
    """Each dispatcher, to be opened as often as there are processes."""
    if request.param == "sql":
        return by_sql
    server: TemporalServer = request.getfixturevalue("shared_temporal")
    task_queue = a_task_queue()

    @asynccontextmanager
    async def opened(shop: Workshop) -> AsyncIterator[Dispatch]:
        async with by_temporal(shop, server.address, task_queue) as temporal:
            yield Dispatch(temporal, temporal.announce)

    return opened


@asynccontextmanager
async def a_worker(
    shop: Workshop, dispatching: Dispatching, means: Means
) -> AsyncIterator[Dispatch]:
    """Have a worker at work, as in a process of its own."""
    async with dispatching(shop) as dispatch, working(shop, dispatch, means):
        yield dispatch


async def test_a_run_that_is_ready_is_driven(shop: Workshop, dispatching: Dispatching) -> None:
    await hired(shop, shop.agent())
    before = await shop.queue()

    async with a_worker(shop, dispatching, shop.means([saying("One."), saying("Two.")])):
        await status(shop, before.id, "completed")
        after = await shop.queue()
        await status(shop, after.id, "completed")


async def test_more_runs_than_there_are_slots_are_all_driven(
    shop: Workshop, dispatching: Dispatching
) -> None:
    await hired(shop, shop.agent())
    runs = [await shop.queue() for _ in range(9)]

    async with a_worker(shop, dispatching, shop.means([saying("Done.")] * 9)):
        for run in runs:
            await status(shop, run.id, "completed")

    for run in runs:
        assert len(of(await shop.log(run.id), RunStarted)) == 1


async def test_a_run_that_is_announced_again_and_again_is_driven_once(
    shop: Workshop, dispatching: Dispatching
) -> None:
    await hired(shop, shop.agent())
    model = Held(rest=saying("Done."))
    run = await shop.queue()

    async with a_worker(shop, dispatching, shop.means(model)) as dispatch:
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        for _ in range(5):
            if dispatch.announce is not None:
                await dispatch.announce([Ready(run.id, 0)])
            shop.ring(run.id)
        model.go.set()
        await status(shop, run.id, "completed")

    assert of(await shop.log(run.id), RunResumed) == []


async def test_a_run_that_waited_for_a_person_goes_on_once_they_have_decided(
    shop: Workshop, dispatching: Dispatching
) -> None:
    @tool
    async def charge() -> str:
        """Charge."""
        return "charged"

    agent = await hired(shop, shop.agent(charge, policy=ASK))
    run = await shop.queue(agent=agent)
    means = shop.means([calling(("charge", {})), saying("Done.")], charge)

    async with a_worker(shop, dispatching, means):
        await status(shop, run.id, "waiting")
        [approval] = await shop.pending()
        await shop.decide(approval)
        await status(shop, run.id, "completed")

    assert [event.why for event in of(await shop.log(run.id), RunResumed)] == ["approval"]


async def test_a_run_that_waits_can_be_cancelled(shop: Workshop, dispatching: Dispatching) -> None:
    @tool
    async def charge() -> str:
        """Charge."""
        return "charged"

    agent = await hired(shop, shop.agent(charge, policy=ASK))
    run = await shop.queue(agent=agent)

    async with a_worker(shop, dispatching, shop.means([calling(("charge", {}))], charge)):
        await status(shop, run.id, "waiting")
        await shop.cancel(run.id)
        await status(shop, run.id, "cancelled")


async def test_a_run_that_crashed_its_worker_is_driven_again(
    shop: Workshop, dispatching: Dispatching
) -> None:
    await hired(shop, shop.agent())
    run = await shop.queue()
    means = shop.means([ZeroDivisionError("a bug")] * 2 + [saying("At last.")])

    async with a_worker(shop, dispatching, means):
        await hurried(shop, run.id, crashes=2)
        await status(shop, run.id, "completed")


async def test_the_next_run_of_a_session_follows_the_last_one(
    shop: Workshop, dispatching: Dispatching
) -> None:
    await hired(shop, shop.agent())
    model = Held(rest=saying("Done."))

    async with a_worker(shop, dispatching, shop.means(Turns(model, Scripted([saying("Next.")])))):
        first = await shop.queue()
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        second = await shop.queue(session_id=first.session_id)
        model.go.set()
        await status(shop, second.id, "completed")


async def test_what_a_drained_worker_hands_back_another_drives(
    shop: Workshop, dispatching: Dispatching
) -> None:
    await hired(shop, shop.agent())
    model = Held()
    run = await shop.queue()

    async with a_worker(shop, dispatching, shop.means(model)):
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
    async with a_worker(shop, dispatching, shop.means([saying("Done.")])):
        await status(shop, run.id, "completed")

    assert [event.why for event in of(await shop.log(run.id), RunResumed)] == ["drain"]
