"""What every cache of replies owes: one suite for memory and for Redis."""

import uuid
from collections.abc import AsyncIterator

import pytest

from milepost.providers.cache import CacheStats, ReplyCache
from milepost.providers.cache_memory import InProcessCache
from milepost.providers.cache_redis import RedisCache
from tests.providers.redis_stubs import PATIENT_S, patient_client


@pytest.fixture(params=["memory", "redis"])
async def cache(request: pytest.FixtureRequest) -> AsyncIterator[ReplyCache]:
    if request.param == "memory":
        yield InProcessCache()
        return
    redis = patient_client(request.getfixturevalue("redis_url"))
    yield RedisCache(redis, within_s=PATIENT_S)
    await redis.aclose()


@pytest.fixture
def key() -> str:
    """A key of this test alone: the server is shared."""
    return f"{uuid.uuid4().hex}:key"


async def test_what_was_kept_is_found(cache: ReplyCache, key: str) -> None:
    await cache.set(key, b"\x00value\xff", 60)

    assert await cache.get(key) == b"\x00value\xff"


async def test_what_was_never_kept_or_was_deleted_is_not(cache: ReplyCache, key: str) -> None:
    await cache.set(key, b"value", 60)

    await cache.delete(key)
    await cache.delete(key + "2")

    assert await cache.get(key) is None
    assert await cache.get(key + "2") is None


async def test_the_newest_value_counts(cache: ReplyCache, key: str) -> None:
    await cache.set(key, b"old", 60)
    await cache.set(key, b"new", 60)

    assert await cache.get(key) == b"new"


async def test_one_tenants_values_can_be_cleared_alone(cache: ReplyCache, key: str) -> None:
    await cache.set(key, b"mine", 60)
    await cache.set(key + "2", b"mine too", 60)
    await cache.set("0" + key, b"another's", 60)

    assert await cache.clear(key) == 2

    assert await cache.get(key) is None
    assert await cache.get("0" + key) == b"another's"


async def test_a_prefix_is_no_pattern(cache: ReplyCache, key: str) -> None:
    await cache.set(key, b"value", 60)

    assert await cache.clear(key[:4] + "*") == 0
    assert await cache.clear("?" + key[1:]) == 0


async def test_hits_and_misses_are_counted(cache: ReplyCache, key: str) -> None:
    assert (await cache.stats()).hit_rate == 0
    await cache.set(key, b"value", 60)

    for wanted in (key, key, key, key + "2"):
        await cache.get(wanted)

    stats = await cache.stats()
    assert (stats.hits, stats.misses, stats.failures) == (3, 1, 0)
    assert stats.hit_rate == 0.75


async def test_a_lock_has_one_holder_at_a_time(cache: ReplyCache, key: str) -> None:
    token = await cache.lock(key, 60)
    assert token is not None
    assert await cache.lock(key, 60) is None

    await cache.unlock(key, token)

    assert await cache.lock(key, 60) is not None


async def test_only_its_token_opens_a_lock(cache: ReplyCache, key: str) -> None:
    await cache.lock(key, 60)

    await cache.unlock(key, "somebody else's")

    assert await cache.lock(key, 60) is None


async def test_a_lock_is_no_value_and_is_not_cleared_as_one(cache: ReplyCache, key: str) -> None:
    await cache.lock(key, 60)

    assert await cache.get(key) is None
    assert await cache.clear(key) == 0
    assert await cache.lock(key, 60) is None


def test_the_rate_of_hits_is_a_share() -> None:
    assert CacheStats(hits=1, misses=3).hit_rate == 0.25
