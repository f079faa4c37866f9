"""Signed caches: what somebody else wrote, moved or changed is as good as nothing."""

import pytest

from milepost.providers.cache_memory import InProcessCache
from milepost.providers.cache_signed import SignedCache

KEY = "a secret key that nobody knows"


@pytest.fixture
def kept() -> InProcessCache:
    """What others can write to as well."""
    return InProcessCache()


async def test_what_was_kept_comes_back(kept: InProcessCache) -> None:
    cache = SignedCache(kept, KEY)

    await cache.set("acme:1", b"value", 60)

    assert await cache.get("acme:1") == b"value"
    assert await cache.get("acme:2") is None


@pytest.mark.parametrize("forged", [b"", b"value", b"\0" * 32 + b"value"])
async def test_what_nobody_signed_is_a_miss_and_forgotten(
    kept: InProcessCache, forged: bytes
) -> None:
    await kept.set("acme:1", forged, 60)

    assert await SignedCache(kept, KEY).get("acme:1") is None
    assert await kept.get("acme:1") is None


async def test_a_value_that_was_changed_is_a_miss(kept: InProcessCache) -> None:
    cache = SignedCache(kept, KEY)
    await cache.set("acme:1", b"pay 7", 60)
    signed = await kept.get("acme:1")
    assert signed is not None

    await kept.set("acme:1", signed.replace(b"7", b"9"), 60)

    assert await cache.get("acme:1") is None


async def test_a_value_that_was_moved_to_another_key_is_a_miss(kept: InProcessCache) -> None:
    cache = SignedCache(kept, KEY)
    await cache.set("acme:1", b"value", 60)
    signed = await kept.get("acme:1")
    assert signed is not None

    await kept.set("globex:1", signed, 60)

    assert await cache.get("globex:1") is None


async def test_another_key_believes_nothing(kept: InProcessCache) -> None:
    await SignedCache(kept, KEY).set("acme:1", b"value", 60)

    assert await SignedCache(kept, "another secret key altogether").get("acme:1") is None


async def test_purging_and_locking_are_the_caches_own(kept: InProcessCache) -> None:
    cache = SignedCache(kept, KEY)
    await cache.set("acme:1", b"value", 60)
    await cache.set("globex:1", b"value", 60)

    assert await cache.clear("acme:") == 1
    token = await cache.lock("globex:1", 60)
    assert token is not None
    assert await kept.lock("globex:1", 60) is None
    await cache.unlock("globex:1", token)
    assert await kept.lock("globex:1", 60) is not None
    assert (await cache.stats()).entries == 1
