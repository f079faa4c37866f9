"""Many processes on a Postgres behind a pooler, and a Redis: all may come and go at any time."""

import asyncio
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio
from redis.asyncio import Redis

from milepost.client import Event, Milepost, Patience
from tests.databases import database, named
from tests.journeys.balancer import Balancer, balanced
from tests.journeys.conftest import AGENTS, environment
from tests.journeys.processes import Event as Frame
from tests.journeys.processes import Installation, Server, assert_sound, durable, installed, types
from tests.pooler import Pooler, pooled
from tests.stubs.directed_model import DirectedModel, directed_model
from tests.torture.servers import ServerProcess, valkey

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

WAIT_S = 240.0
PATIENT = Patience(tries_max=50, wait_s=0.2, asked_s_max=0.5)
WORDS = "one two three four five six seven eight nine ten"
ON_AND_ON = f"slowly 20\non and on\n{WORDS}"
OPEN_STREAMS = 6
PROVIDERS = """
[providers.limited]
wire = "openai"
base_url = "{base_url}"
requests_per_minute = 1000
"""
LIMITED = """
[[agents]]
name = "limited"
model = "limited/directed"
"""


@dataclass(slots=True)
class Site:
    """Two APIs behind a balancer, two workers, a Redis of their own and a pooler."""

    installation: Installation
    redis: ServerProcess
    pooler: Pooler
    database_url: str
    apis: list[Server]
    workers: list[Server]
    balancer: Balancer

    async def start_api(self) -> Server:
        """Start one more, and let the balancer know it."""
        api = await self.installation.start(MILEPOST_SLOTS="0")
        self.apis.append(api)
        self.balancer.ports.append(port_of(api))
        return api

    async def stop_api(self, old: Server) -> int:
        """End one as an orchestrator would, and return its exit code."""
        self.apis.remove(old)
        code = await old.stop()
        self.balancer.ports.remove(port_of(old))
        return code

    def driver_of(self, worker_ids: Sequence[str]) -> Server:
        """Return the worker that took the run last."""
        return next(one for one in self.workers if f"-{one.process.pid}-" in worker_ids[-1])


def port_of(server: Server) -> int:
    port = server.http.base_url.port
    assert port
    return port


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model() -> AsyncIterator[DirectedModel]:
    """A model that the tests direct by what they say."""
    async with directed_model() as serving:
        yield serving


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    postgres_url: str, model: DirectedModel, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    """All of it, running."""
    folder = tmp_path_factory.mktemp("site")
    with database(postgres_url) as name:
        async with (
            pooled(named(postgres_url, name)) as (url, pooler),
            redis_of_our_own() as redis,
            installed(folder, _environment(url, redis.url, model, folder)) as installation,
            balanced() as balancer,
        ):
            direct = named(postgres_url, name)
            site = Site(installation, redis, pooler, direct, [], [], balancer)
            await site.start_api()
            workers = (installation.start_worker() for _ in range(2))
            _, *site.workers = await asyncio.gather(site.start_api(), *workers)
            yield site


@asynccontextmanager
async def redis_of_our_own() -> AsyncIterator[ServerProcess]:
    async with valkey() as server:
        if server is None:
            pytest.skip("no Valkey on this machine")
        yield server


def _environment(
    database_url: str, redis_url: str, model: DirectedModel, folder: Path
) -> dict[str, str]:
    providers = folder / "providers.toml"
    providers.write_text(PROVIDERS.format(base_url=model.base_url))
    settings = environment(database_url, model, folder)
    Path(settings["MILEPOST_AGENTS"]).write_text(AGENTS + LIMITED)
    return {**settings, "MILEPOST_REDIS_URL": redis_url, "MILEPOST_PROVIDERS": str(providers)}


@pytest_asyncio.fixture(loop_scope="module")
async def client(site: Site) -> AsyncIterator[Milepost]:
    """A client that knows the balancer alone."""
    async with Milepost(site.balancer.base_url, patience=PATIENT) as client:
        yield client


async def followed(client: Milepost, run_id: str) -> list[Event]:
    """Read a stream to its end, wherever it is served."""
    async with asyncio.timeout(WAIT_S):
        return [event async for event in client.runs.stream(run_id)]


def assert_seen_once(events: Sequence[Event]) -> None:
    """Assert that each event of the log came once, and each text to the letter."""
    log = [event for event in events if event.seq is not None]
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert log[-1].type == "run.completed", log[-1]
    written: defaultdict[str, str] = defaultdict(str)
    for event in events:
        if event.type == "message.delta":
            written[event.data["message_id"]] += event.data["text"]
    completed = [event.data for event in log if event.type == "message.completed"]
    assert all(written[each["message_id"]] == each["content"] for each in completed)


