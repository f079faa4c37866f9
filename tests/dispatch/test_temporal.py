"""Temporal as the dispatcher: what it is away for, what it forgets, and who else takes a run."""

import asyncio
import socket
from pathlib import Path

import pytest

from milepost.core.events import RunResumed, RunStarted
from milepost.dispatch.port import Offer, Ready, Slice
from milepost.dispatch.temporal import Room, Temporal, TemporalAddress, priority_of
from milepost.providers.scripted import Scripted, saying
from milepost.worker.shifts import Dispatch
from milepost.worker.slices import DRIVEN_S, slice_of
from milepost.worker.worker import Worker
from tests.devservices import _free_port
from tests.dispatch.dispatching import (
    NEVER_S,
    Answers,
    a_task_queue,
    by_temporal,
    working,
)
from tests.dispatch.temporal_server import START_S, TemporalServer, temporal_program
from tests.runtime.workshop import TIMEOUT_S, Held, Turns, Workshop, of
from tests.worker.test_worker import hired, status


async def nobody_looks(run_id: str) -> Slice:
    raise AssertionError(f"{run_id} was delivered")


class Looks:
    """Looks at how runs stand, and takes note of it."""

    def __init__(self, shop: Workshop) -> None:
        self._ports = shop.ports
        self._more = asyncio.Event()
        self.found: list[Slice] = []

    async def __call__(self, run_id: str) -> Slice:
        """Look at the run."""
        self.found.append(await slice_of(self._ports, run_id))
        self._more.set()
        return self.found[-1]

    async def until(self, many: int) -> None:
        """Wait until there have been so many looks."""
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.found) < many:
                self._more.clear()
                await self._more.wait()


def at(target: str, shop: Workshop, answers: Answers, namespace: str = "default") -> Temporal:
    """Return the dispatcher of a process, for a Temporal that may not be there."""
    return Temporal(
        TemporalAddress(target, namespace, "milepost"),
        Room(slots=4, drain_s=1, grace_s=3_600),
        nobody_looks,
        chime=shop.hub.chime,
        on_change=answers,
    )


async def test_runs_are_driven_while_temporal_was_never_there(shop: Workshop) -> None:
    await hired(shop, shop.agent())
    answers = Answers()
    temporal = at(f"127.0.0.1:{_free_port()}", shop, answers)

    async with temporal.connected():
        await asyncio.wait_for(answers.no.wait(), TIMEOUT_S)
        dispatch = Dispatch(temporal, temporal.announce)
        async with working(shop, dispatch, shop.means([saying("Done.")])):
            run = await shop.queue()
            await status(shop, run.id, "completed")


