"""Runs that many clients follow at once, each over connections that break all the time.

There are two servers that drive nothing, a worker beside them, and a Redis that is emptied again
and again. All of them live in one event loop, each with its own hub, link and pool.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import orjson
from redis.asyncio import Redis

from tests.api.serving import Service, serving, settings_for
from tests.journeys.cut_client import Cut, CutClient
from tests.live.client import Client
from tests.stubs.directed_model import DirectedModel

RUNS_AT_ONCE = 6
CLIENTS_A_RUN = 4
LATE_CLIENTS_A_RUN = 4
FLUSH_EVERY_CUTS = 25
POLL_S = 0.005

# Every kind of character that a careless cut would tear apart, and every line end but the two.
WORDS = "na\u00efve 🎉👍🏽 e\u0301t\u00e9 漢字 🇩🇪 \u2028 line\u0085end"
CALL = 'call add {"a": 17, "b": 25}'
AGENTS = """
[[agents]]
name = "parrot"
model = "openai/directed"
instructions = "Say it."
tools = ["add"]
"""


@dataclass(slots=True)
class Fleet:
    """Two servers and a worker on the same databases."""

    one: Service
    other: Service
    redis: Redis

    @property
    def ports(self) -> tuple[int, int]:
        """Where the two servers listen."""
        one, other = (urlsplit(service.base_url).port for service in (self.one, self.other))
        assert one
        assert other
        return one, other


@asynccontextmanager
async def fleet(
    database_url: str, redis_url: str, model: DirectedModel, folder: Path
) -> AsyncIterator[Fleet]:
    """Start all of it. The Redis database is emptied, so it must be nobody else's."""
    agents = folder / "agents.toml"
    agents.write_text(AGENTS)
    shared: dict[str, Any] = {
        "redis_url": redis_url,
        "agents": str(agents),
        "openai_base_url": model.base_url,
        "openai_api_key": "none",
        "state_dir": folder,
        "artifacts_dir": str(folder / "artifacts"),
    }
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(Redis.from_url(redis_url))
        await stack.enter_async_context(serving(settings_for(database_url, **shared)))
        one, other = [
            await stack.enter_async_context(serving(settings_for(database_url, slots=0, **shared)))
            for _ in range(2)
        ]
        yield Fleet(one, other, redis)


@dataclass(slots=True)
class Toll:
    """What was done: cuts by kind, runs, clients, and how often Redis was emptied."""

    cuts: Counter[Cut]
    runs: int = 0
    clients: int = 0
    flushes: int = 0


Follow = Callable[[Fleet, Random, Toll], Coroutine[Any, Any, None]]


async def storm(fleet: Fleet, *, cuts: int, seed: int, follow: Follow | None = None) -> Toll:
    """Have clients follow runs until so many connections were cut. Raises at the first mistake."""
    toll = Toll(Counter())
    chance = Random(seed)
    follow = follow or _run
    flushing = asyncio.create_task(_flush(fleet.redis, toll))
    try:
        while toll.cuts.total() < cuts and not flushing.done():
            async with asyncio.TaskGroup() as tasks:
                for _ in range(RUNS_AT_ONCE):
                    tasks.create_task(follow(fleet, Random(chance.random()), toll))
    finally:
        flushing.cancel()
        await asyncio.wait({flushing})
    if not flushing.cancelled():
        flushing.result()
    return toll


async def _flush(redis: Redis, toll: Toll) -> None:
    """Empty Redis whenever so many more connections were cut."""
    while True:
        if toll.cuts.total() >= FLUSH_EVERY_CUTS * (toll.flushes + 1):
            await redis.flushdb()
            toll.flushes += 1
        await asyncio.sleep(POLL_S)


async def _run(fleet: Fleet, chance: Random, toll: Toll) -> None:
    """Start a run; follow it while it is written and, with others, once more when it is over."""
    service = chance.choice((fleet.one, fleet.other))
    said = chance.choice([CALL, f"slowly 2\n{' '.join([WORDS] * chance.randint(6, 16))}"])
    async with service.client() as http:
        created = await http.post("/v1/runs", json={"agent": "parrot", "input": said})
        run_id = created.json()["id"]
        read: list[Client] = []
        for many in (CLIENTS_A_RUN, LATE_CLIENTS_A_RUN):
            followers = [
                CutClient(
                    fleet.ports,
                    f"/v1/runs/{run_id}/events",
                    Random(chance.random()),
                    toll.cuts,
                    Client(),
                )
                for _ in range(many)
            ]
            read += await asyncio.gather(*(follower.follow() for follower in followers))
        log = await http.get(
            f"/v1/runs/{run_id}/events", headers={"accept": "application/x-ndjson"}
        )
    events = [orjson.loads(line) for line in log.text.split("\n") if line]
    for client in read:
        _check(client, events)
    toll.runs += 1
    toll.clients += len(read)


def _check(client: Client, log: list[dict[str, Any]]) -> None:
    """Assert that a client has each event once, and each text to the letter."""
    assert log[-1]["type"] == "run.completed", log[-1]
    assert [sent.body for sent in client.seen if sent.seq is not None] == log
    contents = {
        event["data"]["message_id"]: event["data"]["content"]
        for event in log
        if event["type"] == "message.completed" and event["data"]["content"]
    }
    assert {message_id: text.encode() for message_id, text in client.texts.items()} == {
        message_id: text.encode() for message_id, text in contents.items()
    }
