"""Secrets: ciphertext by name, a tenant's own."""

import pytest

from milepost.core.errors import NotFoundError
from milepost.store import secrets
from milepost.store.store import Store
from tests.store.making import TENANT


async def test_a_secret_is_got_back_as_it_was_put(store: Store) -> None:
    await store.write(secrets.put(TENANT, "token", "sealed", 1))

    assert await store.read(secrets.get(TENANT, "token")) == "sealed"


async def test_a_secret_takes_the_place_of_the_last_of_its_name(store: Store) -> None:
    await store.write(secrets.put(TENANT, "token", "old", 1))

    await store.write(secrets.put(TENANT, "token", "new", 2))

    assert await store.read(secrets.get(TENANT, "token")) == "new"
    assert await store.read(secrets.names(TENANT)) == ["token"]


async def test_names_are_listed_in_order(store: Store) -> None:
    for name in ("b", "a", "c"):
        await store.write(secrets.put(TENANT, name, "sealed", 1))

    assert await store.read(secrets.names(TENANT)) == ["a", "b", "c"]


async def test_a_deleted_secret_is_gone(store: Store) -> None:
    await store.write(secrets.put(TENANT, "token", "sealed", 1))

    await store.write(secrets.delete(TENANT, "token"))

    for work in (secrets.get(TENANT, "token"), secrets.delete(TENANT, "token")):
        with pytest.raises(NotFoundError) as caught:
            await store.write(work)
        assert caught.value.code == "secret_not_found"


async def test_tenants_do_not_see_each_other_s_secrets(store: Store) -> None:
    await store.write(secrets.put(TENANT, "token", "mine", 1))
    await store.write(secrets.put("other", "token", "theirs", 1))

    await store.write(secrets.delete("other", "token"))

    assert await store.read(secrets.get(TENANT, "token")) == "mine"
    assert await store.read(secrets.names("other")) == []
