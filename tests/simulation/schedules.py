"""Schedules that come during a simulation, and people who move, pause and rename them meanwhile."""

import asyncio
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Literal

from milepost.api.access import Principal
from milepost.api.new_schedules import ScheduleChange, ScheduleCreate, edited, schedule_of
from milepost.api.replays import once
from milepost.core.errors import ConflictError
from milepost.live.hub import SCHEDULES_BELL
from milepost.store import schedules
from milepost.store.schedules import Overlap, ScheduleRow
from milepost.store.work import Work
from tests.simulation.agents import TENANT, Plan
from tests.simulation.clients import Clients, Wish
from tests.simulation.wishes import plan_of

if TYPE_CHECKING:
    from tests.simulation.host import Host
    from tests.simulation.world import World

PLANS_FROM = 200
LOOK_S = 0.5
SHARE = 0.25
# By itself none comes while a simulation lasts: all times are set.
NEW_YEAR = ("0 0 1 1 *", "0 0 2 1 *")
FAR_MS = 3_600_000
ANYBODY = Principal(TENANT, "anybody", "anybody", frozenset({"admin"}))

Kind = Literal["move", "pause", "rename", "replan", "delete"]
_KINDS: tuple[Kind, ...] = ("move", "move", "pause", "rename", "rename", "replan", "delete")


@dataclass(frozen=True, slots=True)
class Change:
    """What somebody does to a schedule, and in how long it comes then.

    They do it so long after the last thing, or at about when it is due: `after_s` is None.
    """

    kind: Kind
    after_s: float | None
    in_s: float


@dataclass(slots=True)
class Routine:
    """A schedule that somebody wants, and what they do to it; its runs follow `plans`, in turn."""

    plans: tuple[Plan, Plan]
    at_s: float
    in_s: float
    overlap: Overlap
    late_s: float | None
    beside: Wish | None
    changes: tuple[Change, ...]


def routines(world: "World", wishes: list[Wish]) -> list[Routine]:
    """Return which schedules there are: in a quarter of all seeds."""
    random = Random(f"{world.seed} schedules")
    count = random.choice((1, 1, 2)) if random.random() < SHARE else 0
    return [_routine(world, random, number, wishes) for number in range(count)]


def _routine(world: "World", random: Random, number: int, wishes: list[Wish]) -> Routine:
    first = PLANS_FROM + 2 * number
    plans = plan_of(random, world.plans, first), plan_of(random, world.plans, first + 1)
    world.plans |= {plan.number: plan for plan in plans}
    within_s = world.storm.ends_s
    return Routine(
        plans,
        at_s=random.random() ** 2 * within_s * 0.5,
        in_s=random.random() ** 2 * within_s * 0.7,
        overlap=random.choice(("skip", "allow")),
        late_s=random.choice((None, None, 1.0)),
        beside=random.choice(wishes) if random.random() < 0.3 else None,
        changes=tuple(_change(random) for _ in range(random.choice((0, 1, 2, 3, 4)))),
    )


def _change(random: Random) -> Change:
    after_s = random.random() ** 2 * 3 if random.random() < 0.5 else None
    return Change(random.choice(_KINDS), after_s, in_s=random.random() ** 2 * 3)


