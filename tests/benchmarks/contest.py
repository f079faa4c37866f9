"""Many who answer the same questions at the same moment, and what the database says of it then."""

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson
import psycopg

from milepost.core.canonical import call_digest
from tests.benchmarks.connection import Answer, Connection

RUN = {"agent": "waiting", "input": "What is 17 plus 25?"}
STARTED_AT_ONCE = 32
OPENED_AT_ONCE = 200
PENDING_S = 300.0
ENDED_S = 300.0
POLL_S = 0.1
TRIES_MAX = 200


@dataclass(frozen=True, slots=True)
class Contest:
    """How it went. What is not `exact` breaks a promise."""

    approvals: int
    resolvers: int
    seconds: float
    won: int
    told: int
    decisions: int
    double_wakes: int
    unapproved: int
    tools_run: int
    refusals: int = 0

    @property
    def exact(self) -> bool:
        """Say whether each question was decided once, and everybody was told."""
        return (
            self.won == self.decisions == self.approvals
            and self.told == self.resolvers - self.approvals
            and self.double_wakes == self.unapproved == 0
        )


async def park(port: int, key: str | None, many: int) -> list[str]:
    """Start so many runs that wait for a person, and return the approvals' ids."""
    connections = [await Connection.open(port, key) for _ in range(min(STARTED_AT_ONCE, many))]

    async def start(connection: Connection, count: int) -> None:
        for _ in range(count):
            answer = await connection.ask("POST", "/v1/runs", RUN)
            assert answer.status == 202, answer.body

    shares = [many // len(connections)] * len(connections)
    shares[0] += many - sum(shares)
    await asyncio.gather(*map(start, connections, shares))
    ids = await _until_pending(connections[0], many)
    for connection in connections:
        await connection.close()
    return ids


async def _until_pending(connection: Connection, many: int) -> list[str]:
    async with asyncio.timeout(PENDING_S):
        # Nobody tells: it is another process that writes.
        while len(ids := await pending(connection)) < many:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
    return ids


async def pending(connection: Connection) -> list[str]:
    """Return all that waits."""
    ids: list[str] = []
    after = ""
    while True:
        page = (
            await connection.ask("GET", f"/v1/approvals?status=pending&limit=100{after}")
        ).json()
        ids += [each["id"] for each in page["data"]]
        if not page["has_more"]:
            return ids
        after = f"&after={page['next_cursor']}"


async def fight(
    ports: Sequence[int], keys: Sequence[str], approvals: Sequence[str], database_url: str
) -> Contest:
    """Have everybody who has a key answer every approval, all at the same moment.

    Each answers over a connection of its own, the one half yes and the other no, and again if
    the server had no connection to the database left in time.
    """
    pairs = [(approval, place) for approval in approvals for place in range(len(keys))]
    random.shuffle(pairs)
    refusals: list[str] = []
    gate, slots = asyncio.Event(), asyncio.Semaphore(OPENED_AT_ONCE)
    ready = asyncio.Barrier(len(pairs) + 1)

    async def resolve(approval: str, place: int) -> tuple[str, Answer]:
        async with slots:
            connection = await Connection.open(ports[place % len(ports)], keys[place])
        await ready.wait()
        await gate.wait()
        answer = "approve" if place // len(ports) % 2 else "deny"
        path = f"/v1/approvals/{approval}/decision"
        said = await connection.ask("POST", path, {"decision": answer})
        for _ in range(TRIES_MAX):
            if said.status != 503:
                break
            refusals.append(approval)
            await asyncio.sleep(said.retry_after_s * random.uniform(1, 2))
            said = await connection.ask("POST", path, {"decision": answer})
        await connection.close()
        return approval, said

    resolving = [asyncio.create_task(resolve(*pair)) for pair in pairs]
    await ready.wait()
    began = time.perf_counter()
    gate.set()
    answers = await asyncio.gather(*resolving)
    seconds = time.perf_counter() - began
    with psycopg.connect(database_url, autocommit=True) as connection:
        await _until_over(connection)
        won, told = _judged(answers, _decided(connection))
        decisions, double_wakes, unapproved, tools_run = _audited(connection)
    return Contest(
        len(approvals), len(pairs), seconds, won, told, decisions, double_wakes, unapproved,
        tools_run, len(refusals),
    )  # fmt: skip


def _judged(
    answers: Sequence[tuple[str, Answer]], decided: Mapping[str, tuple[str, str]]
) -> tuple[int, int]:
    """Return how many won, and how many of the others were told who did, and what they said."""
    won = told = 0
    for approval, answer in answers:
        status, by = decided[approval]
        said = answer.json()
        if answer.status == 200:
            won += (said["status"], said["decided_by"]) == (status, by)
        else:
            expected = ("approval_decided", f"approval {approval} was {status} by {by}")
            told += (said["code"], said["detail"]) == expected
    return won, told


async def _until_over(connection: psycopg.Connection) -> None:
    active = b"SELECT count(*) FROM runs WHERE status IN ('queued', 'running', 'waiting')"
    async with asyncio.timeout(ENDED_S):
        while connection.execute(active).fetchone() != (0,):  # noqa: ASYNC110 - as above
            await asyncio.sleep(POLL_S)


def _decided(connection: psycopg.Connection) -> dict[str, tuple[str, str]]:
    """Return what became of each approval, and by whom."""
    found = connection.execute(b"SELECT id, status, decided_by FROM approvals")
    return {approval: (status, by) for approval, status, by in found}


def _audited(connection: psycopg.Connection) -> tuple[int, int, int, int]:
    """Return what the logs say: decisions, runs woken twice, tools run without a yes, and all."""
    approved = {
        (run_id, call_id): digest
        for run_id, call_id, digest in connection.execute(
            b"SELECT run_id, call_id, digest FROM approvals WHERE status = 'approved'"
        )
    }
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    calls: dict[tuple[str, str], str] = {}
    unapproved = 0
    for run_id, kind, data in connection.execute(
        b"SELECT run_id, type, data FROM events WHERE type IN ('tool_call.requested',"
        b" 'approval.decided', 'run.resumed', 'tool_call.started') ORDER BY run_id, seq"
    ):
        said = orjson.loads(data)
        # Taken over from a worker that was away is no second wake.
        kinds[f"{kind} {said['why']}" if "why" in said else kind][run_id] += 1
        if kind == "tool_call.requested":
            calls[run_id, said["call_id"]] = call_digest(said["name"], said["arguments"])
        elif kind == "tool_call.started":
            call = (run_id, said["call_id"])
            unapproved += approved.get(call) != calls[call]
    return (
        kinds["approval.decided"].total(),
        sum(count > 1 for count in kinds["run.resumed approval"].values()),
        unapproved,
        kinds["tool_call.started"].total(),
    )
