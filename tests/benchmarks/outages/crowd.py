"""A handful of clients that always want something, and how long each was told nothing."""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.benchmarks.outages.waiting import until
from tests.torture.clients import AGAIN_S, LOST, Doors, RefusedError
from tests.torture.errands import WORDS, Errand, Kind
from tests.torture.follower import Seen, UnsoundError, frames
from tests.torture.history import pid_of
from tests.torture.load import Followed

AGENT = "tortured"
WORDS_SAID = 40
WORD_MS = 20
TOOL_MS = 30
HEARD_S_MAX = 120.0

# Of all that a stream tells, what is about trouble.
NOTED = frozenset(
    {
        "error",
        "message.aborted",
        "model.fell_back",
        "model.retried",
        "run.failed",
        "run.resumed",
        "run.retrying",
        "stream.lagged",
        "stream.reconnect",
        "tool_call.interrupted",
    }
)
_TOOLS: dict[Kind, str] = {"once": "charge", "idempotent": "reserve", "read": "look_up"}
_KINDS: tuple[Kind, ...] = ("words", "once", "idempotent", "read")


@dataclass(eq=False, slots=True)
class Ear:
    """When a client was last told something, and its longest wait for that since the mark."""

    heard_s: float = field(default_factory=time.monotonic)
    marked_s: float = 0.0
    longest_s: float = 0.0

    def hear(self) -> None:
        """Note that something came: a piece of text, an event, or the answer to a request."""
        now_s = time.monotonic()
        self.longest_s = max(self.longest_s, now_s - max(self.heard_s, self.marked_s))
        self.heard_s = now_s

    def mark(self) -> None:
        """Begin anew: what is waited for from now on counts."""
        self.marked_s, self.longest_s = time.monotonic(), 0.0


@dataclass(eq=False, slots=True)
class Crowd:
    """Clients that start a run, follow it to its end, and start the next.

    `agent` is whom they ask, `told` what they were told besides text and progress, and `ended` when
    each run's end was read.
    """

    doors: Doors
    seed: int
    many: int
    agent: str = AGENT
    followed: dict[str, Followed] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    told: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    ears: list[Ear] = field(default_factory=list)
    _open: set[Seen] = field(default_factory=set)
    _number: int = 0

    async def run(self) -> None:
        """Want things until stopped; return when the last client has its answer."""
        self.ears = [Ear() for _ in range(self.many)]
        async with asyncio.TaskGroup() as clients:
            for ear in self.ears:
                clients.create_task(self._client(ear))

    def mark(self) -> None:
        """Begin to measure: a fault comes now."""
        for ear in self.ears:
            ear.mark()

    @property
    def longest_s(self) -> float:
        """How long the one waited since the mark that waited longest."""
        return max(ear.longest_s for ear in self.ears)

    async def hear(self) -> None:
        """Return once each client has been told something that is newer than this call."""
        since_s = time.monotonic()
        await until(lambda: all(ear.heard_s > since_s for ear in self.ears), HEARD_S_MAX)

    def drivers(self) -> Counter[int]:
        """Return how many of the runs that are under way each process drives, by its pid."""
        return Counter(pid_of(seen.worker) for seen in self._open if seen.worker)

    async def _client(self, ear: Ear) -> None:
        while not self.stopping.is_set():
            wanted = self._errand()
            try:
                await self._do(wanted, ear)
            except (UnsoundError, RefusedError) as error:
                self.violations.append(f"{wanted.key}: {error}")
                await asyncio.sleep(AGAIN_S)

    def _errand(self) -> Errand:
        self._number += 1
        chance = random.Random(f"{self.seed} outage {self._number}")
        kind = _KINDS[self._number % len(_KINDS)]
        return Errand(
            number=self._number,
            kind=kind,
            key=f"outages-{self.seed}-{self._number}",
            said=_script(kind, chance),
            session=None, twice=False, cancel_s=None, delay_s=None, deadline_s=None,
        )  # fmt: skip

    async def _do(self, wanted: Errand, ear: Ear) -> None:
        body = {"agent": self.agent, "input": wanted.said, "metadata": {"key": wanted.key}}
        made = await self.doors.post("/v1/runs", body, wanted.key)
        ear.hear()
        followed = self.followed[made["id"]] = Followed(wanted, made["id"])
        self._open.add(followed.seen)
        try:
            while not followed.seen.terminal:
                again_s = await self._read(followed, ear)
                await asyncio.sleep(again_s)
        finally:
            self._open.discard(followed.seen)
        self.ended[followed.run_id] = time.monotonic()

    async def _read(self, followed: Followed, ear: Ear) -> float:
        """Read a stream as long as it goes; return after how long to ask again."""
        seen = followed.seen
        try:
            async with self.doors.stream(followed.run_id, seen.position) as content:
                async for id_, kind, body in frames(content):
                    self.told[kind] += kind in NOTED
                    if kind == "stream.reconnect":
                        return float(body["data"]["after_ms"] / 1000)
                    seen.take(id_, kind, body)
                    ear.hear()
                    if seen.terminal:
                        return 0.0
        except LOST:
            pass
        self.told["a stream broke"] += 1
        return AGAIN_S


def _script(kind: Kind, chance: random.Random) -> str:
    """Return what the model is told to do, as `tests.stubs.directed_model` reads it."""
    lines = [f"slowly {WORD_MS}"]
    if tool := _TOOLS.get(kind):
        lines.append(f'call {tool} {{"before_ms": {TOOL_MS}, "after_ms": {TOOL_MS}}}')
    else:
        lines.append(" ".join(chance.choices(WORDS, k=WORDS_SAID)))
    return "\n".join(lines)
