"""Workers that either dispatcher tells what to do, and nothing else does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from uuid import uuid4

from milepost.dispatch.port import Look
from milepost.dispatch.temporal import Room, Temporal, TemporalAddress
from milepost.live.hub import QUEUE_BELL
from milepost.runtime.means import Means
from milepost.worker.herald import Herald
from milepost.worker.shifts import BY_SQL, Dispatch
from milepost.worker.slices import slice_of
from milepost.worker.worker import Worker
from tests.runtime.workshop import TIMEOUT_S, Workshop

NEVER_S = 3_600.0
SLOTS = 4

Dispatching = Callable[[Workshop], AbstractAsyncContextManager[Dispatch]]


@contextlib.asynccontextmanager
async def by_sql(_: Workshop) -> AsyncIterator[Dispatch]:
    """Have the queue dispatch."""
    yield BY_SQL


class Answers:
    """Takes note of whether Temporal answers."""

    def __init__(self) -> None:
        self.yes = asyncio.Event()
        self.no = asyncio.Event()

        self.error: Exception | None = None

    def __call__(self, error: Exception | None) -> None:
        """Take what was found out."""
        self.error = error
        now, before = (self.yes, self.no) if error is None else (self.no, self.yes)
        before.clear()
        now.set()


def a_task_queue() -> str:
    """Return a name that no other test has."""
    return f"milepost-{uuid4().hex}"


@contextlib.asynccontextmanager
async def by_temporal(
    shop: Workshop,
    address: str,
    task_queue: str,
    *,
    answers: Answers | None = None,
    grace_s: float = NEVER_S,
    look: Look | None = None,
) -> AsyncIterator[Temporal]:
    """Have Temporal dispatch; what it leaves lying, nobody else takes unless told otherwise."""
    answers = answers or Answers()
    temporal = Temporal(
        TemporalAddress(address, "default", task_queue),
        Room(slots=SLOTS, drain_s=1, grace_s=grace_s),
        look or partial(slice_of, shop.ports),
        chime=shop.hub.chime,
        on_change=answers,
    )
    async with temporal.connected():
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await answers.yes.wait()
        except TimeoutError:
            raise AssertionError(f"Temporal did not answer: {answers.error!r}") from None
        yield temporal


@contextlib.asynccontextmanager
async def working(shop: Workshop, dispatch: Dispatch, means: Means) -> AsyncIterator[Worker]:
    """Have a worker and its herald at work until the test is done with them."""
    worker_id = await shop.worker()
    worker = Worker(worker_id, SLOTS, shop.ports, means, dispatcher=dispatch.dispatcher)
    async with heralding(shop, worker_id, dispatch):
        task = asyncio.create_task(worker.run())
        try:
            yield worker
            dispatch.dispatcher.drain()
            worker.drain()
            await asyncio.wait_for(task, TIMEOUT_S)
        finally:
            task.cancel()


@contextlib.asynccontextmanager
async def heralding(shop: Workshop, worker_id: str, dispatch: Dispatch) -> AsyncIterator[None]:
    """Have the dispatcher told of what is ready, if it has to be told."""
    if dispatch.announce is None:
        yield
        return
    task = asyncio.create_task(Herald(worker_id, shop.ports, dispatch.announce).run())
    shop.hub.ring(QUEUE_BELL)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
