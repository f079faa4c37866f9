"""A session that is erased leaves nothing behind in Redis, either."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from milepost.live.hub import LiveText
from milepost.live.text_buffers import TextBuffers
from tests.api.making import an_agent, an_ended_run, made
from tests.api.serving import serving, settings_for

REDIS_DATABASE = 11
MARKER = "said-in-confidence"


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
