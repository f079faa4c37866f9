"""A run that no process survives, and the others that happen to be driven beside it."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.journeys.conftest import environment
from tests.journeys.processes import Installation, Server, installed
from tests.journeys.warm import Warm
from tests.stubs.directed_model import DirectedModel

pytestmark = pytest.mark.timeout(400)

INNOCENTS = 15
WORKERS = 2
SLOTS = "16"
OVER_S = 300.0
POLL_S = 0.1
# Longer than a deadly call takes: whoever is beside one has achieved nothing when it comes.
UNHURRIED = "slowly 150\none two three four"
AGENTS = """
[[agents]]
name = "clerk"
model = "openai/directed"
tools = ["die", "exit_at_once"]
parallel_tools = false
"""
DEADLY = "call die {}"
# Each time it gets on a little: what became of the last call is unknown, and it makes the next one.
DEADLY_BIT_BY_BIT = "\n".join(["call exit_at_once {}"] * 4)


class Kept:
    """A process that is started again whenever it has died, as an orchestrator would."""

    def __init__(self, start: Callable[[], Awaitable[Server]]) -> None:
        self._start = start
        self.server: Server | None = None
        self.deaths = 0

    @asynccontextmanager
    async def run(self) -> AsyncIterator["Kept"]:
        """Keep it until the test is done with it."""
        self.server = await self._start()
        keeping = asyncio.create_task(self._keep(self.server))
        try:
            yield self
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})

    async def _keep(self, server: Server) -> None:
        while True:
            await server.process.wait()
            self.deaths += 1
            server = self.server = await self._start()

    async def run_of(self, run_id: str) -> dict[str, object]:
        """Return a run, from whoever serves by now."""
        while True:
            try:
                assert self.server
                return await self.server.run(run_id)
            except httpx2.TransportError:
                await asyncio.sleep(POLL_S)


def deadly(database_url: str, model: DirectedModel, folder: Path) -> dict[str, str]:
    """Return the settings of processes whose tools are deadly."""
    settings = environment(database_url, model, folder)
    (folder / "agents.toml").write_text(AGENTS)
    tools = str(Path(__file__).with_name("deadly_tools.py"))
    return {**settings, "MILEPOST_TOOLS": tools, "MILEPOST_LEASE_S": "1"}


@pytest.fixture
async def on_postgres(
    postgres_database: str, model: DirectedModel, tmp_path: Path, warm: Warm
) -> AsyncIterator[Installation]:
    """An installation whose tools are deadly, with as many processes as one likes."""
    settings = deadly(postgres_database, model, tmp_path)
    async with installed(tmp_path, settings, warm) as installation:
        yield installation


@pytest.fixture
async def on_sqlite(
    sqlite_template: Path, model: DirectedModel, tmp_path: Path, warm: Warm
) -> AsyncIterator[Installation]:
    """One with one process at a time."""
    database = shutil.copy(sqlite_template, tmp_path / "milepost.db")
    async with installed(
        tmp_path, deadly(f"sqlite:///{database}", model, tmp_path), warm
    ) as installation:
        yield installation


async def crowd(installation: Installation, deadly: str) -> tuple[str, list[str]]:
    """Queue a deadly run among others, before anybody works; return it and them."""
    api = await installation.start(MILEPOST_SLOTS="0")
    made = [(await api.create(UNHURRIED))["id"] for _ in range(INNOCENTS // 2)]
    poison = (await api.create(deadly))["id"]
    made += [(await api.create(UNHURRIED))["id"] for _ in range(INNOCENTS - len(made))]
    await api.stop()
    return poison, made


async def assert_complete(api: Kept, innocents: list[str]) -> None:
    """See that all of them complete, and that none waits for anybody."""
    async with asyncio.timeout(OVER_S):
        for innocent in innocents:
            while (status := (await api.run_of(innocent))["status"]) != "completed":
                assert status in {"queued", "running"}, f"{innocent} is {status}"
                await asyncio.sleep(POLL_S)


async def stood_still(api: Kept, run_id: str) -> dict[str, object]:
    """Return the run once nobody drives it or is to drive it."""
    async with asyncio.timeout(OVER_S):
        while True:
            run = await api.run_of(run_id)
            if run["status"] not in {"queued", "running"}:
                return run
            await asyncio.sleep(POLL_S)


@pytest.mark.parametrize(
    ("words", "status", "deaths"),
    [(DEADLY, "waiting", 3), (DEADLY_BIT_BY_BIT, "completed", 4)],
    ids=["at once", "bit by bit"],
)
async def test_a_deadly_run_makes_no_other_wait_for_an_operator(
    on_postgres: Installation, words: str, status: str, deaths: int
) -> None:
    api = Kept(lambda: on_postgres.start(MILEPOST_SLOTS="0"))
    workers = [Kept(lambda: on_postgres.start_worker(MILEPOST_SLOTS=SLOTS)) for _ in range(WORKERS)]
    poison, innocents = await crowd(on_postgres, words)
    async with api.run(), workers[0].run(), workers[1].run():
        await assert_complete(api, innocents)
        run = await stood_still(api, poison)

    assert run["status"] == status
    assert sum(worker.deaths for worker in workers) == deaths


async def test_a_deadly_run_waits_for_an_operator_where_there_is_one_process(
    on_sqlite: Installation,
) -> None:
    service = Kept(lambda: on_sqlite.start(MILEPOST_SLOTS=SLOTS))
    poison, innocents = await crowd(on_sqlite, DEADLY)
    async with service.run():
        await assert_complete(service, innocents)
        run = await stood_still(service, poison)

    assert run["waiting_for"] == {"for": "operator", "pending": []}
    assert service.deaths == 3
