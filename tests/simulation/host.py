"""A machine on which the service runs: store, hub and worker, and what clients ask of it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from milepost.api.deciding import Deciding
from milepost.core.errors import MilepostError
from milepost.core.ids import format_id
from milepost.live.hub import QUEUE_BELL, Hub
from milepost.providers.catalog import Catalog
from milepost.providers.pricing import Pricing
from milepost.runtime.artifacts import Shelf
from milepost.runtime.journal import Ports
from milepost.runtime.judging import Judging
from milepost.runtime.means import Lease, Means
from milepost.runtime.stored_children import StoredChildren
from milepost.runtime.tenant_policies import TenantPolicies
from milepost.store import queue
from milepost.store.blobs import DirectoryBlobs
from milepost.store.store import Store
from milepost.telemetry.logs import logger
from milepost.tools import Absent, Found, Invoker, Registry, ToolContext, ToolThreads, Unknown
from milepost.worker.scheduler import Scheduler
from milepost.worker.sweeper import Sweeper
from milepost.worker.turns import take_turn
from milepost.worker.worker import Worker
from tests.simulation.agents import Actor, Plan
from tests.simulation.engine import SimulatedEngine
from tests.simulation.lease import HeldLease
from tests.simulation.loop import Process
from tests.simulation.storm import LEASE_S
from tests.simulation.tools import REGISTRY
from tests.simulation.wire import Wire

if TYPE_CHECKING:
    from milepost.runtime.toolsets import Toolsets
    from milepost.telemetry.metrics import Metrics
    from tests.simulation.world import World

T = TypeVar("T")

SLOTS = 3
QUEUE_MAX = 100
POLL_S = 1.0
AGAIN_S = 0.3

_ROOMS = ToolThreads(1)  # None is ever started: all tools are coroutines.
_MODELS = Catalog({"simulated": Actor()})
_PRICING = Pricing(free=frozenset({"simulated"}))
_LOG = logger("sweeper")


class _Uncounted:
    """Counts nothing: making the real counters takes longer than a simulation."""

    def observe_append(self, *_: object) -> None:
        """Count nothing."""

    def observe_ending(self, *_: object) -> None:
        """Count nothing."""

    def count_schedule(self, *_: object) -> None:
        """Count nothing."""


class _Tools:
    """The tools of every tenant."""

    async def of(self, _: str) -> Registry:
        """Return them."""
        return REGISTRY


class Host:
    """A machine from its start to its end; the next one in its place has another name."""

    def __init__(self, world: "World", name: str, skew_ms: int) -> None:
        self.world = world
        self.name = name
        self.skew_ms = skew_ms
        self.main = Process(name, self)
        self.thread = Process(f"{name}'s lease", self)
        self.worker_id = ""
        self.lease: HeldLease | None = None
        self.worker: Worker | None = None
        self.is_draining = False
        self.waiting: set[asyncio.Future[Any]] = set()
        self.engine = SimulatedEngine(world.database, world.loop, world.weather, self.main)
        self.store = Store(self.engine, queue_max=QUEUE_MAX)
        self.hub = Hub()
        self.hub.link = Wire(self)
        self.ports = Ports(
            self.store,
            self.hub,
            self.now_ms,
            self.new_id,
            cast("Metrics", _Uncounted()),
            Shelf(self.store, DirectoryBlobs(Path("unused"))),
        )
        self.policies = TenantPolicies(self.store, clock=self.now_ms)
        tools = cast("Toolsets", _Tools())
        judging = Judging(self.store, tools, self.policies.of)
        self.deciding = Deciding(self.ports, judging, self.policies)

    def start(self) -> None:
        """Begin to work."""
        loop = self.world.loop
        loop.spawn(self.main, self.store.run())
        loop.spawn(self.main, self._work())
        if self.world.has_schedules:
            loop.spawn(self.main, Scheduler(self.ports, queue_max=QUEUE_MAX, poll_s=POLL_S).run())

    def drain(self) -> None:
        """Hand everything back, and end."""
        self.is_draining = True
        if self.worker:
            self.worker.drain()

    @property
    def is_up(self) -> bool:
        """Say whether one can connect to it: who is frozen does not answer, but listens."""
        return self.main.alive and not self.is_draining

    # --- Its clock, and its ids ---

    def now_ms(self) -> int:
        """Return what the machine takes for the time."""
        return int(self.world.now_ms()) + self.skew_ms

    def new_id(self, prefix: str) -> str:
        """Return a new id."""
        return format_id(prefix, self.now_ms(), self.world.random.getrandbits(80))

    # --- What clients ask of it ---

    def ask(self, act: "Callable[[Host], Awaitable[T]]") -> "asyncio.Future[T]":
        """Have the host do something; the connection breaks where it dies meanwhile."""
        answer: asyncio.Future[T] = self.world.loop.create_future()
        if not self.main.alive:
            answer.set_exception(ConnectionResetError(f"{self.name} is gone"))
            return answer
        self.waiting.add(answer)
        answer.add_done_callback(self.waiting.discard)
        self.world.loop.spawn(self.main, self._serve(act, answer))
        return answer

    async def _serve(
        self, act: "Callable[[Host], Awaitable[T]]", answer: "asyncio.Future[T]"
    ) -> None:
        try:
            result = await act(self)
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
        else:
            if not answer.done():
                answer.set_result(result)

    # --- Its worker: what a shift is made of, but for the lease's thread ---

    async def _work(self) -> None:
        while not self.is_draining:
            try:
                await self._shift()
            except MilepostError:
                await asyncio.sleep(AGAIN_S)

    async def _shift(self) -> None:
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        worker_id = self.new_id("wrk")
        lease = HeldLease(self, worker_id, lost, LEASE_S)
        lease.start()
        self.worker_id, self.lease = worker_id, lease
        self.world.watch.hosts[worker_id] = self.name
        self.world.tell("a shift", self.name, worker_id)
        self.world.loop.spawn(self.thread, lease.hold())
        self.worker = Worker(
            worker_id, SLOTS, self.ports, self._means(lease), poll_s=POLL_S, strays_s=2.0
        )
        if self.is_draining:
            self.worker.drain()
        working = asyncio.create_task(self.worker.run())
        sweeping = asyncio.create_task(self._sweep(Sweeper(self.ports, lease)))
        try:
            either: list[asyncio.Future[Any]] = [working, lost]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not lost.done():
                working.result()
        finally:
            for task in (working, sweeping):
                task.cancel()
            await asyncio.wait([working, sweeping])
            lease.stop()
            self.worker = None
            await self._dismiss(worker_id)

    async def _dismiss(self, worker_id: str) -> None:
        with suppress(MilepostError):
            await self.store.write(queue.dismiss(worker_id))
        self.hub.ring(QUEUE_BELL)

    async def _sweep(self, sweeper: Sweeper) -> None:
        """Do what the sweeper's loops do, when the weather wants."""
        turns = (sweeper.tick, sweeper.sweep, sweeper.tick, sweeper.reunite)
        turn = 0
        while True:
            await asyncio.sleep(self.world.weather.rest_s())
            await take_turn(turns[turn % len(turns)](), None, _LOG)
            turn += 1

    def _means(self, lease: Lease) -> Means:
        return Means(
            ports=self.ports,
            providers=_MODELS,
            tools=REGISTRY,
            invoker=Invoker(_ROOMS, may_start=lease.check),
            pricing=_PRICING,
            lease=lease,
            drain_s=1.0,
            children=StoredChildren(self.ports),
            standing_of=self.store.outlasting(self.policies.of),
        )

    # --- What tools and models find around them ---

    @property
    def plans(self) -> dict[int, Plan]:
        """What runs are to do, by number."""
        return self.world.plans

    async def think(self, plan: int, step: int, asides: tuple[str, ...]) -> bool:
        """Take a model's time; say whether it has an answer."""
        self.world.watch.thought(self, plan, step, asides)
        await asyncio.sleep(self.world.weather.thought_s())
        return not self.world.weather.thought_fails()

    async def act(self, context: ToolContext, number: int) -> str:
        """Take a tool's time, and act in the world in the middle of it."""
        self.world.watch.began(self, context, number)
        await asyncio.sleep(self.world.weather.work_s())
        self.world.watch.acted(self, context)
        await asyncio.sleep(self.world.weather.work_s())
        return f"{context.tool} {number}"

    async def look_up(self, key: str) -> Found | Absent | Unknown:
        """Say whether a call with this key has acted."""
        await asyncio.sleep(self.world.weather.work_s())
        return self.world.watch.looked_up(key)
