"""Schedules whose time is set to now, again and again, and which of these times there were."""

import asyncio
import random
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, field

import psycopg

from milepost.live.frames import rfc3339
from tests.torture.clients import Doors
from tests.torture.errands import AGENT, Kind, script

SCHEDULES = 6
PAUSE_S = 0.4
KINDS: tuple[Kind, ...] = ("words", "once", "idempotent")
# By itself none comes while a campaign lasts.
NEW_YEAR = "0 0 1 1 *"
HOUR_MS = 3_600_000
FAILED = (psycopg.Error, sqlite3.Error)

Time = tuple[str, str]
"""A schedule's id, and the time as its run tells it in `scheduled_for`."""

_SET = "UPDATE schedules SET next_ms = {at_ms} WHERE id = '{id}' AND next_ms > {far_ms}"


@dataclass(eq=False, slots=True)
class Times:
    """Lets schedules come. `known` are times that were set; of those `unsure` nobody knows."""

    url: str
    doors: Doors
    seed: int
    known: set[Time] = field(default_factory=set)
    unsure: set[Time] = field(default_factory=set)
    _schedules: list[str] = field(default_factory=list)

    async def open(self) -> None:
        """Make the schedules; their runs may overlap."""
        chance = random.Random(f"{self.seed} schedules")
        for number in range(SCHEDULES):
            run = {"agent": AGENT, "input": script(chance.choice(KINDS), chance, block_s=0.0)}
            body = {"cron": NEW_YEAR, "overlap": "allow", "run": run}
            key = f"torture-{self.seed}-schedule-{number}"
            self._schedules.append((await self.doors.post("/v1/schedules", body, key))["id"])

    async def run(self) -> None:
        """Set one of them after the other until cancelled, each once its last time has come."""
        chance = random.Random(f"{self.seed} times")
        while True:
            await asyncio.sleep(chance.uniform(0, 2 * PAUSE_S))
            schedule_id, at_ms = chance.choice(self._schedules), int(time.time() * 1000) - 1
            at = schedule_id, rfc3339(at_ms)
            self.unsure.add(at)  # Also if nobody waits for the answer any more.
            try:
                is_set = await asyncio.to_thread(_set, self.url, schedule_id, at_ms)
            except FAILED:
                continue
            self.unsure.discard(at)
            if is_set:
                self.known.add(at)


def _set(url: str, schedule_id: str, at_ms: int) -> bool:
    statement = _SET.format(id=schedule_id, at_ms=at_ms, far_ms=at_ms + HOUR_MS)
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)) as file, file:
            return file.execute(statement).rowcount == 1
    with psycopg.connect(url) as connection:
        return connection.execute(statement.encode()).rowcount == 1
