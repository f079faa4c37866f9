"""An installation that things are to go wrong with: its servers, processes, clients and people."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.outages.crowd import Crowd
from tests.benchmarks.outages.waiting import until
from tests.dispatch.temporal_server import TemporalServer
from tests.stubs.directed_model import directed_model
from tests.stubs.webhook_receiver import Receiver, receiver
from tests.telemetry.collector import Collector, listening
from tests.torture import history, ledger, ledger_tools
from tests.torture.checks import violations
from tests.torture.clients import Doors, RefusedError, doors
from tests.torture.fleet import Fleet, Member
from tests.torture.ground import Ground, ground, members, url_of
from tests.torture.history import pid_of
from tests.torture.nursery import nursery
from tests.torture.plan import Plan
from tests.torture.proxy import Network, network
from tests.torture.timeline import Timeline

LONE_WAY = "a worker's way to Postgres"
COMMON_WAY = "an API's way to Postgres"
STAND_IN = "stood_in_for"
LOOK_S = 0.1
SETTLE_S = 180.0
NOBODY_S_MAX = 30.0

AGENTS = """
[[agents]]
name = "tortured"
model = "openai/directed"
instructions = "Do as you are told."
tools = ["charge", "reserve", "look_up", "block", "die"]

[[agents]]
name = "stood_in_for"
model = "openai/directed"
fallbacks = ["spare/directed"]
instructions = "Do as you are told."
tools = ["charge", "reserve", "look_up"]
"""


class UnfitError(Exception):
    """This machine lacks what the site needs."""


@dataclass(frozen=True, slots=True)
class Installation:
    """What is to be set up. `temporal` is the server's program, where Temporal dispatches."""

    name: str
    plan: Plan
    clients: int
    temporal: str | None = None


@dataclass(eq=False, slots=True)
class Neighbours:
    """Whom the service talks to besides its databases, and the ways to them."""

    to_model: Network
    to_receiver: Network
    to_collector: Network
    receiver: Receiver
    collector: Collector
    temporal: TemporalServer | None
    arrived: dict[str, float] = field(default_factory=dict)

    async def receive(self) -> None:
        """Note when a message about each run arrived first, until cancelled."""
        while True:
            message = await self.receiver.arrived.get()
            self.arrived.setdefault(message.body["data"]["run_id"], time.monotonic())


@dataclass(eq=False, slots=True)
class Site:
    """An installation at work."""

    folder: Path
    plan: Plan
    ground: Ground
    fleet: Fleet
    crowd: Crowd
    near: Neighbours
    chance: random.Random
    found: list[str] = field(default_factory=list)
    wanting: "asyncio.Task[None] | None" = None

    @property
    def doors(self) -> Doors:
        """The API processes."""
        return self.crowd.doors

    def apis(self) -> list[Member]:
        """Return the processes that answer."""
        return [member for member in self.fleet.members if url_of(member)]

    def workers(self) -> list[Member]:
        """Return the processes that only drive runs."""
        return [member for member in self.fleet.members if not url_of(member)]

    async def busiest(self) -> Member:
        """Return the worker that drives most of the clients' runs, once there is one."""
        await self.busy(*self.workers())
        return max(self.workers(), key=self._driven)

    async def busy(self, *workers: Member) -> None:
        """Return once one of the workers drives a client's run."""
        await until(lambda: any(map(self._driven, workers)), NOBODY_S_MAX)

    def _driven(self, member: Member) -> int:
        child = member.child
        return self.crowd.drivers()[child.pid] if child and child.alive else 0

    async def do_to(self, member: Member, trouble: Coroutine[Any, Any, None]) -> None:
        """Trouble a member, while nobody takes it for fallen."""
        await self.fleet.troubled(member, trouble)

    def dead_workers(self) -> int:
        """Return how many workers were declared dead so far."""
        return len(history.dead_workers(self.ground.url))

    async def leave(self) -> None:
        """Let the clients want nothing more, and finish what they have begun."""
        assert self.wanting
        self.crowd.stopping.set()
        await asyncio.wait({self.wanting}, timeout=SETTLE_S)

    async def keep_up(self) -> None:
        """Raise again who falls by himself, until cancelled."""
        while True:
            for member in self.fleet.fallen():
                await self.do_to(member, self.fleet.start(member))
            await asyncio.sleep(LOOK_S)

    async def decide(self) -> None:
        """Be the people whom the service waits for, until cancelled."""
        while True:
            asked = await self.doors.get("/v1/approvals?status=pending&limit=100")
            for question in asked["data"]:
                await self._answer(question)
            waiting = await self.doors.get("/v1/runs?status=waiting&limit=100")
            for run in waiting["data"]:
                # A run of nobody is left waiting: it is there to be deadly.
                if run["waiting_for"]["for"] == "operator" and run["id"] in self.crowd.followed:
                    await self._send_on(run["id"])
            await asyncio.sleep(LOOK_S)

    def judge(self) -> list[str]:
        """Look at every run's log and at all that the tools did; return what is wrong."""
        effects = ledger.read(self.folder / "ledger")
        found = violations(history.read(self.ground.url), effects, self.crowd.followed)
        return [*self.crowd.violations, *self.found, *found]

    async def _answer(self, asked: dict[str, Any]) -> None:
        """Say what came of a call that nobody knows of."""
        answer = self._came_of(asked["run_id"], asked["call_id"])
        body = {"decision": answer}
        if answer == "happened":
            body["result"] = "a person says that it is done"
        # If it is refused it was answered before, and only the word of that was lost.
        with suppress(RefusedError):
            await self.doors.post(f"/v1/approvals/{asked['id']}/decision", body)
            self.crowd.told["a person said what came of a call"] += 1

    async def _send_on(self, run_id: str) -> None:
        with suppress(RefusedError):
            await self.doors.post(f"/v1/runs/{run_id}/retry", {})
            self.crowd.told["an operator sent a run on"] += 1

    def _came_of(self, run_id: str, call_id: str) -> str:
        """Say that a call did not happen only if it can't any more."""
        done = ledger.by_call(ledger.read(self.folder / "ledger"))
        followed = self.crowd.followed.get(run_id)
        worker = followed.seen.began.get(call_id) if followed else None
        if (run_id, call_id) in done or worker is None:
            return "happened"
        lives = [life for life in self.fleet.timeline.lives if life.pid == pid_of(worker)]
        return "not_happened" if lives and all(life.ended_s for life in lives) else "happened"


