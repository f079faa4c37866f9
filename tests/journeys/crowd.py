"""Many sessions in which several people speak at once: a fleet that serves them, and what is so.

What must be so is read from the database, when all is over: every message that was accepted stands
in its session once, runs were under way one at a time and in the order of their places, and those
that were to make way for others did.
"""

import asyncio
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import httpx2
import orjson
import psycopg

from tests.journeys.processes import Installation, Server, installed

Strategy = Literal["enqueue", "reject", "interrupt", "rollback", "steer"]
STRATEGIES: Sequence[Strategy] = ("enqueue", "reject", "interrupt", "rollback", "steer")
AT_ONCE = 5
ROUNDS: Mapping[str, Sequence[Strategy]] = {
    **{strategy: (strategy,) for strategy in STRATEGIES},
    "mixed": STRATEGIES,
}
SESSIONS_AT_ONCE = 24
QUIET_S = 900.0
PATIENCE_S = 300.0
LOOK_S = 0.1
_AGENTS = """
[[agents]]
name = "clerk"
model = "demo/offline"
"""


@dataclass(slots=True)
class Round:
    """What was said in one round: by session, and the answer to each message."""

    name: str
    took_s: float = 0.0
    quiet_s: float = 0.0
    sessions: dict[str, dict[str, int]] = field(default_factory=dict)
    strategies: dict[str, Strategy] = field(default_factory=dict)
    waits_ms: list[float] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        """How many messages were."""
        return sum(code == 202 for said in self.sessions.values() for code in said.values())


@dataclass(slots=True)
class Run:
    """A run as the database tells of it."""

    id: str
    place: int
    turn: int | None
    status: str
    rolled_back_by: str | None
    events: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return what the events of this type say."""
        return [data for each, _, data in self.events if each == kind]

    @property
    def said(self) -> list[str]:
        """What users said in it: its own input, and what came while it was under way."""
        (queued,) = self.of("run.queued")
        own = [each["content"] for each in queued["input"]]
        return own + [each["content"] for each in self.of("steer.received")]

    @property
    def span(self) -> tuple[int, int] | None:
        """When it was under way, None if no worker ever took it.

        From the first thing that its worker did: a claim bears the time at which it was asked for,
        which is before whatever it waited for in the database.
        """
        kinds = [kind for kind, _, _ in self.events]
        if "run.started" not in kinds:
            return None
        return self.events[kinds.index("run.started") + 1][1], self.events[-1][1]


@asynccontextmanager
async def fleet(database_url: str, folder: Path) -> AsyncIterator[list[Server]]:
    """Start two APIs and two workers on Postgres, one process on SQLite; return the APIs."""
    agents = folder / "agents.toml"
    agents.write_text(_AGENTS)
    environment = {
        "MILEPOST_DATABASE_URL": database_url,
        "MILEPOST_AGENTS": str(agents),
        "MILEPOST_DEMO_WORD_DELAY_S": "0.001",
        "MILEPOST_LOG_LEVEL": "warning",
        "MILEPOST_QUEUE_MAX": "100000",
    }
    async with installed(folder, environment) as installation:
        if database_url.startswith("sqlite"):
            yield [await installation.start()]
            return
        first = await installation.start(MILEPOST_SLOTS="0")
        yield [first, await _joined(installation)]


async def _joined(installation: Installation) -> Server:
    second = await installation.start(MILEPOST_SLOTS="0")
    for _ in range(2):
        await installation.start_worker()
    return second


async def talk(
    apis: Sequence[Server], name: str, sessions: int, strategies: Sequence[Strategy]
) -> Round:
    """Have people speak in so many sessions, in each so many at once; wait until all is over.

    Whoever speaks first does as the first of the strategies says, and so on, round and round.
    """
    done, began = Round(name), time.monotonic()
    gate = asyncio.Semaphore(SESSIONS_AT_ONCE)
    async with asyncio.TaskGroup() as tasks:
        for number in range(sessions):
            tasks.create_task(_session(apis, done, gate, number, strategies))
    done.took_s = time.monotonic() - began
    await _quiet(apis[0])
    done.quiet_s = time.monotonic() - began
    return done


async def _session(
    apis: Sequence[Server],
    done: Round,
    gate: asyncio.Semaphore,
    number: int,
    strategies: Sequence[Strategy],
) -> None:
    async with gate:
        made = await apis[number % len(apis)].http.post("/v1/sessions", json={}, timeout=PATIENCE_S)
        session_id = str(made.json()["id"])
        said = done.sessions[session_id] = {}

        async def say(place: int) -> None:
            message = f"{done.name} {number}.{place}"
            body = {
                "agent": "clerk",
                "input": message,
                "session_id": session_id,
                "if_active": strategies[place % len(strategies)],
            }
            done.strategies[message] = strategies[place % len(strategies)]
            began = time.monotonic()
            answer = await apis[place % len(apis)].http.post(
                "/v1/runs", json=body, timeout=PATIENCE_S
            )
            done.waits_ms.append((time.monotonic() - began) * 1000)
            said[message] = _judged(answer)

        await asyncio.gather(*map(say, range(AT_ONCE)))


def _judged(answer: httpx2.Response) -> int:
    refused = answer.status_code == 409 and answer.json()["code"] == "session_busy"
    assert refused or answer.status_code == 202, answer.text
    return answer.status_code


async def _quiet(api: Server) -> None:
    """Wait until no run is left."""
    async with asyncio.timeout(QUIET_S):
        while True:
            shown = (await api.http.get("/v1/queue", timeout=PATIENCE_S)).json()
            if not any(_counts(shown)):
                return
            await asyncio.sleep(LOOK_S)


def _counts(shown: Any) -> Iterator[int]:
    for name in ("queued", "running", "waiting"):
        value = shown[name]
        yield from value.values() if isinstance(value, dict) else (value,)


# --- What is so ---


@dataclass(frozen=True, slots=True)
class Looked:
    """What became of a round's messages, and what is not as it must be."""

    runs: int
    steered: int
    replaced: int
    violations: tuple[str, ...]