async def test_every_server_shows_every_run_alike(site: Site) -> None:
    said = [f"slowly 5\n{WORDS} {number}" for number in range(8)]
    runs = [await site.apis[n % 2].create(text) for n, text in enumerate(said)]

    seen = await asyncio.gather(*(api.whole(run["id"]) for run in runs for api in site.apis))

    for one, other in zip(seen[::2], seen[1::2], strict=True):
        assert_sound(one)
        assert durable(one) == durable(other)
    assert site.pooler.transactions > 100


async def test_a_rolling_restart_of_the_servers_loses_and_doubles_nothing(
    site: Site, client: Milepost, model: DirectedModel
) -> None:
    model.enough.clear()
    runs = [await client.runs.create("clerk", ON_AND_ON) for _ in range(OPEN_STREAMS)]
    streams = [asyncio.create_task(followed(client, run.id)) for run in runs]
    old = list(site.apis)
    farewells = [asyncio.create_task(api.whole(runs[0].id)) for api in old]
    for api in old:
        await api.until(runs[0].id, "message.delta")

    await asyncio.gather(*(site.start_api() for _ in old))
    codes = [await site.stop_api(api) for api in old]

    model.enough.set()
    assert codes == [0, 0]
    for farewell in farewells:
        assert (await farewell)[-1].type == "stream.reconnect"
    for stream in streams:
        assert_seen_once(await stream)


async def test_a_worker_that_is_stopped_hands_its_run_over_and_the_stream_goes_on(
    site: Site, client: Milepost, model: DirectedModel
) -> None:
    model.enough.clear()
    run = await client.runs.create("clerk", ON_AND_ON)
    watching = asyncio.create_task(followed(client, run.id))
    seen = await site.apis[0].until(run.id, "message.delta")
    stopped = site.driver_of([event.data["data"]["worker"] for event in seen if _is_taken(event)])

    code = await stopped.stop()
    model.enough.set()

    events = await watching
    assert code == 0
    assert_seen_once(events)
    resumed = next(event for event in events if event.type == "run.resumed")
    assert resumed.data["why"] == "drain"
    assert site.driver_of([resumed.data["worker"]]) is not stopped
    site.workers.remove(stopped)
    site.workers.append(await site.installation.start_worker())


def _is_taken(event: Frame) -> bool:
    return event.type in {"run.started", "run.resumed"}


async def test_a_transactional_tool_writes_through_the_pooler(site: Site) -> None:
    with psycopg.connect(site.database_url) as connection:
        connection.execute("CREATE TABLE visitors (place TEXT, many INTEGER)")
        connection.execute("INSERT INTO visitors VALUES ('here', 0)")

    runs = [await site.apis[0].create('call count {"place": "here"}') for _ in range(6)]
    for run in runs:
        events = await site.apis[1].whole(run["id"])
        assert_sound(events)
        assert "tool_call.completed" in types(events)

    with psycopg.connect(site.database_url) as connection:
        assert connection.execute("SELECT many FROM visitors").fetchall() == [(6,)]


async def test_a_redis_that_dies_and_another_that_takes_its_place_cost_nothing_but_typing(
    site: Site, client: Milepost, model: DirectedModel
) -> None:
    model.enough.clear()
    open_all_along = await client.runs.create("limited", ON_AND_ON)
    watching = asyncio.create_task(followed(client, open_all_along.id))
    await site.apis[0].until(open_all_along.id, "message.delta")
    await ended(client, "cached", "what is cached")

    await site.redis.crash(signal.SIGKILL)
    for agent in ("clerk", "limited", "cached"):
        await ended(client, agent, "hello")
    await site.redis.start()
    await text_is_live(site)
    model.enough.set()

    assert_seen_once(await watching)
    await ended(client, "limited", "hello")
    async with asyncio.timeout(WAIT_S):  # Who found Redis away leaves it alone for a while.
        while "cache.hit" not in {event.type for event in await ended(client, "cached", "again")}:
            pass


async def test_a_redis_that_is_emptied_all_the_time_costs_no_event_and_no_text(
    site: Site, client: Milepost, model: DirectedModel
) -> None:
    model.enough.clear()
    run = await client.runs.create("limited", ON_AND_ON)
    watching = asyncio.create_task(followed(client, run.id))
    await site.apis[0].until(run.id, "message.delta")
    async with Redis.from_url(site.redis.url) as redis:
        for said in WORDS.split():
            await redis.flushall()
            await ended(client, "cached", said)
    await text_is_live(site)
    model.enough.set()

    assert_seen_once(await watching)


async def ended(client: Milepost, agent: str, said: str) -> list[Event]:
    """Start a run and read it to its good end."""
    events = await followed(client, (await client.runs.create(agent, said)).id)
    assert_seen_once(events)
    return events


async def text_is_live(site: Site) -> None:
    """Wait until text that is being written is shown by a process that does not write it."""
    async with asyncio.timeout(WAIT_S):
        while True:
            run = await site.apis[0].create(f"slowly 20\n{WORDS}")
            events = await site.apis[1].whole(run["id"])
            assert_sound(events)
            if sum(event.type == "message.delta" for event in events) > 2:
                return
