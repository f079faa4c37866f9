"""Tool sources: a tenant's own, never changed."""

from dataclasses import replace

import pytest

from milepost.core.errors import ConflictError, NotFoundError
from milepost.store import tool_sources
from milepost.store.records import Page
from milepost.store.store import Store
from milepost.store.tool_sources import ToolSourceRow
from tests.store.making import TENANT

ROW = ToolSourceRow("tsr_1", TENANT, "shop", "http", "{}", "[]", '["a"]', 1)


async def test_a_source_is_found_as_it_was_kept(store: Store) -> None:
    await store.write(tool_sources.add(ROW))

    assert await store.read(tool_sources.find(TENANT, "tsr_1")) == ROW
    assert await store.read(tool_sources.tools(TENANT)) == [("shop", '["a"]')]


async def test_a_name_is_taken_once_by_each_tenant(store: Store) -> None:
    await store.write(tool_sources.add(ROW))
    await store.write(tool_sources.add(replace(ROW, id="tsr_2", tenant="globex")))

    with pytest.raises(ConflictError, match="'shop' already"):
        await store.write(tool_sources.add(replace(ROW, id="tsr_3")))


async def test_sources_are_listed_and_known_by_their_ids(store: Store) -> None:
    for number in (1, 2, 3):
        row = replace(ROW, id=f"tsr_{number}", name=f"shop-{number}")
        await store.write(tool_sources.add(row))

    page = await store.read(tool_sources.search(TENANT, Page(limit=1)))

    assert [row.id for row in page] == ["tsr_3", "tsr_2"]
    assert await store.read(tool_sources.ids(TENANT)) == ("tsr_1", "tsr_2", "tsr_3")
    assert [row.id for row in await store.read(tool_sources.all_of(TENANT))] == [
        "tsr_1", "tsr_2", "tsr_3",
    ]  # fmt: skip
    assert (await store.read(tool_sources.find(TENANT, "tsr_2"))).name == "shop-2"


async def test_another_tenant_s_source_does_not_exist(store: Store) -> None:
    await store.write(tool_sources.add(ROW))

    for work in (tool_sources.find("globex", "tsr_1"), tool_sources.delete("globex", "tsr_1")):
        with pytest.raises(NotFoundError):
            await store.write(work)
    assert await store.read(tool_sources.ids("globex")) == ()
    assert await store.read(tool_sources.tools("globex")) == []
    assert await store.read(tool_sources.all_of("globex")) == []
    assert await store.read(tool_sources.search("globex", Page(limit=1))) == []


async def test_a_deleted_source_is_gone_and_its_name_is_free(store: Store) -> None:
    await store.write(tool_sources.add(ROW))
    await store.write(tool_sources.add(replace(ROW, id="tsr_0", name="other")))

    await store.write(tool_sources.delete(TENANT, "tsr_1"))

    await store.write(tool_sources.add(replace(ROW, id="tsr_2")))
    assert await store.read(tool_sources.ids(TENANT)) == ("tsr_0", "tsr_2")