def look(database_url: str, done: Round) -> Looked:
    """Look at what is in the database of the round's sessions."""
    by_session = _runs(database_url)
    runs = [run for session_id in done.sessions for run in by_session.get(session_id, [])]
    return Looked(
        runs=len(runs),
        steered=sum(len(run.of("steer.received")) for run in runs),
        replaced=len({each for run in runs for each in run.of("run.queued")[0]["replaces"]}),
        violations=tuple(
            f"{done.name}, session {session_id}: {wrong}"
            for session_id, said in done.sessions.items()
            for wrong in _wrong(said, by_session.get(session_id, []), done.strategies)
        ),
    )


def _wrong(said: dict[str, int], runs: list[Run], strategies: dict[str, Strategy]) -> Iterator[str]:
    told = Counter(message for run in runs for message in run.said)
    wanted = Counter({message: 1 for message, code in said.items() if code == 202})
    if told != wanted:
        yield f"{wanted - told} are lost, and {told - wanted} are too many"
    yield from _in_line(runs)
    for run in runs:
        yield from _ended(run, runs)
        (queued,) = run.of("run.queued")
        meant = strategies.get(str(queued["input"][0]["content"]))
        if (queued["if_active"] or "enqueue") != meant:
            yield f"{run.id} was to {meant}, and says {queued['if_active']}"


def _in_line(runs: list[Run]) -> Iterator[str]:
    turns = [run.turn for run in runs]
    if turns != sorted(turns, key=lambda turn: turn or 0) or None in turns:
        yield f"the turns are {turns} in the order of the places"
    spans = [span for run in runs if (span := run.span)]
    for one, other in pairwise(spans):
        if other[0] < one[1]:
            yield f"two runs were under way at once: {one} and {other}"


def _ended(run: Run, runs: list[Run]) -> Iterator[str]:
    replaced = {
        each: (other.id, other.of("run.queued")[0]["if_active"])
        for other in runs
        for each in other.of("run.queued")[0]["replaces"]
    }
    wanted = "cancelled" if run.id in replaced else "completed"
    if run.status != wanted:
        yield f"{run.id} is {run.status}, not {wanted}"
    by = [
        other.id
        for other in runs
        if other.of("run.queued")[0]["if_active"] == "rollback"
        and run.id in other.of("run.queued")[0]["replaces"]
    ]
    if run.rolled_back_by != (by[0] if by else None):
        yield f"{run.id} says that {run.rolled_back_by} rolled it back, and {by} did"
    heard = [each["message_id"] for each in run.of("steer.received")]
    applied = [each for data in run.of("steer.applied") for each in data["message_ids"]]
    if applied != heard[: len(applied)] or (run.status == "completed" and applied != heard):
        yield f"{run.id} has heard {heard} and taken up {applied}"


_QUERY = (
    "SELECT r.session_id, r.id, r.place, r.turn, r.status, r.rolled_back_by, e.type, e.time_ms,"
    " e.data FROM runs r JOIN events e ON e.run_id = r.id ORDER BY r.session_id, r.place, e.run_id,"
    " e.seq"
)


def _runs(database_url: str) -> dict[str, list[Run]]:
    found: dict[str, dict[str, Run]] = defaultdict(dict)
    for session_id, run_id, place, turn, status, rolled_back_by, kind, time_ms, data in _rows(
        database_url
    ):
        run = found[session_id].setdefault(run_id, Run(run_id, place, turn, status, rolled_back_by))
        run.events.append((kind, time_ms, orjson.loads(data)))
    return {session_id: [*runs.values()] for session_id, runs in found.items()}


def _rows(database_url: str) -> list[tuple[Any, ...]]:
    if database_url.startswith("sqlite"):
        connection = sqlite3.connect(database_url.removeprefix("sqlite:///"))
        try:
            return connection.execute(_QUERY).fetchall()
        finally:
            connection.close()
    with psycopg.connect(database_url) as postgres:
        return postgres.execute(_QUERY.encode()).fetchall()
