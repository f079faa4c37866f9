"""The cache in Redis: its times, its keys, and its absence."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from milepost.providers.cache import CacheStats
from milepost.providers.cache_redis import (
    LOCK_PREFIX,
    OWNER_PREFIX,
    VALUE_PREFIX,
    RedisCache,
    connect,
)
from milepost.providers.redis_asking import OPERATION_S_MAX, REST_S
from tests.clock import Clock
from tests.providers.redis_stubs import PATIENT_S, patient_client, relaying, scripted_server


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    redis = patient_client(redis_url)
    yield redis
    await redis.aclose()


@pytest.fixture
def key() -> str:
    return f"{uuid.uuid4().hex}:key"


class DeafServer:
    """Takes connections, counts them, and answers nothing."""

    def __init__(self) -> None:
        self.url = ""
        self.connections = 0
        self._closing = asyncio.Event()

    async def __aenter__(self) -> "DeafServer":
        self._server = await asyncio.start_server(self._listen, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing.set()
        self._server.close()
        await self._server.wait_closed()

    async def _listen(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await self._closing.wait()
        writer.close()


async def test_the_server_lets_values_and_locks_lapse(redis: Redis, key: str) -> None:
    cache = RedisCache(redis, within_s=PATIENT_S)

    await cache.set(key, b"value", 60)
    await cache.lock(key, 20)

    assert 59_000 < await redis.pttl(VALUE_PREFIX + key) <= 60_000
    assert 19_000 < await redis.pttl(LOCK_PREFIX + key) <= 20_000


async def test_the_shortest_time_is_a_millisecond(redis: Redis, key: str) -> None:
    cache = RedisCache(redis, within_s=PATIENT_S)

    await cache.set(key, b"value", 0.0001)

    assert (await cache.stats()).failures == 0


async def test_a_value_is_known_as_somebodys_for_as_long_as_it_is_there(
    redis: Redis, key: str
) -> None:
    cache, ann = RedisCache(redis, within_s=PATIENT_S), f"{key}:ann"
    await cache.set(key, b"value", 60)

    await cache.mark(key, ann, 0.001)

    assert 50_000 < await redis.pttl(OWNER_PREFIX + ann) <= 60_000
    assert await cache.forget(ann) == 1
    assert await cache.get(key) is None


async def test_many_values_are_cleared(redis: Redis, key: str) -> None:
    cache = RedisCache(redis, within_s=PATIENT_S)
    await redis.mset({f"{VALUE_PREFIX}{key}{n}": b"x" for n in range(1_200)})

    assert await cache.clear(key) == 1_200


async def test_nothing_fails_where_nobody_listens(unused_tcp_port: int) -> None:
    redis = connect(f"redis://127.0.0.1:{unused_tcp_port}/0")
    cache = RedisCache(redis)

    await cache.set("key", b"value", 60)
    await cache.delete("key")
    await cache.unlock("key", "token")

    assert await cache.get("key") is None
    assert await cache.clear() == 0
    assert await cache.lock("key", 60) is not None
    assert (await cache.stats()).failures == 6
    await redis.aclose()


async def test_a_silent_redis_is_waited_for_once_and_then_left_alone() -> None:
    clock = Clock()
    async with DeafServer() as server:
        redis = connect(server.url)
        cache = RedisCache(redis, clock=clock)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await cache.get("key")
        first_s = loop.time() - began

        for _ in range(1_000):
            await cache.get("key")

        rest_s = loop.time() - began - first_s
        await redis.aclose()

    assert first_s < OPERATION_S_MAX + 1
    assert rest_s < 0.1
    assert server.connections == 1


async def test_after_the_rest_one_caller_tries_and_the_others_go_without() -> None:
    clock = Clock()
    async with DeafServer() as server:
        redis = connect(server.url)
        cache = RedisCache(redis, clock=clock)
        await cache.get("key")
        clock.now += REST_S

        await asyncio.gather(*(cache.get("key") for _ in range(10)))

        await redis.aclose()

    assert server.connections == 2


async def test_a_redis_that_answers_again_is_used_again(redis: Redis, key: str) -> None:
    clock = Clock()
    cache = RedisCache(redis, within_s=PATIENT_S, clock=clock)
    await redis.lpush(VALUE_PREFIX + key, "a list, where a value should be")
    failed = await cache.get(key)
    await redis.set(VALUE_PREFIX + key, b"value", ex=60)
    resting = await cache.get(key)

    clock.now += REST_S

    assert (failed, resting) == (None, None)
    assert [await cache.get(key) for _ in range(2)] == [b"value", b"value"]
    assert (await cache.stats()).failures == 2


async def test_a_redis_that_is_left_alone_is_told_once_and_so_is_its_return(
    redis: Redis, key: str
) -> None:
    told: list[str] = []
    clock = Clock()
    cache = RedisCache(
        redis, within_s=PATIENT_S, clock=clock, on_change=lambda error: told.append(str(error))
    )
    await redis.lpush(VALUE_PREFIX + key, "a list, where a value should be")
    await cache.get("another")
    for _ in range(3):
        await asyncio.gather(*(cache.get(key) for _ in range(2)))
        clock.now += REST_S
    await redis.delete(VALUE_PREFIX + key)

    await cache.get(key)
    await cache.get(key)

    lost, back = told
    assert "WRONGTYPE" in lost
    assert back == "None"


async def test_who_is_cancelled_while_asking_for_a_lock_leaves_none(
    redis_url: str, redis: Redis, key: str
) -> None:
    async with relaying(redis_url) as relay, patient_client(relay.url) as relayed:
        cache = RedisCache(relayed, within_s=PATIENT_S)
        await cache.get(key)  # Now there is a connection.
        relay.holds = True
        asking = asyncio.create_task(cache.lock(key, 60.0))
        await relay.held.wait()

        relay.holds = False
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

        assert not await redis.exists(LOCK_PREFIX + key)


async def test_a_cancellation_is_never_lost_in_the_middle_of_a_command(
    redis: Redis, key: str
) -> None:
    await redis.ping()

    async def look_twice() -> None:
        await redis.get(key)
        await redis.get(key)

    for turns in range(5):
        looking = asyncio.create_task(look_twice())
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not looking.done()
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking


async def test_a_connection_that_redis_has_closed_is_made_anew(
    redis_url: str, redis: Redis, key: str
) -> None:
    """Redis hangs up on who is idle, and on everybody when it is started anew."""
    async with patient_client(redis_url) as idle:
        cache = RedisCache(idle, within_s=PATIENT_S)
        await cache.set(key, b"value", 60.0)
        [kept] = idle.connection_pool._available_connections

        await redis.client_kill_filter(_id=str(await idle.client_id()))
        async with asyncio.timeout(PATIENT_S):
            while not await kept.can_read():  # noqa: ASYNC110 - a hang-up rings no bell
                await asyncio.sleep(0)

        assert await cache.get(key) == b"value"
        assert (await cache.stats()).failures == 0


async def test_an_answer_that_nobody_asked_for_is_nobodys(redis_url: str, key: str) -> None:
    """Else each caller would be given what the one before had asked for, from then on."""
    async with relaying(redis_url) as relay, patient_client(relay.url) as relayed:
        cache = RedisCache(relayed, within_s=PATIENT_S)
        await cache.set(f"{key}:one", b"one", 60.0)
        await cache.set(f"{key}:other", b"other", 60.0)

        relay.doubles = True
        one = await cache.get(f"{key}:one")
        relay.doubles = False
        other = await cache.get(f"{key}:other")

    assert (one, other) == (b"one", b"other")


async def test_a_new_connection_asks_for_nothing_that_a_far_redis_has_no_time_for(
    redis_url: str, key: str
) -> None:
    """Each of its round trips is part of the time within which the first answer has to come."""
    async with relaying(redis_url) as relay, patient_client(relay.url) as relayed:
        await RedisCache(relayed, within_s=PATIENT_S).get(key)

    said = [word for word in relay.said.split(b"\r\n") if word.isalpha()]
    assert said == [b"HELLO", b"GET"]


@pytest.mark.parametrize("said", [b"-MOVED\r\n", b">0\r\n", b"@\xff\r\n"])
async def test_answers_that_no_redis_gives_are_misses(key: str, said: bytes) -> None:
    """The library that reads them raises what comes to it."""
    told: list[Exception | None] = []

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(65_536):
            writer.write(said)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    async with server:
        redis = connect(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0")
        cache = RedisCache(redis, on_change=told.append, within_s=PATIENT_S)

        assert await cache.get(key) is None
        await cache.set(key, b"value", 60.0)
        assert await cache.lock(key, 60.0)

        await redis.aclose()

    assert len(told) == 1
    assert (await cache.stats()).failures == 3


@pytest.mark.parametrize("said", [b":7\r\n", b"*0\r\n", b"%0\r\n"])
async def test_a_value_of_a_kind_that_is_never_kept_is_a_miss(key: str, said: bytes) -> None:
    async with scripted_server(said) as url, patient_client(url) as redis:
        cache = RedisCache(redis, within_s=PATIENT_S)

        assert await cache.get(key) is None
        assert await cache.stats() == CacheStats(hits=0, misses=1, failures=1)


PAGE = b"*2\r\n$1\r\n0\r\n*1\r\n$3\r\nkey\r\n"


@pytest.mark.parametrize("said", [[b"+OK\r\n"], [b"*2\r\n:0\r\n:1\r\n"], [PAGE, b"_\r\n"]])
async def test_clearing_ends_with_an_answer_of_another_kind(key: str, said: list[bytes]) -> None:
    async with scripted_server(*said) as url, patient_client(url) as redis:
        assert await RedisCache(redis, within_s=PATIENT_S).clear(key) == 0


MARKED = b"*1\r\n*2\r\n$3\r\nkey\r\n,1\r\n"


@pytest.mark.parametrize("said", [[b"+OK\r\n"], [b"*1\r\n*2\r\n:1\r\n,1\r\n"], [MARKED, b"_\r\n"]])
async def test_forgetting_ends_with_an_answer_of_another_kind(key: str, said: list[bytes]) -> None:
    async with scripted_server(*said) as url, patient_client(url) as redis:
        assert await RedisCache(redis, within_s=PATIENT_S).forget(key) == 0
