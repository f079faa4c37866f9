"""The workflow: it has a run advanced until it is over, and knows nothing but its id."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Replayer, Worker

from milepost.dispatch import workflow
from milepost.dispatch.port import Slice
from milepost.dispatch.workflow import DriveRun
from tests.dispatch.dispatching import a_task_queue
from tests.dispatch.temporal_server import TemporalServer
from tests.runtime.workshop import TIMEOUT_S

OVER = Slice(over=True, again_s=0)
SOON = Slice(over=False, again_s=0.01)
LATER = Slice(over=False, again_s=3_600)


class Advancing:
    """An activity whose slices end as they are told to."""

    def __init__(self, *ends: Slice | Exception) -> None:
        self._ends = list(ends)
        self.advanced: list[str] = []
        self.parked = asyncio.Event()

    @activity.defn(name="advance")
    async def advance(self, run_id: str) -> Slice:
        """End as the next one is to."""
        self.advanced.append(run_id)
        end = self._ends.pop(0)
        if isinstance(end, Exception):
            raise end
        if end is LATER:
            self.parked.set()
        return end


@contextlib.asynccontextmanager
async def driving(
    server: TemporalServer, run_id: str, advancing: Advancing
) -> AsyncIterator[tuple[WorkflowHandle[DriveRun, None], Client]]:
    """Have the workflow of a run driven, with these slices."""
    client = await server.client()
    queue = a_task_queue()
    async with Worker(
        client, task_queue=queue, workflows=[DriveRun], activities=[advancing.advance]
    ):
        yield (
            await client.start_workflow(
                DriveRun.run, run_id, id=f"{run_id}-{queue}", task_queue=queue
            ),
            client,
        )


async def test_it_goes_on_slice_by_slice_until_the_run_is_over(
    shared_temporal: TemporalServer,
) -> None:
    advancing = Advancing(SOON, SOON, OVER)

    async with driving(shared_temporal, "run_1", advancing) as (handle, _):
        await asyncio.wait_for(handle.result(), TIMEOUT_S)

    assert advancing.advanced == ["run_1"] * 3


async def test_who_wakes_it_ends_its_wait(shared_temporal: TemporalServer) -> None:
    advancing = Advancing(LATER, OVER)

    async with driving(shared_temporal, "run_1", advancing) as (handle, _):
        await asyncio.wait_for(advancing.parked.wait(), TIMEOUT_S)
        await handle.signal(DriveRun.wake)
        await asyncio.wait_for(handle.result(), TIMEOUT_S)

    assert len(advancing.advanced) == 2


async def test_a_slice_that_broke_off_is_tried_again(shared_temporal: TemporalServer) -> None:
    advancing = Advancing(OSError("the database is away"), OVER)

    async with driving(shared_temporal, "run_1", advancing) as (handle, _):
        await asyncio.wait_for(handle.result(), TIMEOUT_S)

    assert len(advancing.advanced) == 2


async def test_after_many_slices_it_begins_anew_and_loses_none(
    shared_temporal: TemporalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "SLICES_MAX", 2)
    advancing = Advancing(SOON, SOON, SOON, OVER)

    async with driving(shared_temporal, "run_1", advancing) as (handle, client):
        await asyncio.wait_for(handle.result(), TIMEOUT_S)
        described = await client.get_workflow_handle(handle.id).describe()

    assert advancing.advanced == ["run_1"] * 4
    assert described.run_id != handle.first_execution_run_id


async def test_its_history_replays_and_holds_the_runs_id_and_nothing_else_of_it(
    shared_temporal: TemporalServer,
) -> None:
    advancing = Advancing(SOON, OVER)
    async with driving(shared_temporal, "run_1", advancing) as (handle, _):
        await asyncio.wait_for(handle.result(), TIMEOUT_S)
        history = await handle.fetch_history()

    await Replayer(workflows=[DriveRun]).replay_workflow(history)

    given = [
        payload.data
        for event in history.events
        for attributes in (
            event.workflow_execution_started_event_attributes,
            event.activity_task_scheduled_event_attributes,
        )
        for payload in attributes.input.payloads
    ]
    assert given == [b'"run_1"'] * 3
