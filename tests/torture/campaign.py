"""One campaign: a service of several processes, its clients and people, faults, and the checks."""

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp

from tests.stubs.directed_model import directed_model
from tests.stubs.webhook_receiver import Receiver, receiver
from tests.torture import aftermath, history, ledger
from tests.torture.aftermath import Held, Roll
from tests.torture.blocking import blocked, note
from tests.torture.checks import untimely, untold, violations
from tests.torture.clients import doors
from tests.torture.errands import errand, script
from tests.torture.fleet import Fleet
from tests.torture.ground import Ground, ground, members, url_of
from tests.torture.load import Load
from tests.torture.nursery import nursery
from tests.torture.people import Answer, People
from tests.torture.plan import Plan
from tests.torture.punctuality import watched
from tests.torture.requeue import Requeue, requeues
from tests.torture.storm import Storm
from tests.torture.timeline import Timeline
from tests.torture.times import Times

LOOK_S = 0.2
BACK_S = 20.0
REST_S = 30.0
PROBE_S = 5.0
REFUSALS = 5
BLOCKED_LEASES = 1.6
BLOCKS = 2
VIOLATIONS_MAX = 50
# What a renewal of a lease can be late by is two thirds of it; another thread's lateness tells.
LATE = 0.25

_RUN_ID = re.compile(r"run_\w+")


@dataclass(slots=True)
class Result:
    """What came of a campaign. `untried` says why it did not begin."""

    plan: Plan
    origin: str = ""
    untried: str = ""
    seconds: float = 0.0
    runs: int = 0
    resumes: int = 0
    retried: int = 0
    decided: int = 0
    effects: int = 0
    events: int = 0
    times: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    requeues: list[Requeue] = field(default_factory=list)
    timeline: Timeline = field(default_factory=Timeline)
    violations: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


async def campaign(plan: Plan, folder: Path) -> Result:
    """Torture a service in `folder` until the plan is fulfilled or its time is up."""
    async with AsyncExitStack() as stack:
        on = await stack.enter_async_context(ground(plan, folder))
        if on is None:
            return Result(plan, untried="there is no Postgres, or no Valkey, on this machine")
        model = await stack.enter_async_context(directed_model())
        told = await stack.enter_async_context(receiver())
        forks = await stack.enter_async_context(nursery(folder))
        fleet = Fleet(forks, Timeline(), members(plan, on, model.base_url, folder))
        stack.push_async_callback(fleet.close)
        await fleet.start_all()
        urls = [url for member in fleet.members if (url := url_of(member))]
        opened = await stack.enter_async_context(doors(urls, random.Random(f"{plan.seed} doors")))
        load = Load(plan, opened, block_s=plan.lease_s * BLOCKED_LEASES)
        siege = Siege(plan, folder, on, fleet, load, told, Times(on.url, opened, plan.seed))
        try:
            return await siege.run()
        finally:
            (folder / "timeline").write_text("\n".join(fleet.timeline.told(0, time.time())) + "\n")


