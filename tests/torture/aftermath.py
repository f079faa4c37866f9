"""What each process is asked once the storm is over, and what it should answer.

That all runs are over does not say that all processes are well: what one of them does no longer,
others do in its place.
"""

import asyncio
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import aiohttp

from tests.torture.clients import LOST, Doors
from tests.torture.errands import AGENT, script
from tests.torture.fleet import Member
from tests.torture.follower import TERMINAL, frames
from tests.torture.ground import POOL_MAX, probe_of
from tests.torture.history import pid_of

WAVE_EACH = 4
# Without a link to the process that drives a run, its text comes at once, when a message is over.
PIECES_MIN = 3
# Connections of a process beside its pool: what renews its lease.
OTHER_CONNECTIONS = 2
# What a process may hold at rest beyond what it held when it was born: what is kept open for the
# next request, and threads that wait for the next call.
FILES_MORE_MAX = 60
THREADS_MORE_MAX = 60


@dataclass(frozen=True, slots=True)
class Held:
    """How many files, sockets among them, and threads a process has."""

    files: int
    threads: int


@dataclass(frozen=True, slots=True)
class Condition:
    """How a process is: the status of `/readyz`, what `/metrics` says, and what it holds."""

    member: str
    ready: int
    metrics: Mapping[str, float]
    held: Held = field(default_factory=lambda: Held(0, 0))


def unwell(condition: Condition, born: Held, *, slots: int, redis: bool) -> Iterator[str]:
    """Yield what is wrong with a process of `slots` slots, when nothing is left to be done.

    `born` is what it, or another one of its kind, held when it had done nothing yet.
    """
    if condition.ready != 200:
        yield f"{condition.member} is not ready: {condition.ready}"
        return
    wanted = {"milepost_slots": slots, "milepost_slots_busy": 0, "milepost_lease": 1}
    wanted |= {"milepost_redis_up": 1} if redis else {}
    for name, value in wanted.items():
        if condition.metrics.get(name) != value:
            yield f"{condition.member} says {name} {condition.metrics.get(name)}, not {value}"
    if condition.held.files > born.files + FILES_MORE_MAX:
        yield f"{condition.member} holds {condition.held.files} files, {born.files} at its birth"
    if condition.held.threads > born.threads + THREADS_MORE_MAX:
        yield f"{condition.member} has {condition.held.threads} threads, {born.threads} at birth"


def unheard(
    heard: Collection[tuple[int, str]], drivers: Mapping[int, str], urls: Sequence[str]
) -> Iterator[str]:
    """Yield which processes drove nothing, and whose text came nowhere as it was written.

    `heard` are pids and the addresses where text of theirs came in pieces, or "" where they drove
    a run at all; `drivers` are the names of those that should drive, by pid.
    """
    for pid, name in drivers.items():
        if (pid, "") not in heard:
            yield f"{name} drives no run"
            continue
        yield from (f"no text of {name} comes to {url}" for url in urls if (pid, url) not in heard)


def crowded(connections: int, processes: int) -> Iterator[str]:
    """Yield whether there are more connections to the database than processes may have."""
    if connections > (most := processes * (POOL_MAX + OTHER_CONNECTIONS)):
        yield f"there are {connections} connections to the database, and {most} may be"


def left(passing: Mapping[str, int]) -> list[str]:
    """Return what should have passed through the database, and is still there."""
    return [f"when all was over there were {many} {name}" for name, many in passing.items() if many]


def held_by(pid: int) -> Held:
    """Return what a process holds; nothing once it is gone."""
    process = Path(f"/proc/{pid}")
    try:
        return Held(*(sum(1 for _ in (process / kind).iterdir()) for kind in ("fd", "task")))
    except FileNotFoundError:
        return Held(0, 0)


async def condition_of(member: Member, http: aiohttp.ClientSession) -> Condition:
    """Ask a process how it is; one that does not answer is not ready."""
    url = probe_of(member)
    pid = member.child.pid if member.child else 0
    try:
        async with http.get(f"{url}/readyz") as answer:
            ready = answer.status
        async with http.get(f"{url}/metrics") as answer:
            metrics = dict(_gauges(await answer.text()))
    except LOST:
        return Condition(member.name, 0, {})
    return Condition(member.name, ready, metrics, held_by(pid))


def _gauges(page: str) -> Iterator[tuple[str, float]]:
    for line in page.splitlines():
        name, _, value = line.rpartition(" ")
        if not line.startswith("#") and "{" not in name:
            with suppress(ValueError):
                yield name, float(value)


@dataclass(eq=False, slots=True)
class Roll:
    """Has runs driven, wave by wave, and listens to each of them at every process at once."""

    doors: Doors
    seed: int
    heard: set[tuple[int, str]] = field(default_factory=set)
    _numbers: "count[int]" = field(default_factory=count)

    async def wave(self, drivers: int) -> None:
        """Have some runs driven by whoever takes them."""
        await asyncio.gather(*(self._run() for _ in range(drivers * WAVE_EACH)))

    async def _run(self) -> None:
        key = f"torture-{self.seed}-roll-{next(self._numbers)}"
        said = script("words", random.Random(key), block_s=0.0)
        body = {"agent": AGENT, "input": said, "metadata": {"key": key}}
        made = await self.doors.post("/v1/runs", body, key)
        async with asyncio.TaskGroup() as listening:
            for url in self.doors.urls:
                listening.create_task(self._listen(url, made["id"]))

    async def _listen(self, url: str, run_id: str) -> None:
        pieces, driver = 0, 0
        with suppress(*LOST):
            async with self.doors.http.get(f"{url}/v1/runs/{run_id}/events") as response:
                async for _, kind, body in frames(response.content):
                    pieces += kind == "message.delta"
                    if kind in {"run.started", "run.resumed"}:
                        driver = pid_of(body["data"]["worker"])
                        self.heard.add((driver, ""))
                    if kind in TERMINAL:
                        break
        if pieces >= PIECES_MIN:
            self.heard.add((driver, url))


def drivers_of(members: Sequence[Member]) -> dict[int, str]:
    """Return the names of those that drive runs, by the pids of their processes."""
    return {
        member.child.pid: member.name for member in members if member.child and slots_of(member)
    }


def slots_of(member: Member) -> int:
    """Return how many runs a member may hold."""
    return int(member.environment["MILEPOST_SLOTS"])
