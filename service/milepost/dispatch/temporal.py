"""Temporal as the dispatcher: a workflow for each run, whose activities are our workers' slots.

Temporal is given ids of runs and how long to wait, and nothing else. While it is away, workers
look for themselves, as they do all the time for what it has left lying for too long.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.common import Priority
from temporalio.exceptions import TemporalError
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    Runtime,
    TelemetryConfig,
)
from temporalio.service import RetryConfig, RPCError, RPCStatusCode
from temporalio.worker import Worker

from milepost.dispatch.deliveries import Deliveries
from milepost.dispatch.port import Look, Offer, Ready, Slice
from milepost.dispatch.workflow import HEARTBEAT_S, DriveRun

BELL = "deliveries"
BEAT_S = HEARTBEAT_S / 4
OVERDUE_S = 1.0
ANSWER_S_MAX = 5.0
HEALTH_S = 2.0
AGAIN_S = 1.0
TELL_MAX = 16
CLOSE_S = 5.0
STICKY_S = 2.0

_ANY = Offer()


@dataclass(frozen=True, slots=True)
class TemporalAddress:
    """Where Temporal is, and what of it is ours."""

    target: str
    namespace: str
    task_queue: str


@dataclass(frozen=True, slots=True)
class Room:
    """What of this process Temporal may fill, and how long it may leave a run lying."""

    slots: int
    drain_s: float
    grace_s: float


class Temporal:
    """Delivers runs to this process' worker, and tells Temporal of runs that are ready.

    `chime` wakes the worker; `on_change` is told when Temporal answers (None), and why it no longer
    does, once each.
    """

    bell = BELL

    def __init__(
        self,
        address: TemporalAddress,
        room: Room,
        look: Look,
        *,
        chime: Callable[[str], None],
        on_change: Callable[[Exception | None], None],
    ) -> None:
        self._address = address
        self._room = room
        self._look = look
        self._chime = chime
        self._on_change = on_change
        self._deliveries = Deliveries(self._ring)
        self._client: Client | None = None
        self._answers: bool | None = None
        self._overdue_s = 0.0
        self._draining = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._telling = asyncio.Semaphore(TELL_MAX)

    # --- The worker's side ---

    def next(self, most: int) -> Offer | None:
        """Offer what was delivered; now and then what is overdue, and all while Temporal is away.

        Something is overdue if Temporal lost it, or has no worker for it: whoever is free takes it.
        """
        if not self._answers:
            return _ANY
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._overdue_s:
            self._overdue_s = now_s + OVERDUE_S
            if self._deliveries.offered:
                self._ring()  # They come with the next look.
            return Offer(ready_for_ms=round(self._room.grace_s * 1000))
        run_ids = self._deliveries.next(most)
        if self._deliveries.offered:
            self._ring()  # Those of now may all be lost at the claim.
        return Offer(run_ids) if run_ids else None

    def let_go(self, run_id: str) -> None:
        """End the run's delivery: Temporal is told how it stands."""
        self._deliveries.let_go(run_id)

    def drain(self) -> None:
        """Be delivered nothing more."""
        self._draining.set()
        self._deliveries.close()

    # --- The side of those who make runs ready ---

    async def announce(self, ready: Sequence[Ready]) -> list[str]:
        """Start the workflows of runs that are ready, or wake them; return those that it took."""
        client = self._client
        if client is None or not self._answers:
            self._ring()  # Nobody will deliver them: our worker is to look for itself.
            return []
        told = await asyncio.gather(*(self._tell(client, each) for each in ready))
        return [run_id for run_id in told if run_id is not None]

    async def _tell(self, client: Client, ready: Ready) -> str | None:
        async with self._telling:
            if not self._answers:
                return None
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    await client.start_workflow(
                        DriveRun.run,
                        ready.run_id,
                        id=ready.run_id,
                        task_queue=self._address.task_queue,
                        start_signal="wake",
                        priority=Priority(priority_key=priority_of(ready.lane)),
                    )
            except (TemporalError, TimeoutError) as error:
                if not _is_of_one_workflow(error):
                    self._answered(error)
                    return None
            return ready.run_id

    # --- The connection ---

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Keep the connection, whatever becomes of Temporal, and end it in order."""
        running = asyncio.create_task(self._run(), name="the dispatcher")
        try:
            yield
        finally:
            self.drain()
            # What was let go of is said before leaving: Temporal would wait for our heartbeats.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._idle.wait()
            running.cancel()
            await asyncio.wait({running}, timeout=CLOSE_S)

    async def _run(self) -> None:
        runtime = _quiet_runtime()
        while True:
            try:
                await self._serve(runtime)
            except Exception as error:  # Told, and tried again.
                self._answered(error)
            await asyncio.sleep(AGAIN_S)

    async def _serve(self, runtime: Runtime) -> None:
        async with asyncio.timeout(ANSWER_S_MAX):
            client = await Client.connect(
                self._address.target,
                namespace=self._address.namespace,
                runtime=runtime,
                # Who has to wait for an answer is told that there is none instead.
                retry_config=RetryConfig(max_retries=1, max_elapsed_time_millis=1_000),
            )
        await _ask(client)
        self._client = client
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(client))
            if self._room.slots and not self._draining.is_set():
                tasks.create_task(self._work(client))

    async def _watch(self, client: Client) -> None:
        """Ask again and again whether Temporal answers."""
        while True:
            try:
                await _ask(client)
            except (TemporalError, TimeoutError) as error:
                self._answered(error)
            else:
                self._answered(None)
            await asyncio.sleep(HEALTH_S)

    async def _work(self, client: Client) -> None:
        """Take deliveries until this process drains."""
        worker = Worker(
            client,
            task_queue=self._address.task_queue,
            workflows=[DriveRun],
            activities=[self.advance],
            max_concurrent_activities=self._room.slots,
            # A worker that knows a workflow may be gone: others replay it, which is short.
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=STICKY_S),
            graceful_shutdown_timeout=timedelta(seconds=self._room.drain_s + CLOSE_S),
        )
        self._idle.clear()
        try:
            async with worker:
                await self._draining.wait()
        finally:
            self._idle.set()

    @activity.defn(name="advance")
    async def advance(self, run_id: str) -> Slice:
        """Have the worker advance the run; say how it stands when it has let go of it.

        A delivery that Temporal calls back is not taken out of the worker's hands: who may go on
        with a run is for the database to say.
        """
        let_go = self._deliveries.deliver(run_id)
        while not let_go.done():
            activity.heartbeat()
            await asyncio.wait({let_go}, timeout=BEAT_S)
        return await self._look(run_id)

    def _ring(self) -> None:
        self._chime(BELL)

    def _answered(self, error: Exception | None) -> None:
        answers = error is None
        if answers != self._answers:
            self._answers = answers
            self._on_change(error)
            self._ring()


async def _ask(client: Client) -> None:
    """Return if Temporal answers and has the namespace."""
    question = DescribeNamespaceRequest(namespace=client.namespace)
    async with asyncio.timeout(ANSWER_S_MAX):
        await client.workflow_service.describe_namespace(question)


def _is_of_one_workflow(error: Exception) -> bool:
    """Say whether Temporal answers, and only this workflow takes no more: it was woken so often.

    Where nobody works for days, heralds wake it on and on. It has its slice ahead of it.
    """
    return isinstance(error, RPCError) and error.status is RPCStatusCode.INVALID_ARGUMENT


def priority_of(lane: int) -> int:
    """Return Temporal's priority of a lane: 3 is the ordinary one, and 1 goes first."""
    if lane == 0:
        return 3
    return (2 if lane <= 50 else 1) if lane > 0 else (4 if lane >= -50 else 5)


def _quiet_runtime() -> Runtime:
    """Return Temporal's machinery, which says by our own log what it has to say.

    That it is away is not among that: this is told once, and not with every attempt.
    """
    forwarding = LogForwardingConfig(logging.getLogger("temporalio"))
    config = LoggingConfig("error,temporalio_client=off", forwarding=forwarding)
    # Its heartbeats would tell Temporal of this machine, and nothing that a run needs.
    return Runtime(telemetry=TelemetryConfig(logging=config), worker_heartbeat_interval=None)
