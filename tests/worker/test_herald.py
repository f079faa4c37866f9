"""The herald: who has to be told what is ready is told, by one of those that live."""

import asyncio
from collections.abc import Sequence

import pytest

from milepost.dispatch.port import Ready
from milepost.store import queue
from milepost.store.queue import ReadyRun, Seat
from milepost.worker import herald
from milepost.worker.herald import Herald
from tests.runtime.workshop import TIMEOUT_S, Workshop


class Told:
    """A dispatcher's ear, which takes note of what it is told unless it is deaf."""

    def __init__(self) -> None:
        self.runs: list[Ready] = []
        self.deaf = False
        self.more = asyncio.Event()

    async def __call__(self, ready: Sequence[Ready]) -> list[str]:
        """Take note."""
        if self.deaf:
            return []
        self.runs += ready
        self.more.set()
        return [each.run_id for each in ready]


async def test_what_is_ready_is_told_once_with_its_lane(shop: Workshop) -> None:
    low, high = await shop.queue(), await shop.queue(lane=7)
    told = Told()
    telling = Herald(await shop.worker(), shop.ports, told)

    for _ in range(3):
        await telling.tell()

    assert told.runs == [Ready(high.id, 7), Ready(low.id, 0)]


async def test_what_nobody_took_note_of_is_told_with_the_next_look(shop: Workshop) -> None:
    run, told = await shop.queue(), Told()
    telling = Herald(await shop.worker(), shop.ports, told)
    told.deaf = True
    await telling.tell()

    told.deaf = False
    await telling.tell()

    assert told.runs == [Ready(run.id, 0)]


async def test_a_run_that_is_ready_another_time_is_told_another_time(shop: Workshop) -> None:
    run, told = await shop.queue(), Told()
    worker = await shop.worker()
    telling = Herald(worker, shop.ports, told)
    await telling.tell()
    claim = await shop.claim(worker)
    await shop.store.write(queue.give_up(claim.tenant, run.id, claim.epoch, worker, "outage"))

    await telling.tell()

    assert told.runs == [Ready(run.id, 0)] * 2


async def test_what_is_still_ready_after_long_is_told_again(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(herald, "AGAIN_S", 0.0)
    run, told = await shop.queue(), Told()
    telling = Herald(await shop.worker(), shop.ports, told)

    await telling.tell()
    await telling.tell()

    assert told.runs == [Ready(run.id, 0)] * 2


async def test_the_living_share_out_what_is_to_be_told(shop: Workshop) -> None:
    runs = [await shop.queue() for _ in range(20)]
    workers = [await shop.worker() for _ in range(3)]
    told = [Told() for _ in workers]

    for worker, each in zip(workers, told, strict=True):
        await Herald(worker, shop.ports, each).tell()

    heard = [ready.run_id for each in told for ready in each.runs]
    assert sorted(heard) == sorted(run.id for run in runs)
    assert all(each.runs for each in told)


async def test_a_bell_that_no_other_process_hears_is_answered_by_who_heard_it(
    shop: Workshop,
) -> None:
    runs = [await shop.queue() for _ in range(20)]
    workers = [await shop.worker() for _ in range(3)]
    told = Told()

    await Herald(workers[0], shop.ports, told).tell(heard=True)

    assert sorted(ready.run_id for ready in told.runs) == sorted(run.id for run in runs)


def test_a_run_that_is_still_ready_is_everybodys_turn_once(shop: Workshop) -> None:
    heralds = [Herald(f"wrk_{before}", shop.ports, Told()) for before in range(3)]
    for before, each in enumerate(heralds):
        each._seat = Seat(living=3, before=before)

    turns = [
        [each._is_mine(ReadyRun("run_1", 0, 0, turn * herald.TURN_MS)) for each in heralds]
        for turn in range(3)
    ]

    assert [sum(turn) for turn in turns] == [1, 1, 1]
    assert [sum(each) for each in zip(*turns, strict=True)] == [1, 1, 1]


async def test_whoever_makes_a_run_ready_has_it_told_by_ringing(shop: Workshop) -> None:
    told = Told()
    telling = Herald(await shop.worker(), shop.ports, told, poll_s=3_600)
    task = asyncio.create_task(telling.run())
    await shop.queue()
    await asyncio.wait_for(told.more.wait(), TIMEOUT_S)
    told.more.clear()

    run = await shop.queue()
    await asyncio.wait_for(told.more.wait(), TIMEOUT_S)
    task.cancel()

    assert told.runs[-1] == Ready(run.id, 0)
