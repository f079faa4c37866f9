"""Shifts: one worker id after the other, however the last one ended."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from milepost.core.errors import FencedError
from milepost.core.events import RunCompleted, RunResumed, RunStarted
from milepost.providers.scripted import Scripted, saying
from milepost.store import queue
from milepost.store.engine import DatabaseUnavailableError
from milepost.store.thread import SqliteThreadStore, ThreadStore
from milepost.telemetry.logs import logger
from milepost.worker.shifts import Shifts, Terms
from milepost.worker.turns import take_turn
from tests.runtime.workshop import TIMEOUT_S, Held, Turns, Workshop, of
from tests.worker.test_worker import hired, status

# The short lease is lost soon; under the long one nobody is ever steady enough to sweep.
SHORT = Terms(slots=4, lease_s=0.3, sweep_s=0.02, alone=True)
LONG = Terms(slots=4, lease_s=60, sweep_s=0.02, alone=True)


class Doors:
    """Opens connections to the file, but for the times when it is told to fail."""

    def __init__(self, shop: Workshop) -> None:
        self._path = shop.path
        self.failures = 0
        self.error: Exception = DatabaseUnavailableError("the database is away")

    def __call__(self) -> ThreadStore:
        if self.failures:
            self.failures -= 1
            raise self.error
        return SqliteThreadStore(self._path)


@contextlib.asynccontextmanager
async def shifting(
    shop: Workshop, model: object, doors: Doors, terms: Terms = LONG
) -> AsyncIterator[Shifts]:
    """Have shifts worked until the test is done with them."""
    means = shop.means(model)  # type: ignore[arg-type]  # whatever streams
    shifts = Shifts(terms, shop.ports, lambda _: means, doors, again_s=0.001)
    task = asyncio.create_task(shifts.run())
    try:
        yield shifts
        shifts.drain()
        await asyncio.wait_for(task, TIMEOUT_S)
    finally:
        task.cancel()


@pytest.fixture
async def doors(shop: Workshop) -> Doors:
    """A way to the database, which knows the agent."""
    await hired(shop, shop.agent())
    return Doors(shop)


async def test_who_is_alone_with_the_file_takes_over_at_once(shop: Workshop, doors: Doors) -> None:
    """The others must be dead, since the file's lock is held: no lease need lapse."""
    run = await shop.queue()
    await shop.claim()

    async with shifting(shop, [saying("Here.")], doors):
        await status(shop, run.id, "completed")

    assert of(await shop.log(run.id), RunResumed)[0].why == "crash"


async def test_a_worker_that_was_declared_dead_goes_on_under_a_new_id(
    shop: Workshop, doors: Doors
) -> None:
    lost = Held()
    run = await shop.queue()

    async with shifting(shop, Turns(lost, Scripted([saying("Anew.")])), doors, SHORT):
        await asyncio.wait_for(lost.reached.wait(), TIMEOUT_S)
        [started] = of(await shop.log(run.id), RunStarted)
        await shop.store.write(queue.dismiss(started.worker))
        await status(shop, run.id, "completed")

    log = await shop.log(run.id)
    [resumed] = of(log, RunResumed)
    assert lost.closed.is_set()
    assert resumed.worker != started.worker
    assert len(of(log, RunCompleted)) == 1


async def test_a_shift_whose_sweeper_ends_is_followed_by_the_next(
    shop: Workshop, doors: Doors
) -> None:
    lost = Held()
    run = await shop.queue()

    async with shifting(shop, Turns(lost, Scripted([saying("Anew.")])), doors):
        await asyncio.wait_for(lost.reached.wait(), TIMEOUT_S)
        [sweeper] = [task for task in asyncio.all_tasks() if task.get_name() == "the sweeper"]
        sweeper.cancel()
        await status(shop, run.id, "completed")

    log = await shop.log(run.id)
    assert of(log, RunResumed)[0].worker != of(log, RunStarted)[0].worker


async def test_a_process_says_whether_it_has_a_lease(shop: Workshop, doors: Doors) -> None:
    model = Held()
    await shop.queue()

    async with shifting(shop, model, doors) as shifts:
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        working = shifts.leased

    assert (working, shifts.leased) == (True, False)


async def test_the_last_shift_hands_back_what_it_drives(shop: Workshop, doors: Doors) -> None:
    model = Held()
    run = await shop.queue()

    async with shifting(shop, model, doors) as shifts:
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        assert shifts.busy == 1

    assert shifts.busy == 0
    assert (await shop.row(run.id)).status == "queued"
    assert (await shop.types(run.id))[-1] == "run.retrying"


async def test_who_goes_home_signs_off(shop: Workshop, doors: Doors) -> None:
    """Whatever it left behind can be had at once, and not only when its lease has lapsed."""
    run = await shop.queue()

    async with shifting(shop, [saying("Here.")], doors):
        await status(shop, run.id, "completed")

    [started] = of(await shop.log(run.id), RunStarted)
    with pytest.raises(FencedError):
        await shop.store.write(queue.renew(started.worker, 1_000))


@pytest.mark.parametrize(
    "error", [DatabaseUnavailableError("away"), ExceptionGroup("both", [ZeroDivisionError()])]
)
async def test_what_goes_wrong_when_a_shift_begins_ends_no_worker(
    shop: Workshop, doors: Doors, error: Exception
) -> None:
    doors.failures, doors.error = 3, error
    run = await shop.queue()

    async with shifting(shop, [saying("Here.")], doors):
        await status(shop, run.id, "completed")

    assert doors.failures == 0


async def test_shifts_that_were_never_begun_can_be_ended(shop: Workshop, doors: Doors) -> None:
    doors.failures = 10**9

    async with shifting(shop, [], doors) as shifts:
        pass

    assert shifts.busy == 0


async def test_a_turn_that_does_not_hear_of_its_cancellation_has_no_next_one() -> None:
    begun = asyncio.Event()

    async def turn() -> None:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async def turns() -> None:
        while True:
            await take_turn(turn(), None, logger("test"))

    task = asyncio.create_task(turns())
    await begun.wait()
    task.cancel()
    ended, _ = await asyncio.wait({task}, timeout=TIMEOUT_S)

    assert ended
    assert task.cancelled()


async def test_a_turn_that_fails_as_it_is_cancelled_has_no_next_one() -> None:
    begun = asyncio.Event()

    async def turn() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise DatabaseUnavailableError("the connection broke") from None

    async def turns() -> None:
        while True:
            await take_turn(turn(), None, logger("test"))

    task = asyncio.create_task(turns())
    await begun.wait()
    task.cancel()
    ended, _ = await asyncio.wait({task}, timeout=TIMEOUT_S)

    assert ended
    assert task.cancelled()
