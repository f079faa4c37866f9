"""Keys: found by their hash while they are valid, listed for good."""

from dataclasses import replace

import pytest

from milepost.core.errors import NotFoundError
from milepost.store import keys
from milepost.store.engine import CollisionError
from milepost.store.keys import KeyRow, NewKey
from milepost.store.records import Page
from milepost.store.store import Store
from tests.store.making import NOW_MS, TENANT, an_id

FAR_MS = 100 * NOW_MS


def a_key(expires_ms: int | None = None) -> NewKey:
    key_id = an_id("key")
    return NewKey(
        key_id, TENANT, "ci", f"hash of {key_id}", "mp_…abcd", '["admin"]', "ann", 5, expires_ms
    )


async def test_a_key_is_found_by_its_hash_with_all_that_it_allows(store: Store) -> None:
    key = a_key(FAR_MS)

    made = await store.write(keys.create(key))

    assert await store.read(keys.by_hash(key.hash)) == made
    assert made == KeyRow(
        key.id, TENANT, "ci", "mp_…abcd", '["admin"]', "ann", 5, FAR_MS, revoked_ms=None
    )


async def test_a_key_that_is_unknown_expired_or_revoked_is_not_found(store: Store) -> None:
    expired, revoked = a_key(expires_ms=1), a_key()
    await store.write(keys.create(expired))
    await store.write(keys.create(revoked))
    await store.write(keys.revoke(TENANT, revoked.id, 7))

    for hashed in ("hash of nothing", expired.hash, revoked.hash):
        assert await store.read(keys.by_hash(hashed)) is None
    assert not await store.read(keys.exist())


async def test_a_key_is_told_from_others_that_are_valid(store: Store) -> None:
    first, second, revoked = a_key(), a_key(), a_key()
    made = [await store.write(keys.create(key)) for key in (first, second, revoked)]

    await store.write(keys.revoke(TENANT, revoked.id, 7))

    assert await store.read(keys.by_hash("hash of nothing")) is None
    assert await store.read(keys.by_hash(revoked.hash)) is None
    for key, row in zip((first, second), made, strict=False):
        assert await store.read(keys.by_hash(key.hash)) == row
        assert await store.read(keys.find(TENANT, key.id)) == row


async def test_there_are_keys_once_there_is_a_valid_one(store: Store) -> None:
    before = await store.read(keys.exist())

    await store.write(keys.create(a_key()))

    assert (before, await store.read(keys.exist())) == (False, True)


async def test_a_key_that_was_revoked_keeps_its_first_time(store: Store) -> None:
    key = a_key()
    await store.write(keys.create(key))

    first = await store.write(keys.revoke(TENANT, key.id, 7))
    again = await store.write(keys.revoke(TENANT, key.id, 8))

    assert first == again == await store.read(keys.find(TENANT, key.id))
    assert first.revoked_ms == 7


async def test_all_keys_are_listed_in_pages(store: Store) -> None:
    made = [await store.write(keys.create(a_key(expires_ms=1))) for _ in range(3)]

    rows = await store.read(keys.search(TENANT, Page(1, after=made[2].id)))

    assert rows == [made[1], made[0]]


async def test_another_tenant_s_key_looks_as_if_it_were_not_there(store: Store) -> None:
    made = await store.write(keys.create(a_key()))

    for work in (keys.revoke("other", made.id, 7), keys.find("other", made.id)):
        with pytest.raises(NotFoundError) as caught:
            await store.write(work)
        assert caught.value.code == "key_not_found"
    assert await store.read(keys.search("other", Page(10))) == []
    assert await store.read(keys.exist())


async def test_no_two_keys_share_a_hash(store: Store) -> None:
    key = a_key()
    await store.write(keys.create(key))

    with pytest.raises(CollisionError):
        await store.write(keys.create(replace(key, id=an_id("key"), tenant="other")))


async def test_keys_are_called_by_name_within_their_tenant(store: Store) -> None:
    mine, theirs = a_key(), replace(a_key(), tenant="globex")
    for key in (mine, theirs):
        await store.write(keys.create(key))

    assert await store.read(keys.names(TENANT, [mine.id, theirs.id, "cli"])) == {mine.id: "ci"}
    assert await store.read(keys.names(TENANT, [])) == {}


async def test_a_person_s_keys_are_those_of_one_tenant(store: Store) -> None:
    mine, theirs = a_key(), replace(a_key(), tenant="other")
    for key in (mine, theirs, replace(a_key(), subject="ben")):
        await store.write(keys.create(key))

    assert await store.read(keys.of_subject(TENANT, "ann")) == {mine.id}
    assert await store.read(keys.of_subject("other", "ann")) == {theirs.id}