class Planners:
    """Those who want schedules, each of whom stays until the last of their times has come."""

    def __init__(self, world: "World", clients: Clients, wanted: list[Routine]) -> None:
        self._world = world
        self._clients = clients
        self._wanted = wanted

    def start(self) -> None:
        """Begin to ask."""
        for routine in self._wanted:
            self._clients.begin(self._keep, routine)

    async def _keep(self, routine: Routine) -> None:
        await asyncio.sleep(routine.at_s)
        if routine.beside is not None:
            await routine.beside.is_settled.wait()
        schedule_id = await self._create(routine)
        if schedule_id is None:
            return
        for change in routine.changes:
            await self._wait(schedule_id, change)
            await self._change(routine, schedule_id, change)
        await self._stay(schedule_id)

    async def _create(self, routine: Routine) -> str | None:
        said = routine.plans[0].said
        timing = {"cron": NEW_YEAR[0], "overlap": routine.overlap, "late_max_s": routine.late_s}
        body = ScheduleCreate.model_validate({**timing, "run": _run(routine, 0)})

        async def create(host: "Host") -> str:
            row = schedule_of(body, ANYBODY, host.new_id("sch"), host.now_ms())
            asked = self._clients.asked(host, "POST /v1/schedules", said, row.id)
            kept = once(asked, _kept(row, routine.in_s), lambda made: schedules.find(TENANT, made))
            made = await host.store.write(kept)
            host.hub.ring(SCHEDULES_BELL)
            return made.resource.id

        schedule_id = await self._clients.ask(create, is_repeatable=True)
        self._world.tell("a schedule", said, schedule_id)
        return schedule_id

    async def _change(self, routine: Routine, schedule_id: str, change: Change) -> None:
        async def act(host: "Host") -> str:
            row = await host.store.read(schedules.find(TENANT, schedule_id))
            if change.kind == "delete":
                await host.store.write(schedules.delete(TENANT, schedule_id))
                return "gone"
            try:
                await host.store.write(_changed(row, routine, change, host.now_ms()))
            except ConflictError:
                return "another was faster"
            host.hub.ring(SCHEDULES_BELL)
            return "changed"

        came = await self._clients.ask(act, is_repeatable=True)
        self._world.tell("a schedule changed", schedule_id, change.kind, came)

    async def _wait(self, schedule_id: str, change: Change) -> None:
        after_s = change.after_s
        if after_s is None:
            due_ms = self._next_ms(schedule_id) or 0
            about_s = self._world.random.uniform(-0.02, 0.05)
            after_s = max(0.0, (due_ms - self._world.now_ms()) / 1000 + about_s)
        await asyncio.sleep(after_s)

    async def _stay(self, schedule_id: str) -> None:
        """Wait until none of its times is left to come."""
        while True:
            if self._next_ms(schedule_id) is None:
                return
            await asyncio.sleep(LOOK_S)

    def _next_ms(self, schedule_id: str) -> int | None:
        """Return the time that is set, come or not; None if there is none."""
        found = self._world.database.rows(
            "SELECT next_ms FROM schedules WHERE id = ? AND next_ms < ?",
            schedule_id,
            self._world.now_ms() + FAR_MS,
        )
        return found[0][0] if found else None


def _kept(row: ScheduleRow, in_s: float) -> Work[ScheduleRow]:
    next_ms = (yield from schedules.now()) + round(in_s * 1000)
    return (yield from schedules.create(replace(row, next_ms=next_ms)))


def _changed(row: ScheduleRow, routine: Routine, change: Change, now_ms: int) -> Work[ScheduleRow]:
    wanted = edited(row, ScheduleChange.model_validate(_named(row, routine, change)), ANYBODY)
    if change.kind == "pause":
        wanted = replace(wanted, next_ms=None)
    elif change.kind == "move":
        next_ms = (yield from schedules.now()) + round(change.in_s * 1000)
        wanted = replace(wanted, next_ms=next_ms)
    return (yield from schedules.change(row, wanted, now_ms=now_ms))


def _named(row: ScheduleRow, routine: Routine, change: Change) -> dict[str, object]:
    match change.kind:
        case "move":
            return {"cron": NEW_YEAR[row.cron == NEW_YEAR[0]], "enabled": True}
        case "pause":
            return {"enabled": False}
        case "rename":
            return {"name": f"renamed from {row.name}"[:40]}
        case _:
            return {"run": _run(routine, row.version % 2)}


def _run(routine: Routine, turn: int) -> dict[str, object]:
    plan = routine.plans[turn]
    beside = routine.beside.made[:1] if routine.beside else []
    return {
        "agent": plan.agent.name,
        "input": plan.said,
        "session_id": next((session_id for _, session_id in beside), None),
        "metadata": {"wish": str(plan.number)},
    }
