"""The faults of a campaign: drawn from its seed, one after the other, some of them at once."""

import asyncio
import random
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError

from tests.torture.fleet import Fleet, Member
from tests.torture.ground import Ground
from tests.torture.plan import FaultName, Plan
from tests.torture.proxy import FAULTS
from tests.torture.timeline import Timeline

DOWN_S_MAX = 1.5
NOTHING_TO_DO_S = 0.1
ACHIEVED_MIN = 8
PATIENCE_S = 10.0

Fault = Coroutine[Any, Any, None]


@dataclass(eq=False, slots=True)
class Storm:
    """Breaks what it was given until told to stop, and leaves nothing broken behind.

    `progress` counts what was achieved: between two faults something has to get done, however
    slow the machine is, or nothing would be tried but starts.
    """

    plan: Plan
    fleet: Fleet
    ground: Ground
    chance: random.Random
    progress: Callable[[], int]
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _at_once: set[str] = field(default_factory=set)

    @property
    def timeline(self) -> Timeline:
        """Where faults are written down."""
        return self.fleet.timeline

    @property
    def missing(self) -> dict[FaultName, int]:
        """How many faults of each kind there are still to be."""
        planned = self.plan.faults.items()
        counted = self.timeline.faults
        return {name: count - counted[name] for name, count in planned if count > counted[name]}

    async def run(self) -> None:
        """Break one thing after the other until stopped; return when all is whole again."""
        async with asyncio.TaskGroup() as faults:
            while not self.stopping.is_set():
                for fallen in self.fleet.fallen():
                    faults.create_task(self.fleet.troubled(fallen, self.fleet.start(fallen)))
                fault = self._draw()
                if fault is None:
                    await asyncio.sleep(NOTHING_TO_DO_S)
                    continue
                faults.create_task(fault)
                await self._rest()

    async def _rest(self) -> None:
        enough = self.progress() + ACHIEVED_MIN
        await self._wait(self.chance.uniform(0.2, 1.8) * self.plan.gap_s)
        until_s = time.monotonic() + PATIENCE_S
        while (
            self.progress() < enough and time.monotonic() < until_s and not self.stopping.is_set()
        ):
            await self._wait(NOTHING_TO_DO_S)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return

    def _draw(self) -> Fault | None:
        """Return a fault that can be made now, those that are missing first."""
        weights = dict(self.missing) or dict(self.plan.faults)
        while weights:
            [name] = self.chance.choices(list(weights), list(weights.values()))
            if fault := self._make(name):
                return fault
            del weights[name]
        return None

    def _make(self, name: FaultName) -> Fault | None:
        makers: dict[FaultName, Callable[[], Fault | None]] = {
            "kill": lambda: self._to_a_member(self._kill),
            "drain": lambda: self._to_a_member(self._drain),
            "pause": lambda: self._to_a_member(self._pause),
            "database restart": lambda: self._alone("database", self._restart_database),
            "redis kill": lambda: self._alone("redis", self._kill_redis),
            "redis flush": lambda: self._alone("redis", self._flush_redis),
            "partition": self._partition,
        }
        return makers[name]()

    def _to_a_member(self, trouble: Callable[[Member], Fault]) -> Fault | None:
        """Trouble a member, unless that would leave nobody of its kind."""
        idle = self.fleet.idle()
        able = [member for member in idle if self._is_dispensable(member, idle)]
        if not able:
            return None
        member = self.chance.choice(able)
        return self.fleet.troubled(member, trouble(member))

    def _is_dispensable(self, member: Member, idle: list[Member]) -> bool:
        kind = member.arguments[0]
        fellows = [each for each in self.fleet.members if each.arguments[0] == kind]
        return len(fellows) == 1 or sum(each.arguments[0] == kind for each in idle) > 1

    async def _kill(self, member: Member) -> None:
        self.timeline.count("kill", member.name)
        await self.fleet.kill(member)

    async def _drain(self, member: Member) -> None:
        self.timeline.count("drain", member.name)
        await self.fleet.drain(member)

    async def _pause(self, member: Member) -> None:
        seconds = self.plan.lease_s * self.chance.uniform(1.1, 2.2)
        self.timeline.count("pause", f"{member.name} for {seconds:.1f} s")
        await self.fleet.pause(member, seconds)

    def _alone(self, what: str, fault: Callable[[], Fault]) -> Fault | None:
        return None if what in self._at_once else self._exclusive(what, fault)

    async def _exclusive(self, what: str, fault: Callable[[], Fault]) -> None:
        self._at_once.add(what)
        try:
            await fault()
        finally:
            self._at_once.discard(what)

    async def _restart_database(self) -> None:
        assert self.ground.database
        seconds = self.chance.uniform(0.0, DOWN_S_MAX)
        self.timeline.count("database restart", f"away for {seconds:.1f} s")
        with self.timeline.during(self.timeline.outages):
            await self.ground.database.crash(signal.SIGQUIT)
            await asyncio.sleep(seconds)
            await self.ground.database.start()

    async def _kill_redis(self) -> None:
        assert self.ground.redis
        seconds = self.chance.uniform(0.0, DOWN_S_MAX)
        self.timeline.count("redis kill", f"away for {seconds:.1f} s")
        await self.ground.redis.crash(signal.SIGKILL)
        await asyncio.sleep(seconds)
        await self.ground.redis.start()

    async def _flush_redis(self) -> None:
        assert self.ground.redis
        client = redis.asyncio.Redis.from_url(self.ground.redis.url)
        try:
            await client.flushall()
        except RedisError as error:
            self.timeline.note(f"redis could not be flushed: {error}")
        else:
            self.timeline.count("redis flush", "everything")
        finally:
            await client.aclose()

    def _partition(self) -> Fault | None:
        free = [name for name in self.ground.networks if name not in self._at_once]
        if not free:
            return None
        name = self.chance.choice(free)
        return self._exclusive(name, lambda: self._break(name))

    async def _break(self, name: str) -> None:
        fault = self.chance.choice(FAULTS)
        seconds = self.chance.uniform(0.5, self.plan.partition_s_max)
        reset = self.chance.random() < 0.5
        self.timeline.count("partition", f"{name}: {fault} for {seconds:.1f} s, {reset=}")
        touched = [member for member in self.fleet.members if member.network == name]
        # A process that is born meanwhile notices, too.
        troubles = [member.troubles for member in touched]
        with self.timeline.during(*troubles):
            await self.ground.networks[name].fail(fault, seconds, reset=reset)
