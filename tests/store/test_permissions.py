"""A tenant's tool permissions: one map, changed as a whole."""

import pytest

from milepost.core.errors import ConflictError
from milepost.store import permissions
from milepost.store.permissions import PermissionsRow
from milepost.store.store import Store
from tests.store.making import TENANT


async def test_a_tenant_begins_with_an_empty_map(store: Store) -> None:
    row = await store.read(permissions.get(TENANT))

    assert row == PermissionsRow(TENANT, "{}", 0, None)


async def test_each_change_is_a_version_and_replaces_the_whole(store: Store) -> None:
    first = await store.read(permissions.get(TENANT))

    second = await store.write(permissions.replace(first, '{"pay": []}', 5))
    third = await store.write(permissions.replace(second, '{"add": ["ann"]}', 6))

    assert (second.version, third.version) == (1, 2)
    assert await store.read(permissions.get(TENANT)) == third
    assert third == PermissionsRow(TENANT, '{"add": ["ann"]}', 2, 6)


async def test_who_read_an_older_map_replaces_nothing(store: Store) -> None:
    first = await store.read(permissions.get(TENANT))
    second = await store.write(permissions.replace(first, "{}", 5))
    await store.write(permissions.replace(second, '{"pay": []}', 6))

    for stale in (first, second):
        with pytest.raises(ConflictError, match="read them again"):
            await store.write(permissions.replace(stale, '{"pay": ["*"]}', 7))

    assert (await store.read(permissions.get(TENANT))).permissions == '{"pay": []}'


async def test_another_tenant_s_map_is_its_own(store: Store) -> None:
    first = await store.read(permissions.get(TENANT))
    await store.write(permissions.replace(first, '{"pay": []}', 5))

    assert (await store.read(permissions.get("globex"))).version == 0