@asynccontextmanager
async def site(installation: Installation, folder: Path) -> AsyncIterator[Site]:
    """Give an installation in `folder` with clients at work. Raises `UnfitError`."""
    plan = installation.plan
    async with AsyncExitStack() as stack:
        on = await stack.enter_async_context(ground(plan, folder))
        if on is None:
            raise UnfitError("there is no Postgres, or no Valkey, on this machine")
        near, environment = await _neighbours(stack, folder, installation.temporal)
        forks = await stack.enter_async_context(nursery(folder))
        fleet = Fleet(forks, Timeline(), members(plan, on, "", folder))
        for member in fleet.members:
            member.environment |= environment
            _send_by_common_ways(member, on)
        stack.push_async_callback(fleet.close)
        await fleet.start_all()
        urls = [url for member in fleet.members if (url := url_of(member))]
        chance = random.Random(f"{plan.seed} outages")
        opened = await stack.enter_async_context(doors(urls, chance))
        body = {"url": near.to_receiver.url, "events": ["run.completed"]}
        await opened.post("/v1/webhooks", body)
        crowd = Crowd(opened, plan.seed, installation.clients)
        at_work = Site(folder, plan, on, fleet, crowd, near, chance)
        async with _working(at_work):
            yield at_work


async def _neighbours(
    stack: AsyncExitStack, folder: Path, temporal: str | None
) -> tuple[Neighbours, dict[str, str]]:
    """Bring up whom the service talks to; return them, and how the service is told of them."""
    model = await stack.enter_async_context(directed_model())
    there = await stack.enter_async_context(receiver())
    collector = stack.enter_context(listening())
    to_model, to_receiver, to_collector = [
        await stack.enter_async_context(network(url))
        for url in (model.base_url, there.url, collector.endpoint)
    ]
    (folder / "outage_agents.toml").write_text(AGENTS)
    (folder / "spare.toml").write_text(
        f'[providers.spare]\nwire = "openai"\nbase_url = "{model.base_url}"\nfree = true\n'
    )
    tools = [Path(ledger_tools.__file__), Path(__file__).with_name("deadly_tools.py")]
    environment = {
        "OPENAI_BASE_URL": to_model.url,
        "OTEL_EXPORTER_OTLP_ENDPOINT": to_collector.url,
        "MILEPOST_AGENTS": str(folder / "outage_agents.toml"),
        "MILEPOST_PROVIDERS": str(folder / "spare.toml"),
        "MILEPOST_TOOLS": ",".join(map(str, tools)),
        "MILEPOST_EGRESS_ALLOW": "127.0.0.1",
    }
    near = Neighbours(to_model, to_receiver, to_collector, there, collector, None)
    if temporal:
        near.temporal = TemporalServer(temporal, folder)
        stack.callback(near.temporal.kill)
        await near.temporal.start()
        environment |= {
            "MILEPOST_DISPATCHER": "temporal",
            "MILEPOST_TEMPORAL_ADDRESS": near.temporal.address,
        }
    return near, environment


def _send_by_common_ways(member: Member, on: Ground) -> None:
    """Have all but one worker reach Postgres by one way, and everybody reach Redis itself."""
    if on.redis is None:
        return
    if member.network != LONE_WAY:
        member.network = COMMON_WAY
        member.environment["MILEPOST_DATABASE_URL"] = on.networks[COMMON_WAY].url
    member.environment["MILEPOST_REDIS_URL"] = on.redis.url


@asynccontextmanager
async def _working(at_work: Site) -> AsyncIterator[None]:
    """Let clients, people and an orchestrator act while the block lasts."""
    others = [at_work.crowd.run(), at_work.keep_up(), at_work.decide(), at_work.near.receive()]
    tasks = [asyncio.create_task(other) for other in others]
    at_work.wanting = tasks[0]
    try:
        await asyncio.sleep(0)  # The clients come in.
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
