"""Which tools a tenant has, and how soon everybody knows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import orjson
import pytest
from aiohttp import web

from milepost.core.errors import ConflictError
from milepost.runtime.secrets import Vault
from milepost.runtime.stored_secrets import StoredSecrets
from milepost.runtime.tool_source import SOURCE, Source, encode_listing, encode_source
from milepost.runtime.toolsets import FRESH_MS, Toolsets
from milepost.store import tool_sources
from milepost.store.tool_sources import ToolSourceRow
from milepost.tools import Registry, tool, tool_of
from milepost.tools.egress import Egress, open_egress
from milepost.tools.mcp.listing import ListedTool
from tests.runtime.tools import add
from tests.runtime.workshop import TENANT, Workshop
from tests.stubs.mcp_over_http import mcp_over_http, told
from tests.tools.http.calling import called


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    """A way out that is never used."""
    async with open_egress() as egress:
        yield egress


def toolsets_of(shop: Workshop, egress: Egress) -> Toolsets:
    """Return the toolsets of one process."""
    registry = Registry([tool_of(add)])
    return Toolsets(
        registry, shop.store, egress, StoredSecrets(shop.store, Vault(None)), clock=shop.clock
    )


async def declared(shop: Workshop, *names: str, source: str = "screen") -> str:
    """Have another process keep a source of client-side tools; return its id."""
    tools = [
        {"name": name, "description": "X.", "parameters": {"type": "object"}} for name in names
    ]
    made = SOURCE.validate_python({"kind": "client", "name": source, "tools": tools})
    return await kept(shop, made, *names)


async def kept(shop: Workshop, source: Source, *names: str) -> str:
    """Have another process keep a source; return its id."""
    source_id = shop.new_id("tsr")
    tools, spec = orjson.dumps(names).decode(), encode_source(source)
    listing = encode_listing([ListedTool(name, "X.", {}) for name in names])
    row = ToolSourceRow(
        source_id, TENANT, source.name, source.kind, spec, listing, tools, shop.clock()
    )
    await shop.store.write(tool_sources.add(row))
    return source_id


def long_to_read() -> Source:
    """Return a source whose tools take a while to make."""
    others = {f"S{at}": {"type": "string", "minLength": 1} for at in range(400)}
    schema = {"properties": {name: {"$ref": f"#/schemas/{name}"} for name in others}}
    taken = [{"name": "q", "in": "query", "style": "deepObject", "schema": {"$ref": "#/schema"}}]
    document = {
        "openapi": "3.1.0",
        "servers": [{"url": "https://api.example"}],
        "paths": {
            f"/{at}": {"get": {"operationId": f"op{at}", "parameters": taken}} for at in range(50)
        },
        "schemas": others,
        "schema": {"type": "object", **schema},
    }
    return SOURCE.validate_python({"kind": "openapi", "name": "long", "document": document})


async def turns_during(work: Awaitable[object]) -> int:
    """Return how often the loop came round to others before `work` was done."""
    turns = 0
    task = asyncio.ensure_future(work)
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    await task
    return turns


async def test_a_tenant_that_declared_nothing_has_what_everybody_has(
    shop: Workshop, egress: Egress
) -> None:
    toolsets = toolsets_of(shop, egress)

    assert await toolsets.of(TENANT) is toolsets.installed


async def test_what_another_process_keeps_is_seen_after_a_second_and_not_asked_for_before(
    shop: Workshop, egress: Egress
) -> None:
    toolsets = toolsets_of(shop, egress)
    await toolsets.of(TENANT)
    source_id = await declared(shop, "click")

    at_once = (await toolsets.of(TENANT)).names
    shop.clock.ahead_ms += FRESH_MS
    later = (await toolsets.of(TENANT)).names
    await shop.store.write(tool_sources.delete(TENANT, source_id))
    shop.clock.ahead_ms += FRESH_MS

    assert at_once == ("add",)
    assert later == ("add", "click")
    assert (await toolsets.of(TENANT)).names == ("add",)


async def test_what_this_process_keeps_is_seen_at_once(shop: Workshop, egress: Egress) -> None:
    toolsets = toolsets_of(shop, egress)
    await toolsets.of(TENANT)
    await declared(shop, "click")

    toolsets.forget(TENANT)

    assert "click" in await toolsets.of(TENANT)


async def test_what_did_not_change_is_not_made_again(shop: Workshop, egress: Egress) -> None:
    toolsets = toolsets_of(shop, egress)
    await declared(shop, "click")
    before = await toolsets.of(TENANT)
    shop.clock.ahead_ms += FRESH_MS

    assert await toolsets.of(TENANT) is before

    await declared(shop, "swipe", source="other")
    shop.clock.ahead_ms += FRESH_MS
    after = await toolsets.of(TENANT)
    assert after.names == ("add", "click", "swipe")
    assert after.get("click") is before.get("click")


async def test_the_installation_s_tool_goes_before_a_tenant_s_and_an_earlier_source_s_too(
    shop: Workshop, egress: Egress
) -> None:
    """Neither can be declared; a later version of the installation may take a name."""
    toolsets = toolsets_of(shop, egress)
    await declared(shop, "add", "click")
    await declared(shop, "click", "swipe", source="other")

    tools = await toolsets.of(TENANT)

    assert tools.names == ("add", "click", "swipe")
    assert tools.kind("add") == "server"
    with pytest.raises(ConflictError, match="the installation has a tool 'add'"):
        toolsets.require_free("add")


async def test_a_tool_that_is_added_to_the_installation_reaches_tenants_with_their_own(
    shop: Workshop, egress: Egress
) -> None:
    toolsets = toolsets_of(shop, egress)
    await declared(shop, "click")
    await toolsets.of(TENANT)

    @tool
    def multiply(a: int, b: int) -> int:
        """Multiply."""
        return a * b

    toolsets.installed.add(tool_of(multiply))
    shop.clock.ahead_ms += FRESH_MS

    assert (await toolsets.of(TENANT)).names == ("add", "multiply", "click")


async def test_another_tenant_has_none_of_it(shop: Workshop, egress: Egress) -> None:
    toolsets = toolsets_of(shop, egress)
    await declared(shop, "click")

    assert "click" not in await toolsets.of("globex")


async def test_a_source_that_cannot_be_read_any_more_takes_nothing_else_along(
    shop: Workshop, egress: Egress
) -> None:
    toolsets = toolsets_of(shop, egress)
    row = ToolSourceRow("tsr_0", TENANT, "old", "gone", '{"kind": "gone"}', "[]", "[]", 1)
    await shop.store.write(tool_sources.add(row))
    await declared(shop, "click")

    assert (await toolsets.of(TENANT)).names == ("add", "click")


async def test_tools_that_are_installed_anew_are_seen_at_once_and_whoever_has_the_old_keeps_them(
    shop: Workshop, egress: Egress
) -> None:
    toolsets = toolsets_of(shop, egress)
    await declared(shop, "click")
    in_hand = [await toolsets.of(tenant) for tenant in (TENANT, "globex")]

    @tool
    def multiply(a: int, b: int) -> int:
        """Multiply."""
        return a * b

    toolsets.install(Registry([tool_of(multiply)]))

    assert [tools.names for tools in in_hand] == [("add", "click"), ("add",)]
    assert (await toolsets.of(TENANT)).names == ("multiply", "click")
    assert (await toolsets.of("globex")).names == ("multiply",)


async def test_a_call_to_a_server_is_answered_though_its_source_is_deleted_meanwhile(
    shop: Workshop,
) -> None:
    began, may_answer = asyncio.Event(), asyncio.Event()

    async def act(_: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        began.set()
        await may_answer.wait()
        return told(asked, "done")

    async with mcp_over_http(act) as server, open_egress(["127.0.0.1"]) as egress:
        toolsets = toolsets_of(shop, egress)
        source = SOURCE.validate_python({"kind": "mcp", "name": "hand", "url": server.url})
        source_id = await kept(shop, source, "act")
        found = (await toolsets.of(TENANT)).get("hand__act")
        assert found is not None
        call = asyncio.create_task(called(found))
        await began.wait()

        await shop.store.write(tool_sources.delete(TENANT, source_id))
        toolsets.forget(TENANT)
        after = await toolsets.of(TENANT)
        may_answer.set()

        assert await call == "done"
        await toolsets.close()
    assert after.names == ("add",)


async def test_others_go_on_while_a_long_document_is_read(shop: Workshop, egress: Egress) -> None:
    toolsets, source = toolsets_of(shop, egress), long_to_read()
    await kept(shop, source, "op0")

    turns_of_trial = await turns_during(toolsets.trial(TENANT, source))
    turns_of_building = await turns_during(toolsets.of(TENANT))

    assert turns_of_trial > 20
    assert turns_of_building > 20
    assert len(await toolsets.of(TENANT)) == 51


async def test_nobody_waits_for_another_tenant_s_documents(shop: Workshop, egress: Egress) -> None:
    toolsets = toolsets_of(shop, egress)
    await kept(shop, long_to_read(), "op0")
    slow = asyncio.ensure_future(toolsets.of(TENANT))
    answered = 0

    while not slow.done():
        await toolsets.of(f"tenant {answered}")
        answered += 1

    assert answered > 3
    assert "op0" in await slow