async def test_a_temporal_that_was_silent_from_the_beginning_is_told_as_one_that_falls_silent(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the connection, as a firewall or a stopped process does, and never answers."""
    monkeypatch.setattr("milepost.dispatch.temporal.ANSWER_S_MAX", 0.1)
    answers = Answers()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        temporal = at(f"127.0.0.1:{silent.getsockname()[1]}", shop, answers)

        async with temporal.connected():
            await asyncio.wait_for(answers.no.wait(), TIMEOUT_S)

    assert isinstance(answers.error, TimeoutError)


async def test_a_namespace_that_is_not_there_is_told_and_runs_go_on(
    shop: Workshop, shared_temporal: TemporalServer
) -> None:
    await hired(shop, shop.agent())
    answers = Answers()
    temporal = at(shared_temporal.address, shop, answers, namespace="elsewhere")

    async with temporal.connected():
        await asyncio.wait_for(answers.no.wait(), TIMEOUT_S)
        async with working(shop, Dispatch(temporal), shop.means([saying("Done.")])):
            run = await shop.queue()
            await status(shop, run.id, "completed")

    assert "elsewhere" in str(answers.error)


async def test_what_temporal_leaves_lying_is_taken_by_who_is_free(
    shop: Workshop, shared_temporal: TemporalServer
) -> None:
    """It was never told of the run, or it forgot."""
    await hired(shop, shop.agent())
    run = await shop.queue()

    async with (
        by_temporal(shop, shared_temporal.address, a_task_queue(), grace_s=0.1) as temporal,
        working(shop, Dispatch(temporal), shop.means([saying("Done.")])),
    ):
        await status(shop, run.id, "completed")


async def test_what_is_delivered_comes_before_and_after_what_is_overdue(
    shop: Workshop, shared_temporal: TemporalServer
) -> None:
    run = await shop.queue()
    async with by_temporal(shop, shared_temporal.address, a_task_queue(), grace_s=5) as temporal:
        with shop.hub.bell(temporal.bell) as rung:
            await temporal.announce([Ready(run.id, 0)])
            await asyncio.wait_for(rung.wait(), TIMEOUT_S)

            offers = [temporal.next(4) for _ in range(3)]
        temporal.let_go(run.id)

        assert offers == [Offer(ready_for_ms=5_000), Offer((run.id,)), None]


async def test_deliveries_that_lose_at_the_claim_end_and_the_winner_goes_on(
    shop: Workshop, shared_temporal: TemporalServer
) -> None:
    await hired(shop, shop.agent())
    run = await shop.queue()
    await shop.claim()
    task_queue, looks = a_task_queue(), Looks(shop)
    client = await shared_temporal.client()

    async with (
        by_temporal(shop, shared_temporal.address, task_queue, look=looks) as temporal,
        working(shop, Dispatch(temporal), shop.means([])),
    ):
        for nth in range(5):
            name = f"{run.id}-{nth}"
            await client.start_workflow("drive", run.id, id=name, task_queue=task_queue)
        await looks.until(5)

    assert {(found.over, found.again_s) for found in looks.found} == {(False, DRIVEN_S)}
    assert len(of(await shop.log(run.id), RunStarted)) == 1
    assert (await shop.row(run.id)).epoch == 1


async def test_an_outage_delays_runs_and_loses_none(
    shop: Workshop, temporal: TemporalServer
) -> None:
    await hired(shop, shop.agent())
    answers = Answers()
    held = Held(rest=saying("Done."))
    means = shop.means(Turns(held, Scripted([saying("Done.")]), Scripted([saying("Done.")])))

    async with (
        by_temporal(shop, temporal.address, a_task_queue(), answers=answers) as dispatcher,
        working(shop, Dispatch(dispatcher, dispatcher.announce), means),
    ):
        before = await shop.queue()
        await asyncio.wait_for(held.reached.wait(), TIMEOUT_S)
        temporal.kill()
        during = await shop.queue()
        await status(shop, during.id, "completed")
        held.go.set()
        await status(shop, before.id, "completed")
        assert answers.no.is_set()

        await temporal.start()
        await asyncio.wait_for(answers.yes.wait(), START_S)
        after = await shop.queue()
        await status(shop, after.id, "completed")
        described = await (await temporal.client()).get_workflow_handle(after.id).describe()

    assert described.workflow_type == "drive"
    for run in (before, during, after):
        assert of(await shop.log(run.id), RunResumed) == []


async def test_a_run_that_is_over_leaves_no_workflow_open(
    shop: Workshop, shared_temporal: TemporalServer
) -> None:
    await hired(shop, shop.agent())
    client = await shared_temporal.client()

    async with by_temporal(shop, shared_temporal.address, a_task_queue()) as temporal:
        dispatch = Dispatch(temporal, temporal.announce)
        async with working(shop, dispatch, shop.means([saying("Done.")])):
            run = await shop.queue()
            await status(shop, run.id, "completed")
            done = client.get_workflow_handle(run.id).result()
            await asyncio.wait_for(done, TIMEOUT_S)


async def test_a_workflow_that_takes_no_more_waking_costs_the_others_nothing(
    shop: Workshop, tmp_path: Path
) -> None:
    """Nobody works for days, and heralds go on to tell what is ready."""
    woken, other = await shop.queue(), await shop.queue()
    answers = Answers()
    server = TemporalServer(temporal_program(), tmp_path, maximumSignalsPerExecution=2)
    try:
        await server.start()
        async with by_temporal(shop, server.address, a_task_queue(), answers=answers) as temporal:
            told = [await temporal.announce([Ready(woken.id, 0)]) for _ in range(3)]
            told.append(await temporal.announce([Ready(woken.id, 0), Ready(other.id, 0)]))
            temporal.let_go(woken.id)
    finally:
        server.kill()

    assert told == [*[[woken.id]] * 3, [woken.id, other.id]]
    assert not answers.no.is_set()


async def test_what_is_behind_deliveries_that_lose_is_taken_without_waiting_for_a_bell(
    shop: Workshop, shared_temporal: TemporalServer
) -> None:
    await hired(shop, shop.agent())
    elsewhere = await shop.worker()
    taken = []
    for _ in range(3):
        taken.append(await shop.queue())
        await shop.claim(elsewhere)
    run = await shop.queue()

    async with by_temporal(shop, shared_temporal.address, a_task_queue()) as temporal:
        with shop.hub.bell(temporal.bell) as rung:
            for each in (*taken, run):
                rung.clear()
                await temporal.announce([Ready(each.id, 0)])
                await asyncio.wait_for(rung.wait(), TIMEOUT_S)
        means = shop.means([saying("Done.")])
        worker = Worker(
            await shop.worker(), 2, shop.ports, means, poll_s=NEVER_S, dispatcher=temporal
        )
        working = asyncio.create_task(worker.run())
        await status(shop, run.id, "completed")
        worker.drain()
        await asyncio.wait_for(working, TIMEOUT_S)


def test_a_lane_is_one_of_temporals_priorities() -> None:
    assert [priority_of(lane) for lane in (-100, -51, -50, -1, 0, 1, 50, 51, 100)] == [
        *(5, 5, 4, 4, 3, 2, 2, 1, 1)
    ]
