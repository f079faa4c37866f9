"""How a run stands when a worker has let go of it, and when it is to be delivered again."""

import pytest

from milepost.dispatch.port import Slice
from milepost.providers.scripted import calling, saying
from milepost.store import queue
from milepost.tools import tool
from milepost.worker.slices import DRIVEN_S, LOOK_S_MIN, MARGIN_S, PARKED_S_MAX, slice_of
from tests.runtime.workshop import ASK, Workshop
from tests.worker.test_worker import hired, ready

OVER = Slice(over=True, again_s=0)


@tool
async def charge() -> str:
    """Charge."""
    return "charged"


async def a_waiting_run(shop: Workshop, **changes: object) -> str:
    """Have a run wait for a person; return its id."""
    agent = await hired(shop, shop.agent(charge, policy=ASK))
    return await shop.driven([calling(("charge", {}))], charge, agent=agent, **changes)


async def test_a_run_that_ended_is_over(shop: Workshop) -> None:
    run_id = await shop.driven([saying("Done.")])

    assert await slice_of(shop.ports, run_id) == OVER


async def test_a_run_that_is_not_there_any_more_is_over(shop: Workshop) -> None:
    assert await slice_of(shop.ports, "run_none") == OVER


async def test_a_run_that_is_ready_is_delivered_again_soon(shop: Workshop) -> None:
    run = await shop.queue()

    assert await slice_of(shop.ports, run.id) == Slice(over=False, again_s=LOOK_S_MIN)


async def test_a_run_that_somebody_else_drives_is_looked_at_again(shop: Workshop) -> None:
    run = await shop.queue()
    await shop.claim()

    assert await slice_of(shop.ports, run.id) == Slice(over=False, again_s=DRIVEN_S)


async def test_a_run_at_rest_after_crashes_is_delivered_after_its_pause(shop: Workshop) -> None:
    run = await shop.queue()
    for _ in range(3):
        await shop.store.write(ready(run.id))
        worker = await shop.worker()
        claim = await shop.claim(worker)
        await shop.store.write(queue.give_up(claim.tenant, run.id, claim.epoch, worker, "crash"))

    found = await slice_of(shop.ports, run.id)

    assert not found.over
    assert LOOK_S_MIN < found.again_s <= queue.CRASH_BACKOFF_MS[2] / 1000


async def test_a_run_that_waits_for_a_person_is_looked_at_rarely(shop: Workshop) -> None:
    run_id = await a_waiting_run(shop)

    assert await slice_of(shop.ports, run_id) == Slice(over=False, again_s=PARKED_S_MAX)


@pytest.mark.parametrize(("ahead_s", "again_s"), [(60, 60 + MARGIN_S), (7_200, PARKED_S_MAX)])
async def test_a_run_with_a_deadline_is_looked_at_behind_it(
    shop: Workshop, ahead_s: int, again_s: float
) -> None:
    run_id = await a_waiting_run(shop, deadline_ms=shop.clock() + ahead_s * 1000)

    found = await slice_of(shop.ports, run_id)

    assert not found.over
    assert again_s - 30 < found.again_s <= again_s


async def test_a_run_whose_time_has_come_is_looked_at_once_somebody_could_act(
    shop: Workshop,
) -> None:
    run_id = await a_waiting_run(shop, deadline_ms=shop.clock() + 60_000)
    shop.clock.ahead_ms = 3_600_000

    assert await slice_of(shop.ports, run_id) == Slice(over=False, again_s=LOOK_S_MIN)
