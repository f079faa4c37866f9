"""The cache in the process's memory: its bounds and its clock."""

from milepost.providers.cache_memory import InProcessCache
from tests.clock import Clock


async def test_a_value_lapses_when_its_time_is_up() -> None:
    clock = Clock()
    cache = InProcessCache(clock)
    await cache.set("key", b"value", 10)

    clock.now += 9.9
    assert await cache.get("key") == b"value"
    clock.now += 0.1
    assert await cache.get("key") is None
    assert (await cache.stats()).entries == 0


async def test_what_was_not_used_for_longest_goes_first() -> None:
    cache = InProcessCache(entries_max=2)
    await cache.set("a", b"1", 60)
    await cache.set("b", b"2", 60)
    await cache.get("a")

    await cache.set("c", b"3", 60)

    assert [await cache.get(key) for key in "abc"] == [b"1", None, b"3"]
    assert (await cache.stats()).evictions == 1


async def test_many_bytes_are_bounded_like_many_entries() -> None:
    cache = InProcessCache(bytes_max=10)
    await cache.set("a", b"x" * 6, 60)
    await cache.set("a", b"x" * 8, 60)
    assert await cache.get("a") is not None

    await cache.set("b", b"x" * 6, 60)

    assert [await cache.get(key) for key in "ab"] == [None, b"x" * 6]


async def test_a_value_beyond_the_bound_is_not_kept() -> None:
    cache = InProcessCache(bytes_max=10)

    await cache.set("a", b"x" * 11, 60)

    assert (await cache.stats()).entries == 0


async def test_a_lock_lapses_and_its_old_token_opens_nothing() -> None:
    clock = Clock()
    cache = InProcessCache(clock)
    old = await cache.lock("key", 10)
    assert old is not None

    clock.now += 10
    new = await cache.lock("key", 10)
    await cache.unlock("key", old)

    assert new not in {None, old}
    assert await cache.lock("key", 10) is None
