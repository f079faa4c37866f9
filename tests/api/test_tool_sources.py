"""`/v1/tool_sources`: tools that tenants declare themselves, with secrets of their own."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web

from tests.api.asking import ended, events
from tests.api.making import made, refusal
from tests.api.serving import KeyedService, serving, serving_tenants, settings_for
from tests.stubs.directed_model import DirectedModel, directed_model
from tests.stubs.web_server import WebServer, web_server
from tests.tools.mcp.test_mcp_servers import over_http

CLICK = {
    "name": "screen",
    "kind": "client",
    "tools": [{"name": "click", "description": "Click.", "parameters": {"type": "object"}}],
}


@pytest.fixture
async def model() -> AsyncIterator[DirectedModel]:
    """A model that calls what the user says."""
    async with directed_model() as model:
        yield model


@pytest.fixture
async def shop() -> AsyncIterator[WebServer]:
    """Somebody's HTTP API, which says who asked for what."""

    async def answer(request: web.Request) -> web.StreamResponse:
        told = {"path": request.path, "token": request.headers.get("authorization")}
        return web.json_response({"data": told})

    async with web_server(answer) as server:
        yield server


@pytest.fixture
async def keyed(database_url: str, model: DirectedModel) -> AsyncIterator[KeyedService]:
    """A service of two tenants, whose tools may reach this machine."""
    settings = settings_for(database_url, egress_allow="127.0.0.1", OPENAI_BASE_URL=model.base_url)
    async with serving_tenants(settings) as keyed:
        yield keyed


def http_source(url: str, **changes: Any) -> dict[str, Any]:
    """Return the body of a source with one tool."""
    tool = {
        "name": "get_order",
        "description": "Look an order up.",
        "url": url + "/orders/{id}",
        "headers": {"Authorization": "Bearer ${secret:SHOP}"},
        "result": "/data",
    }
    return {"name": "shop", "kind": "http", "tools": [{**tool, **changes}]}


async def answered(client: httpx2.AsyncClient, tool: str, said: str) -> list[dict[str, Any]]:
    """Have an agent with this tool run, and return the run's log."""
    agent = {"name": f"agent-of-{tool}", "model": "openai/directed", "tools": [tool]}
    await made(client, "/v1/agents", agent)
    run = await made(client, "/v1/runs", {"agent": agent["name"], "input": said})
    await ended(client, run["id"])
    return await events(client, run["id"])


def results_in(log: list[dict[str, Any]]) -> list[Any]:
    """Return the results in a log."""
    return [event["data"]["result"] for event in log if event["type"] == "tool_call.completed"]


async def test_a_tenant_s_http_tool_is_listed_and_called_with_its_own_secret(
    keyed: KeyedService, shop: WebServer
) -> None:
    await keyed.acme.put("/v1/secrets/SHOP", json={"value": "acme's token"})

    source = await made(keyed.acme, "/v1/tool_sources", http_source(shop.url))
    shown = (await keyed.acme.get("/v1/tools/get_order")).json()
    log = await answered(keyed.acme, "get_order", 'call get_order {"id": "7"}')

    (requested,) = [e["data"] for e in log if e["type"] == "tool_call.requested"]
    assert (source["kind"], source["tools"]) == ("http", ["get_order"])
    assert (shown["kind"], shown["effect"]) == ("http", "read")
    assert requested["kind"] == "http"
    assert results_in(log) == [{"path": "/orders/7", "token": "Bearer [secret]"}]
    assert shop.asked[0].headers["authorization"] == "Bearer acme's token"
    assert shop.asked[0].headers["idempotency-key"] == requested["idempotency_key"]
    assert "acme's token" not in json.dumps([log, shown, source])


async def test_another_tenant_has_neither_the_tool_nor_the_source(
    keyed: KeyedService, shop: WebServer
) -> None:
    source = await made(keyed.acme, "/v1/tool_sources", http_source(shop.url))
    path = f"/v1/tool_sources/{source['id']}"
    agent = {"name": "thief", "model": "openai/directed", "tools": ["get_order"]}

    assert refusal(await keyed.globex.get("/v1/tools/get_order")) == (404, "tool_not_found")
    assert refusal(await keyed.globex.get(path)) == (404, "tool_source_not_found")
    assert refusal(await keyed.globex.delete(path)) == (404, "tool_source_not_found")
    assert refusal(await keyed.globex.post("/v1/agents", json=agent)) == (422, "unknown_tool")
    assert (await keyed.globex.get("/v1/tool_sources")).json()["data"] == []


async def test_two_tenants_may_call_their_tools_the_same(
    keyed: KeyedService, shop: WebServer
) -> None:
    for client, word in ((keyed.acme, "one"), (keyed.globex, "two")):
        await client.put("/v1/secrets/SHOP", json={"value": word * 3})
        await made(client, "/v1/tool_sources", http_source(f"{shop.url}/{word}"))

    logs = [
        await answered(client, "get_order", 'call get_order {"id": "7"}')
        for client in (keyed.acme, keyed.globex)
    ]

    assert [results_in(log)[0]["path"] for log in logs] == ["/one/orders/7", "/two/orders/7"]
    assert [asked.headers["authorization"] for asked in shop.asked] == [
        "Bearer oneoneone",
        "Bearer twotwotwo",
    ]