@dataclass(eq=False, slots=True)
class Siege:
    """A campaign whose processes are up."""

    plan: Plan
    folder: Path
    ground: Ground
    fleet: Fleet
    load: Load
    told: Receiver
    times: Times
    violations: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    _born: dict[str, Held] = field(default_factory=dict)

    async def run(self) -> Result:
        """Work in peace first, then through the storm, and see every run out."""
        began_s = time.monotonic()
        people = People(self.load.doors, random.Random(f"{self.plan.seed} people"), self._came_of)
        for member in self.fleet.members:
            assert member.child
            self._born[member.name] = aftermath.held_by(member.child.pid)
        # Some of its messages are refused at first, and have to be sent again.
        self.told.answers += [503] * REFUSALS
        await self.load.open_books(self.told.url)
        await self.load.open_sessions()
        await self.times.open()
        deciding = asyncio.create_task(people.run())
        working = asyncio.create_task(self.load.run())
        try:
            await self._be_quiet()
            await self.load.open_batch()
            setting = asyncio.create_task(self.times.run())
            try:
                await self._storm(began_s, (deciding, working, setting))
            finally:
                await _end(setting)
            self.load.stopping.set()
            await asyncio.wait({working}, timeout=self.plan.settle_s)
            await self._see_all_well()
        finally:
            await _end(deciding, working)
        return self._judge(people, time.monotonic() - began_s)

    async def _be_quiet(self) -> None:
        """See that nobody is declared dead whose clock is wrong, or whose event loop stands still.

        Before the first fault that cannot have another reason, but for a machine that gives threads
        their turn so late that leases lapse.
        """
        blocking = [
            replace(
                errand(self.plan.seed, 0, block_s=0.0),
                key=f"torture-{self.plan.seed}-block-{number}",
                said=script("block", random.Random(number), block_s=self.load.block_s),
                kind="block", session=None, cancel_s=None, delay_s=None, deadline_s=None,
            )
            for number in range(BLOCKS)
        ]  # fmt: skip
        with watched() as lateness:
            async with asyncio.timeout(self.plan.settle_s):
                await asyncio.gather(*map(self.load.do, blocking))
            dead = await asyncio.to_thread(history.dead_workers, self.ground.url)
        said = f"{len(dead)} workers were declared dead though nobody had touched them"
        if lateness.worst_s > self.plan.lease_s * LATE:
            said += f"; but threads here got their turn up to {lateness.worst_s:.1f} s late"
            self.remarks.append(said)
        elif dead:
            self.violations.append(f"{said}: {dead}")

    async def _storm(self, began_s: float, others: tuple[asyncio.Task[None], ...]) -> None:
        """Break things until enough was broken and done, or the time is up."""
        chance = random.Random(f"{self.plan.seed} storm")
        storm = Storm(self.plan, self.fleet, self.ground, chance, lambda: self.load.achieved)
        storming = asyncio.create_task(storm.run())
        until_s = began_s + self.plan.minutes * 60
        try:
            while time.monotonic() < until_s and not self._is_enough(storm):
                done, _ = await asyncio.wait({storming, *others}, timeout=LOOK_S,
                                             return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
                if done:
                    break
            storm.stopping.set()
            await storming
        finally:
            await _end(storming)

    async def _see_all_well(self) -> None:
        """See that nothing is left to be done, and that every process does its part again."""
        roll = Roll(self.load.doors, self.plan.seed)
        back_s = self.plan.lease_s + BACK_S
        await self._see(self._without_lease, back_s)
        await self._see(lambda: self._unheard(roll), back_s)
        await self._see(self._left, self.plan.settle_s)
        await self._see(self._unwell, REST_S)

    async def _see(self, look: Callable[[], Awaitable[list[str]]], within_s: float) -> None:
        """Look until nothing is wrong; what still is when the time is up is a violation."""
        until_s = time.monotonic() + within_s
        while wrong := await look():
            if time.monotonic() > until_s:
                self.violations += wrong
                return
            await asyncio.sleep(LOOK_S)

    async def _unheard(self, roll: Roll) -> list[str]:
        drivers = aftermath.drivers_of(self.fleet.members)
        await roll.wave(len(drivers))
        return list(aftermath.unheard(roll.heard, drivers, self.load.doors.urls))

    async def _left(self) -> list[str]:
        return aftermath.left(await asyncio.to_thread(history.passing, self.ground.url))

    async def _unwell(self) -> list[str]:
        members, redis = self.fleet.members, self.ground.redis is not None
        timeout = aiohttp.ClientTimeout(total=PROBE_S)
        # Not the clients' own: connections that are kept for the next request are files, too.
        async with aiohttp.ClientSession(timeout=timeout) as http:
            found = [await aftermath.condition_of(member, http) for member in members]
        connections = await asyncio.to_thread(history.connections, self.ground.url)
        return [
            *aftermath.crowded(connections, len(members)),
            *(
                said
                for member, condition in zip(members, found, strict=True)
                for said in aftermath.unwell(
                    condition, self._born[member.name],
                    slots=aftermath.slots_of(member), redis=redis,
                )
            ),
        ]  # fmt: skip

    async def _without_lease(self) -> list[str]:
        """Return the members whose process has no worker that is alive, as far as is known."""
        ids = await asyncio.to_thread(history.living_workers, self.ground.url)
        working = {history.pid_of(worker) for worker in ids}
        return [
            f"{member.name} lives, and has no lease any more"
            for member in self.fleet.members
            if member.child is None or member.child.pid not in working
        ]

    def _is_enough(self, storm: Storm) -> bool:
        if len(self.load.violations) > VIOLATIONS_MAX:
            return True
        return (
            self.load.done >= self.plan.runs
            and self.load.resumes >= self.plan.resumes
            and not storm.missing
        )

    def _came_of(self, run_id: str, call_id: str) -> Answer:
        """Say what came of a call whose worker was lost: that it did not happen only if it can't.

        A worker that is only frozen may still do it.
        """
        done = ledger.by_call(ledger.read(self.folder / "ledger"))
        followed = self.load.followed.get(run_id)
        worker = followed and followed.seen.began.get(call_id)
        if (run_id, call_id) in done or not worker:
            return "happened"
        life = self.fleet.timeline.life_of(worker, time.time())
        return "not_happened" if life and life.ended_s is not None else "happened"

    def _judge(self, people: People, seconds: float) -> Result:
        timeline, load = self.fleet.timeline, self.load
        after = history.read(self.ground.url)
        effects = ledger.read(self.folder / "ledger")
        found = [
            *violations(after, effects, load.followed),
            *untimely(after, self.times.known, self.times.unsure),
            *untold(after, self._told()),
        ]
        self._keep_logs(after, [*load.violations, *found])
        note(blocked(after, timeline), timeline)
        return Result(
            plan=self.plan,
            origin=self.ground.origin,
            seconds=seconds,
            runs=load.done,
            resumes=load.resumes,
            retried=people.retried,
            decided=len(people.decided),
            effects=len(effects),
            times=len(self.times.known),
            events=sum(len(run.log) for run in after.runs.values()),
            faults=Counter(timeline.faults),
            kinds=load.kinds,
            statuses=Counter(run.status for run in after.runs.values()),
            answers=load.doors.answers,
            requeues=requeues(after, timeline, self.plan),
            timeline=timeline,
            remarks=self.remarks,
            violations=[
                *self.violations, *load.violations, *people.violations, *self.fleet.surprises,
                *(
                    f"clients were told {said!r}, {count} times"
                    for said, count in load.doors.answers.items()
                    if said.startswith("500")
                ),
                *found,
            ],
        )  # fmt: skip

    def _told(self) -> set[tuple[str, str]]:
        """Return the runs and ends that the webhook was told of."""
        arrived = self.told.arrived
        bodies = [arrived.get_nowait().body for _ in range(arrived.qsize())]
        return {(body["data"]["run_id"], body["type"]) for body in bodies}

    def _keep_logs(self, after: history.History, said: list[str]) -> None:
        """Write down the logs of the runs that are complained of, for whoever looks for the reason.

        The database is gone by then.
        """
        with (self.folder / "unsound").open("w") as file:
            for run_id in sorted({found for each in said for found in _RUN_ID.findall(each)}):
                for entry in after.runs[run_id].log if run_id in after.runs else ():
                    file.write(f"{run_id} {entry}\n")


async def _end(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks that go on; raise what ended one before."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()):
            raise error
