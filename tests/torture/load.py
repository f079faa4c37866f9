"""The clients of a campaign: they start runs, follow them to their end, and cancel some."""

import asyncio
import itertools
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from milepost.core.errors import MilepostError
from tests.torture.clients import Doors, RefusedError
from tests.torture.errands import AGENT, SESSIONS, Errand, Kind, errand, script
from tests.torture.follower import Seen, UnsoundError, follow, follow_with_client
from tests.torture.plan import Plan

OWN_CLIENTS = 0.08
BATCH_ITEMS = 60
BATCH_AT_ONCE = 3
PLENTY = 10**12
BATCH_KINDS: tuple[Kind, ...] = ("words", "once", "idempotent", "gated")
ENDS = ("completed", "incomplete", "failed", "cancelled", "expired")


@dataclass(eq=False, slots=True)
class Followed:
    """An errand, the run that it became, and what its client saw of it."""

    errand: Errand
    run_id: str
    seen: Seen = field(default_factory=Seen)


OWN_CLIENTS = 0.08


@dataclass(eq=False, slots=True)
class Load:
    """Keeps so many errands going until told to stop. `violations` are what no client may see."""

    plan: Plan
    doors: Doors
    block_s: float
    followed: dict[str, Followed] = field(default_factory=dict)
    posted: int = 0
    done: int = 0
    resumes: int = 0
    violations: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _sessions: list[str] = field(default_factory=list)
    _open: set[Seen] = field(default_factory=set)
    _achieved: int = 0
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def achieved(self) -> int:
        """How much all clients have read of that gets runs on: answers, results, ends."""
        return self._achieved + sum(each.achieved for each in self._open)

    async def run(self) -> None:
        """Work until stopped; return when the last client has its answer."""
        async with asyncio.TaskGroup() as clients:
            for _ in range(self.plan.at_once):
                clients.create_task(self._client())

    async def open_sessions(self) -> None:
        """Begin the conversations that runs take part in."""
        for number in range(SESSIONS):
            key = f"torture-{self.plan.seed}-session-{number}"
            made = await self.doors.post("/v1/sessions", {}, key)
            self._sessions.append(made["id"])

    async def open_books(self, receiver_url: str) -> None:
        """Have ends told to a webhook, and what is taken counted in a budget that suffices."""
        key = f"torture-{self.plan.seed}"
        hook = {"url": receiver_url, "events": [f"run.{end}" for end in ENDS]}
        await self.doors.post("/v1/webhooks", hook, f"{key}-webhook")
        limits = {"tokens": PLENTY, "model_calls": PLENTY, "tool_calls": PLENTY}
        budget = {"scope": "tenant", "period": "total", "limits": limits}
        await self.doors.post("/v1/budgets", budget, f"{key}-budget")

    async def open_batch(self) -> None:
        """Make a batch that takes as long as the storm, and that nobody waits for meanwhile."""
        key = f"torture-{self.plan.seed}-batch"
        chance = random.Random(key)
        items = [
            {
                "input": script(chance.choice(BATCH_KINDS), chance, block_s=0.0),
                "metadata": {"key": f"{key}-{number}"},
            }
            for number in range(BATCH_ITEMS)
        ]
        body = {"agent": AGENT, "concurrency": BATCH_AT_ONCE, "items": items}
        await self.doors.post("/v1/batches", body, key)

    async def _client(self) -> None:
        while not self.stopping.is_set():
            wanted = errand(self.plan.seed, next(self._numbers), block_s=self.block_s)
            try:
                await self.do(wanted)
            except (UnsoundError, RefusedError, MilepostError) as error:
                self.violations.append(f"{wanted.key}: {error}")

    async def do(self, wanted: Errand) -> None:
        """Start the run, follow it to its end, and cancel it meanwhile if that is wanted."""
        followed = Followed(wanted, await self._post(wanted))
        self.followed[followed.run_id] = followed
        self.kinds[wanted.kind] += 1
        chance = random.Random(f"{wanted.key} follower")
        if chance.random() < OWN_CLIENTS:
            own = chance.choice(self.doors.own)
            reading = follow_with_client(own, followed.run_id, followed.seen)
        else:
            reading = follow(self.doors, followed.run_id, chance, followed.seen)
        following = asyncio.create_task(reading)
        self._open.add(followed.seen)
        try:
            if wanted.cancel_s is not None:
                await asyncio.sleep(wanted.cancel_s)
                await self.doors.post(f"/v1/runs/{followed.run_id}/cancel", {"reason": "torture"})
            await following
        finally:
            following.cancel()
            await asyncio.wait({following})
            self._open.discard(followed.seen)
            self._achieved += followed.seen.achieved
        self.resumes += followed.seen.resumes
        self.done += 1

    async def _post(self, wanted: Errand) -> str:
        """Start the run, once or twice at the same time; return which one it became."""
        body: dict[str, Any] = {
            "agent": wanted.agent,
            "input": wanted.said,
            "metadata": {"key": wanted.key},
        }
        if wanted.session is not None:
            body["session_id"] = self._sessions[wanted.session]
        if wanted.delay_s is not None:
            body["delay_s"] = wanted.delay_s
        if wanted.deadline_s is not None:
            body["deadline_s"] = wanted.deadline_s
        self.posted += 1
        posts = [self.doors.post("/v1/runs", body, wanted.key) for _ in range(1 + wanted.twice)]
        made = {run["id"] for run in await asyncio.gather(*posts)}
        if len(made) != 1:
            raise UnsoundError(f"one key made the runs {sorted(made)}")
        return str(made.pop())