async def test_a_secret_that_is_not_stored_is_told_to_the_model_by_its_name(
    keyed: KeyedService, shop: WebServer
) -> None:
    await made(keyed.acme, "/v1/tool_sources", http_source(shop.url))

    log = await answered(keyed.acme, "get_order", 'call get_order {"id": "7"}')

    (failed,) = [e["data"] for e in log if e["type"] == "tool_call.failed"]
    assert "there is no secret 'SHOP'" in failed["error"]["message"]
    assert shop.asked == []


async def test_an_openapi_document_becomes_tools(keyed: KeyedService, shop: WebServer) -> None:
    document = {
        "openapi": "3.1.0",
        "paths": {"/pets": {"get": {"operationId": "listPets"}, "post": {"operationId": "add"}}},
    }
    body = {
        "name": "pets",
        "kind": "openapi",
        "document": document,
        "base_url": shop.url,
        "prefix": "pets_",
    }

    source = await made(keyed.acme, "/v1/tool_sources", body)
    log = await answered(keyed.acme, "pets_listPets", "call pets_listPets {}")

    assert source["tools"] == ["pets_listPets", "pets_add"]
    assert results_in(log)[0]["data"]["path"] == "/pets"


async def test_an_mcp_server_over_http_becomes_tools(keyed: KeyedService) -> None:
    async with over_http() as port:
        url = f"http://127.0.0.1:{port}/mcp"
        body = {"name": "stub", "kind": "mcp", "url": url, "tools": ["pid"], "trust_hints": True}

        source = await made(keyed.acme, "/v1/tool_sources", body)
        shown = (await keyed.acme.get("/v1/tools/stub__pid")).json()
        log = await answered(keyed.acme, "stub__pid", "call stub__pid {}")

    assert source["tools"] == ["stub__pid"]
    assert (shown["kind"], shown["effect"]) == ("mcp", "read")
    assert results_in(log)[0]["result"] > 0


async def test_a_client_side_tool_is_declared_and_answered(keyed: KeyedService) -> None:
    await made(keyed.acme, "/v1/tool_sources", CLICK)
    agent = {"name": "hand", "model": "openai/directed", "tools": ["click"]}
    await made(keyed.acme, "/v1/agents", agent)
    run = await made(keyed.acme, "/v1/runs", {"agent": "hand", "input": "call click {}"})
    await keyed.acme.get(f"/v1/runs/{run['id']}/events?until=waiting")

    body = {"results": [{"call_id": "call_1_0", "result": "clicked"}]}
    answer = await keyed.acme.post(f"/v1/runs/{run['id']}/tool_results", json=body)

    assert answer.status_code == 200
    assert (await ended(keyed.acme, run["id"]))["output"]["text"].strip() == "said: clicked"


async def test_a_source_that_is_deleted_takes_its_tools_away(keyed: KeyedService) -> None:
    source = await made(keyed.acme, "/v1/tool_sources", CLICK)
    before = await keyed.acme.get("/v1/tools/click")

    gone = await keyed.acme.delete(f"/v1/tool_sources/{source['id']}")

    assert (before.status_code, gone.status_code) == (200, 204)
    assert refusal(await keyed.acme.get("/v1/tools/click")) == (404, "tool_not_found")


async def test_what_was_declared_outlives_the_process(
    sqlite_database_url: str, tmp_path: Path
) -> None:
    async with serving(settings_for(sqlite_database_url)) as service, service.client() as client:
        await made(client, "/v1/tool_sources", CLICK)

    async with serving(settings_for(sqlite_database_url)) as service, service.client() as client:
        assert (await client.get("/v1/tools/click")).json()["kind"] == "client"


