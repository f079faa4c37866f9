"""Many runs through real processes, while workers and Temporal are killed."""

import asyncio
import os
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from tests.dispatch.temporal_server import TemporalServer
from tests.journeys.conftest import environment
from tests.journeys.processes import Event, Installation, Server, assert_sound, durable, installed
from tests.stubs.directed_model import DirectedModel

RUNS = int(os.environ.get("DISPATCH_RUNS", "50"))
ROUNDS = max(1, RUNS // 50)
END_S = 200.0 + 2 * RUNS
DUPLICATES = 5

_RUNNING = b"SELECT count(*) FROM runs WHERE status = 'running' AND owner LIKE %s"

_STUCK = b"""SELECT id, status, waiting_for, epoch, crashes, owner FROM runs
    WHERE ended_ms IS NULL ORDER BY id"""


@pytest.mark.timeout(60 + 2 * END_S)
async def test_no_run_is_lost_or_done_twice_whoever_is_killed(
    postgres_database: str, model: DirectedModel, temporal: TemporalServer, tmp_path: Path
) -> None:
    settings = {
        **environment(postgres_database, model, tmp_path),
        "MILEPOST_DISPATCHER": "temporal",
        "MILEPOST_TEMPORAL_ADDRESS": temporal.address,
        "MILEPOST_TEMPORAL_GRACE_S": "2",
        "MILEPOST_SLOTS": "8",
        # Long enough that a busy machine does not take the living for dead.
        "MILEPOST_LEASE_S": "5",
    }
    async with installed(tmp_path, settings) as installation:
        server, *workers = await asyncio.gather(
            installation.start(MILEPOST_SLOTS="0"),
            *(installation.start_worker() for _ in range(2)),
        )
        disaster = Disaster(installation, server, postgres_database, workers)
        over = asyncio.Event()
        answering = asyncio.create_task(answer(server, over))
        try:
            async with asyncio.timeout(END_S):
                await strike_again_and_again(disaster, temporal)
                logs = await asyncio.gather(*map(server.whole, disaster.run_ids))
        except TimeoutError:
            stuck = await disaster.standing()
            raise AssertionError(f"not everything came to an end: {stuck}") from None
        finally:
            over.set()
            await answering

    for events in logs:
        assert_sound(events)
        assert events[-1].type == "run.completed", events[-1]
    lines = (tmp_path / "ledger").read_text().splitlines()
    once = Counter(line for line in lines if line.startswith(("charge", "refund")))
    assert [line for line, times in once.items() if times > 1] == []
    assert resumed(logs)["crash"] >= disaster.strikes


async def strike_again_and_again(disaster: "Disaster", temporal: TemporalServer) -> None:
    """Post runs, and kill two workers and Temporal each time; return once all are there again."""
    for _ in range(ROUNDS):
        wave = [await disaster.post(nth) for nth in range(RUNS // ROUNDS)]
        await duplicate(temporal, wave[::5])
        await disaster.strike()
        temporal.kill()
        await disaster.strike()
        await temporal.start()
        await disaster.repair()


class Disaster:
    """Kills workers at work, the oldest first, and starts others in their place."""

    def __init__(
        self,
        installation: Installation,
        server: Server,
        database_url: str,
        workers: list[Server],
    ) -> None:
        self._installation = installation
        self.server = server
        self._database_url = database_url
        self._workers = workers
        self._starting: list[asyncio.Task[Server]] = []
        self.run_ids: list[str] = []
        self.strikes = 0

    async def post(self, nth: int) -> str:
        """Create a run of one of several kinds; every fifth has to be approved."""
        kinds = (
            f'call refund {{"order": {nth}}}',
            f'call charge {{"amount": {nth}}}',
            f'call reserve {{"seat": "{nth}A"}}',
            f'call charge {{"amount": {nth}}}\ncall look_up {{"order": {nth}}}',
            "slowly 300\none two three four five six seven eight",
        )
        run = await self.server.create(kinds[nth % len(kinds)])
        self.run_ids.append(run["id"])
        return self.run_ids[-1]

    async def strike(self) -> None:
        """Kill a worker as soon as it drives something, which is seen to."""
        worker = self._workers.pop(0)
        async with await psycopg.AsyncConnection.connect(
            self._database_url, autocommit=True
        ) as connection:
            while not await is_busy(connection, worker):
                await self.post(4)
                await asyncio.sleep(0.2)
        await worker.kill()
        self.strikes += 1
        self._starting.append(asyncio.create_task(self._installation.start_worker()))

    async def standing(self) -> list[tuple[object, ...]]:
        """Return how what has not ended stands."""
        async with await psycopg.AsyncConnection.connect(self._database_url) as connection:
            return await (await connection.execute(_STUCK)).fetchall()

    async def repair(self) -> None:
        """Wait until there are as many workers as before."""
        self._workers += await asyncio.gather(*self._starting)
        self._starting = []


async def is_busy(connection: psycopg.AsyncConnection, worker: Server) -> bool:
    """Say whether the process drives a run."""
    found = await connection.execute(_RUNNING, [f"%-{worker.process.pid}-%"])
    return await found.fetchone() != (0,)


async def duplicate(temporal: TemporalServer, run_ids: list[str]) -> None:
    """Have Temporal deliver these runs several times more than it is told to."""
    client = await temporal.client()
    for run_id in run_ids:
        for nth in range(DUPLICATES):
            await client.start_workflow(
                "drive", run_id, id=f"{run_id}-again-{nth}", task_queue="milepost"
            )


async def answer(server: Server, over: asyncio.Event) -> None:
    """Say yes to whoever asks; of a call that was cut off, that it has acted.

    It ends between two requests: the client closes what others left idle within whichever request
    comes next, and one that is cancelled there leaves those connections to nobody.
    """
    words = {
        "call": {"decision": "approve"},
        "outcome": {"decision": "happened", "result": "refund done"},
    }
    while not over.is_set():
        listed = await server.http.get("/v1/approvals", params={"status": "pending", "limit": 100})
        for approval in listed.json()["data"]:
            await server.decide(approval["id"], **words[approval["kind"]])
        await asyncio.sleep(0.2)


def resumed(logs: list[list[Event]]) -> Counter[str]:
    """Count why runs were resumed."""
    return Counter(
        event.data["data"]["why"]
        for events in logs
        for event in durable(events)
        if event.type == "run.resumed"
    )
