"""A session that is erased leaves nothing behind in Redis, either."""

from collections.abc import AsyncIterator
from typing import Any, TypeVar

import pytest
from redis.asyncio import Redis

from milepost.live.hub import LiveText
from milepost.live.text_buffers import TextBuffers
from milepost.store import opening, sessions
from milepost.store.engine import DatabaseUnavailableError
from milepost.store.work import Work
from tests.api.making import an_agent, an_ended_run, made
from tests.api.serving import serving, settings_for
from tests.store.breaking import BreakingEngine

T = TypeVar("T")

REDIS_DATABASE = 11
MARKER = "said-in-confidence"


class Unheard(BreakingEngine):
    """A line over which no answer comes that tells of a session that is gone."""

    async def write(self, work: Work[T]) -> T:
        """Do work in one transaction."""
        result = await super().write(work)
        if isinstance(result, sessions.Erased):
            raise DatabaseUnavailableError("the connection broke")
        return result


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A Redis database of the test's own."""
    async with Redis.from_url(f"{redis_url.rpartition('/')[0]}/{REDIS_DATABASE}") as redis:
        await redis.flushdb()
        yield redis
        await redis.flushdb()


async def values(redis: Redis) -> str:
    """Return all that Redis has, as text."""
    found = []
    async for key in redis.scan_iter():
        found.append(repr(key))
        if await redis.type(key) == b"string":
            found.append(repr(await redis.get(key)))
        else:
            found.append(repr(await redis.dump(key)))
    return " ".join(found)


async def write(redis: Redis, run_id: str) -> None:
    """Leave a text there as a worker does that dies before it has closed it."""
    pipe = redis.pipeline(transaction=False)
    TextBuffers(redis).add(pipe, run_id, LiveText("message.delta", "msg_x", 1), MARKER, 0)
    await pipe.execute()
    assert MARKER in await values(redis)


async def test_live_text_goes_with_its_session(
    redis: Redis, redis_url: str, sqlite_database_url: str
) -> None:
    own = f"{redis_url.rpartition('/')[0]}/{REDIS_DATABASE}"
    settings = settings_for(sqlite_database_url, redis_url=own)
    async with serving(settings) as service, service.client() as client:
        await made(client, "/v1/agents", an_agent())
        run = await an_ended_run(client)
        await write(redis, run["id"])

        gone = await client.delete(f"/v1/sessions/{run['session_id']}")

        assert gone.status_code == 204
        assert MARKER not in await values(redis)


async def test_live_text_goes_with_its_session_though_nobody_heard_that_it_is_gone(
    redis: Redis, redis_url: str, sqlite_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_open = opening.open_engine

    async def open_engine(*args: Any, **kwargs: Any) -> Unheard:
        return Unheard(await really_open(*args, **kwargs))

    monkeypatch.setattr(opening, "open_engine", open_engine)
    own = f"{redis_url.rpartition('/')[0]}/{REDIS_DATABASE}"
    settings = settings_for(sqlite_database_url, redis_url=own)
    async with serving(settings) as service, service.client() as client:
        await made(client, "/v1/agents", an_agent())
        run = await an_ended_run(client)
        await write(redis, run["id"])

        unheard = await client.delete(f"/v1/sessions/{run['session_id']}")

        assert unheard.status_code == 503
        assert (await client.get(f"/v1/sessions/{run['session_id']}")).status_code == 404
        assert MARKER not in await values(redis)
