"""What very many runs cost the few that matter: claims, lists, and the inbox of those that wait."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from milepost.core.errors import MilepostError
from milepost.store import queue
from milepost.store.address import Address
from milepost.store.store import Store
from tests.benchmarks.connection import Connection
from tests.benchmarks.load import percentile
from tests.store.conftest import opened, serving
from tests.store.making import a_finish, an_id, queued

ROUNDS = 5
CLAIMS_TTL_MS = 600_000
INBOX = "/v1/approvals?status=pending"
FEW = (
    "status=queued",
    "status=running",
    "status=waiting",
    "status=failed",
    "agent=nobody",
    "user=nobody",
    "made_by=nobody",
)


@dataclass(frozen=True, slots=True)
class Times:
    """In milliseconds."""

    p50: float
    p99: float


def quietest(rounds: Sequence[Times]) -> Times:
    """Return the round with the least p99: whatever else the machine does can only add to it."""
    return min(rounds, key=lambda each: each.p99)


def times(took: Sequence[float]) -> Times:
    """Sum up what was measured in seconds."""
    return Times(percentile(list(took), 0.5) * 1000, percentile(list(took), 0.99) * 1000)


async def inbox(port: int, key: str, tries: int) -> Times:
    """Return how long the first page of what waits takes."""
    connection, rounds = await Connection.open(port, key), []
    for _ in range(ROUNDS):
        took = []
        for _ in range(tries):
            began = time.perf_counter()
            answer = await connection.ask("GET", INBOX)
            took.append(time.perf_counter() - began)
            assert (answer.status, len(answer.json()["data"])) == (200, 20), answer.body
        rounds.append(times(took))
    await connection.close()
    return quietest(rounds)


async def listing(port: int, tries: int) -> Times:
    """Return how long the slowest takes of the lists in which few runs are, or none."""
    connection, slowest = await Connection.open(port), Times(0, 0)
    for wanted in FEW:
        rounds = []
        for _ in range(ROUNDS):
            took = []
            for _ in range(tries):
                began = time.perf_counter()
                answer = await connection.ask("GET", f"/v1/runs?{wanted}")
                took.append(time.perf_counter() - began)
                assert answer.status == 200, answer.body
            rounds.append(times(took))
        slowest = max(slowest, quietest(rounds), key=lambda each: each.p50)
    await connection.close()
    return slowest


async def claiming(address: Address, tries: int) -> Times:
    """Return how long a worker takes to claim a run that was just queued; no server may run."""
    worker, rounds = an_id("worker"), []
    async with opened(address) as engine, serving(Store(engine)) as store:
        await store.write(queue.register(worker, CLAIMS_TTL_MS))
        for _ in range(ROUNDS):
            took = [await _claim(store, worker) for _ in range(tries)]
            rounds.append(times(took))
    return quietest(rounds)


async def _claim(store: Store, worker: str) -> float:
    """Queue a run; return how many seconds it took to claim it. It ends, or others would go on."""
    run = await queued(store)
    began = time.perf_counter()
    (claim,) = await store.write(queue.claim(worker, 1, an_id("apd"), run.created_ms))
    took = time.perf_counter() - began
    if claim.run_id != run.id:
        raise MilepostError(f"{claim.run_id} was queued besides {run.id}")
    await store.append(a_finish(claim))
    return took