async def test_no_tool_takes_the_name_of_another(keyed: KeyedService) -> None:
    tool = CLICK["tools"][0]
    assert isinstance(tool, dict)
    await made(keyed.acme, "/v1/tool_sources", CLICK)

    of_code = {**CLICK, "name": "other", "tools": [{**tool, "name": "add"}]}
    of_a_source = {**CLICK, "name": "other"}
    twice = {**CLICK, "name": "other", "tools": [{**tool, "name": "x"}, {**tool, "name": "x"}]}
    same_source = CLICK

    refused = [
        refusal(await keyed.acme.post("/v1/tool_sources", json=body))
        for body in (of_code, of_a_source, twice, same_source)
    ]
    assert refused == [
        (409, "tool_exists"),
        (409, "tool_exists"),
        (422, "invalid_tool_source"),
        (409, "tool_source_exists"),
    ]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"kind": "stdio"}, ""),
        ({"kind": None}, ""),
        ({"kind": "mcp", "tools": [], "command": "/bin/sh"}, "/url"),
        ({"kind": "mcp", "tools": [], "url": "http://127.0.0.1:1", "command": "sh"}, "/command"),
        ({"tools": []}, "/tools"),
        ({"name": "two__parts"}, "/name"),
        ({"surprise": 1}, "/surprise"),
        ({"tools": [{"name": "x", "description": "X.", "url": "ftp://x"}]}, "/tools/0/url"),
        (
            {
                "tools": [
                    {
                        "name": "x",
                        "description": "X.",
                        "url": "https://example.com",
                        "headers": {"A": "${env:HOME}"},
                    }
                ]
            },
            "/headers",
        ),
    ],
)
async def test_a_declaration_that_may_not_be_is_refused_with_its_place(
    keyed: KeyedService, changes: dict[str, Any], pointer: str
) -> None:
    body = {**http_source("https://example.com"), **changes}

    refused = await keyed.acme.post("/v1/tool_sources", json=body)

    assert refusal(refused)[0] == 422
    assert refused.json()["errors"][0]["pointer"] == pointer, refused.text


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "array"},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
        {"type": "object", "properties": {"a": {"anyOf": 3}}},
        {"type": "object", "required": 5, "properties": {"a": {"items": {"type": 7}}}},
    ],
)
async def test_parameters_that_are_no_schema_are_refused(
    keyed: KeyedService, parameters: dict[str, Any]
) -> None:
    declared = {"name": "x", "description": "X.", "parameters": parameters}

    refused = await keyed.acme.post("/v1/tool_sources", json={**CLICK, "tools": [declared]})

    assert refusal(refused) == (422, "invalid_tool_source")
    assert refused.json()["detail"].startswith("tool 'x': ")


async def test_an_expression_of_a_tenant_s_is_never_matched(keyed: KeyedService) -> None:
    """It could take for ever, and everybody would wait."""
    word = {"type": "string", "pattern": "^(a+)+$"}
    parameters = {"type": "object", "properties": {"word": word}}
    declared = {"name": "spell", "description": "Spell.", "parameters": parameters}

    await made(keyed.acme, "/v1/tool_sources", {**CLICK, "tools": [declared]})

    shown = (await keyed.acme.get("/v1/tools/spell")).json()
    assert shown["parameters"]["properties"] == {"word": {"type": "string"}}


@pytest.mark.parametrize(
    "document",
    [
        {"openapi": "3.1.0", "paths": {"/a": []}},
        {"openapi": "3.1.0", "paths": {"/a": {"get": {"parameters": 3}}}},
        {"openapi": "3.1.0", "paths": {"/a": {"get": {"tags": 3}}}, "servers": [{"variables": 3}]},
        {"openapi": "3.1.0", "paths": {"/a": {"post": {"requestBody": {"content": "x"}}}}},
    ],
)
async def test_a_document_that_is_none_is_refused(
    keyed: KeyedService, document: dict[str, Any]
) -> None:
    body = {"name": "x", "kind": "openapi", "document": document, "tags": ["a"]}

    refused = await keyed.acme.post("/v1/tool_sources", json=body)

    assert refusal(refused) == (422, "invalid_tool_source")


async def test_a_server_that_is_inside_or_not_there_is_refused(keyed: KeyedService) -> None:
    for url in ("http://169.254.169.254/mcp", "http://127.0.0.1:1/mcp"):
        body = {"name": "x", "kind": "mcp", "url": url}

        refused = await keyed.acme.post("/v1/tool_sources", json=body)

        assert refusal(refused) == (422, "tool_source_unreachable")


async def test_sources_need_the_scope_admin_and_leave_a_trail(keyed: KeyedService) -> None:
    writer = await keyed.holding("agents:write", "runs:read", "runs:write")
    unable = await writer.post("/v1/tool_sources", json=CLICK)
    source = await made(keyed.acme, "/v1/tool_sources", CLICK)
    await keyed.acme.delete(f"/v1/tool_sources/{source['id']}")

    acts = (await keyed.acme.get(f"/v1/audit?target={source['id']}")).json()["data"]

    assert refusal(unable) == (403, "missing_scope")
    assert [act["action"] for act in acts] == ["tool_source.deleted", "tool_source.created"]


async def test_a_repeated_request_makes_one_source(keyed: KeyedService) -> None:
    key = {"idempotency-key": "once"}

    first = await keyed.acme.post("/v1/tool_sources", json=CLICK, headers=key)
    second = await keyed.acme.post("/v1/tool_sources", json=CLICK, headers=key)

    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert second.headers["idempotency-replayed"] == "true"


async def test_a_repeated_request_is_answered_though_the_server_is_gone_by_now(
    keyed: KeyedService,
) -> None:
    key = {"idempotency-key": "once"}
    async with over_http() as port:
        body = {"name": "x", "kind": "mcp", "url": f"http://127.0.0.1:{port}/mcp"}
        first = await keyed.acme.post("/v1/tool_sources", json=body, headers=key)

    again = await keyed.acme.post("/v1/tool_sources", json=body, headers=key)

    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotency-replayed"] == "true"
