"""OpenAPI documents as tools."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from milepost.core.errors import InvalidError, ToolValidationError
from milepost.tools import Tool
from milepost.tools.egress import Egress
from milepost.tools.http.openapi import DESCRIPTION_CHARS_MAX, OpenApiSpec
from tests.contract import CONTRACT
from tests.stubs.web_server import WebServer, saying, web_server
from tests.tools.http.calling import called, secrets, to_loopback

PETS: dict[str, Any] = yaml.safe_load("""
openapi: 3.0.3
info: {title: Pets, version: "1"}
servers:
  - url: https://{region}.pets.example/v1
    variables: {region: {default: eu}}
paths:
  /pets/{petId}:
    parameters:
      - $ref: "#/components/parameters/PetId"
    get:
      operationId: getPet
      summary: Find a pet
      description: By its id.
      tags: [pets]
      parameters:
        - {name: fields, in: query, schema: {type: array, items: {type: string}}}
        - {name: where, in: query, style: deepObject, schema: {type: object}}
        - {name: old, in: query, style: pipeDelimited, schema: {type: array}}
        - {name: X-Trace, in: header, schema: {type: string}}
        - {name: session, in: cookie, schema: {type: string}}
    put:
      operationId: pets.put
      tags: [pets, admin]
      requestBody:
        required: true
        content:
          application/json: {schema: {$ref: "#/components/schemas/Pet"}}
  /search:
    post:
      tags: [search]
      requestBody:
        content:
          application/json: {schema: {$ref: "#/components/schemas/Query"}}
components:
  parameters:
    PetId:
      {name: petId, in: path, required: true, schema: {type: integer}, description: Which pet.}
  schemas:
    Pet:
      type: object
      required: [name]
      properties:
        name: {type: string, example: Rex, xml: {name: n}}
        age: {type: integer, minimum: 0, exclusiveMinimum: true}
        nick: {type: string, nullable: true}
        mother: {$ref: "#/components/schemas/Pet"}
    Query:
      oneOf:
        - type: string
        - {type: array, items: {$ref: "#/components/schemas/Query"}}
""")


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    """A way out that may reach this machine."""
    async with to_loopback() as egress:
        yield egress


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    """A server that answers everything with the same JSON."""
    async with web_server(saying("ok")) as server:
        yield server


def tools_of(egress: Egress, document: dict[str, Any] = PETS, **changes: Any) -> dict[str, Tool]:
    spec = OpenApiSpec.model_validate({"document": document, **changes})
    return {tool.name: tool for tool in spec.tools(egress, secrets)}


def changed(**paths: Any) -> dict[str, Any]:
    return {**PETS, "paths": {f"/{name}": item for name, item in paths.items()}}


async def test_each_operation_becomes_a_tool(egress: Egress) -> None:
    tools = tools_of(egress)

    assert list(tools) == ["getPet", "pets_put", "post_search"]
    assert tools["getPet"].description == "Find a pet\n\nBy its id."
    assert tools["getPet"].schema.parameters["properties"] == {
        "petId": {"type": "integer", "description": "Which pet."},
        "fields": {"type": "array", "items": {"type": "string"}},
        "where": {"type": "object"},
        "X-Trace": {"type": "string"},
    }
    assert tools["getPet"].schema.parameters["required"] == ["petId"]
    assert [tools[name].effect for name in tools] == ["read", "once", "once"]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ({"tags": ["admin"]}, ["pets_put"]),
        ({"operations": ["get*"]}, ["getPet"]),
        ({"tags": ["search"], "operations": ["getPet"]}, ["getPet", "post_search"]),
        ({"tags": ["search"], "prefix": "pets_"}, ["pets_post_search"]),
    ],
)
async def test_tags_and_operations_choose_and_a_prefix_names(
    egress: Egress, choice: dict[str, Any], names: list[str]
) -> None:
    assert list(tools_of(egress, **choice)) == names


async def test_a_call_is_sent_as_the_document_says(egress: Egress, server: WebServer) -> None:
    headers = {"Authorization": "Bearer ${secret:TOKEN}"}
    tools = tools_of(egress, base_url=f"{server.url}/v1", headers=headers)

    await called(tools["getPet"], {"petId": 3, "fields": ["a", "b"], "where": {}, "X-Trace": "t"})
    await called(tools["pets_put"], {"petId": 3, "name": "Rex", "mother": {"name": "Ada"}})
    await called(tools["post_search"], {"body": ["a", ["b"]]})

    got, put, searched = server.asked
    assert (got.method, got.target) == ("GET", "/v1/pets/3?fields=a&fields=b")
    assert (got.headers["x-trace"], got.headers["authorization"]) == ("t", "Bearer s3cr3t-t0ken")
    assert (put.method, put.target) == ("PUT", "/v1/pets/3")
    assert json.loads(put.body) == {"name": "Rex", "mother": {"name": "Ada"}}
    assert json.loads(searched.body) == ["a", ["b"]]


async def test_an_object_in_a_query_is_sent_by_its_members(
    egress: Egress, server: WebServer
) -> None:
    document = json.loads(json.dumps(PETS))
    document["paths"]["/pets/{petId}"]["get"]["parameters"][1]["schema"] = {
        "type": "object",
        "additionalProperties": True,
    }
    tool = tools_of(egress, document, base_url=server.url)["getPet"]

    await called(tool, {"petId": 3, "where": {"kind": "cat", "age": 2}})

    assert server.asked[0].target == "/pets/3?where%5Bkind%5D=cat&where%5Bage%5D=2"


async def test_references_are_resolved_and_may_be_recursive(egress: Egress) -> None:
    pet = tools_of(egress)["pets_put"]

    assert pet.validate({"petId": "3", "name": "Rex", "mother": {"name": "Ada", "nick": None}})
    with pytest.raises(ToolValidationError, match="name"):
        pet.validate({"petId": 3, "name": "Rex", "mother": {"mother": {}}})


async def test_the_words_of_openapi_3_0_are_understood(egress: Egress) -> None:
    pet = tools_of(egress)["pets_put"]

    assert pet.validate({"petId": 3, "name": "Rex", "nick": None})["nick"] is None
    with pytest.raises(ToolValidationError, match="age"):
        pet.validate({"petId": 3, "name": "Rex", "age": 0})


async def test_a_model_is_told_no_novel(egress: Egress) -> None:
    document = changed(x={"get": {"operationId": "x", "description": "word " * 10_000}})

    assert len(tools_of(egress, document)["x"].description) == DESCRIPTION_CHARS_MAX


async def test_slips_that_change_nothing_are_overlooked(egress: Egress) -> None:
    name = {"type": "string", "required": True, "description": None}
    body = {"type": "object", "required": ["name", "name"], "properties": {"name": name}}
    content = {"application/json": {"schema": {"type": "array", "items": body}}}
    document = changed(x={"post": {"operationId": "x", "requestBody": {"content": content}}})

    offered = tools_of(egress, document)["x"].schema.parameters["properties"]

    wanted = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    assert offered == {"body": {"type": "array", "items": wanted}}


async def test_the_document_s_own_server_is_used_unless_another_is_named(egress: Egress) -> None:
    spec = OpenApiSpec(document=PETS)

    from_document = spec.tools(egress, secrets)

    assert from_document
    with pytest.raises(InvalidError, match="set base_url"):
        tools_of(egress, {**PETS, "servers": [{"url": "/v1"}]})


async def test_an_effect_and_a_yes_are_declared_by_operation(egress: Egress) -> None:
    tools = tools_of(egress, effects={"pets.put": "idempotent"}, requires_approval=["pets.*"])

    assert (tools["pets_put"].effect, tools["pets_put"].requires_approval) == ("idempotent", True)
    assert tools["getPet"].requires_approval is False


async def test_a_yes_is_declared_for_what_the_document_has_be_it_chosen_or_not(
    egress: Egress,
) -> None:
    assert tools_of(egress, operations=["getPet"], requires_approval=["pets.*"])
    with pytest.raises(InvalidError, match=r"'pet\.put', which fits no operation"):
        tools_of(egress, requires_approval=["pets.*", "pet.put"])


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"parameters": [{"$ref": "#/components/parameters/No"}]}, "which is not in the document"),
        ({"parameters": [{"$ref": "https://evil.example/x"}]}, "outside of the document"),
        ({"parameters": [{"name": "c", "in": "cookie", "required": True, "schema": {}}]}, "cookie"),
        (
            {
                "parameters": [
                    {"name": "q", "in": "query", "required": True, "schema": {"type": "object"}}
                ]
            },
            "a style not known",
        ),
        (
            {"requestBody": {"required": True, "content": {"text/xml": {}}}},
            "only application/json is sent",
        ),
        ({"operationId": "x" * 65}, "more than 64 characters"),
        ({"parameters": ["no object"]}, "an object is due"),
    ],
)  # fmt: skip
async def test_an_operation_that_cannot_be_a_tool_is_named(
    egress: Egress, item: dict[str, Any], message: str
) -> None:
    document = changed(x={"post": item})

    with pytest.raises(InvalidError, match=message) as refused:
        tools_of(egress, document)

    assert "operation" in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"document": {"swagger": "2.0"}}, "must be 3.x"),
        ({"document": {**PETS, "paths": None}}, "has no paths"),
        ({"tags": ["nothing"]}, "no operation"),
        ({"effects": {"nope": "read"}}, "none of the chosen operations"),
    ],
)
async def test_a_document_that_gives_no_tools_is_refused(
    egress: Egress, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidError, match=message):
        tools_of(egress, **changes)


async def test_references_that_go_round_in_circles_are_found_out(egress: Egress) -> None:
    document = changed(x={"$ref": "#/paths/~1y"}, y={"$ref": "#/paths/~1x"})

    with pytest.raises(InvalidError, match="refer to one another"):
        tools_of(egress, document)


async def test_a_real_document_of_many_operations_is_read(egress: Egress) -> None:
    # Pages with forms are for people's browsers.
    paths = {path: item for path, item in CONTRACT["paths"].items() if path.startswith("/v1/")}
    document = {**CONTRACT, "paths": paths}

    tools = tools_of(egress, document, prefix="mp_")

    assert len(tools) > 40
    assert tools["mp_createRun"].effect == "once"


OUR_HEADERS = [
    "Host", "content-length", "Transfer-Encoding", "Connection", "Cookie", "Idempotency-Key",
    "Accept-Encoding",
]  # fmt: skip


def taking(header: str, *, required: bool) -> dict[str, Any]:
    parameter = {
        "name": header,
        "in": "header",
        "required": required,
        "schema": {"type": "string"},
    }
    return changed(x={"get": {"operationId": "x", "parameters": [parameter]}})


@pytest.mark.parametrize("header", OUR_HEADERS)
async def test_a_header_of_the_connection_is_not_taken_from_the_model(
    egress: Egress, header: str
) -> None:
    tool = tools_of(egress, taking(header, required=False))["x"]

    assert tool.schema.parameters["properties"] == {}
    with pytest.raises(InvalidError, match="is not for a model to set"):
        tools_of(egress, taking(header, required=True))


async def test_a_cookie_that_the_declaration_sets_is_sent(
    egress: Egress, server: WebServer
) -> None:
    headers = {"Cookie": "sid=${secret:TOKEN}"}
    document = taking("cookie", required=True)
    tool = tools_of(egress, document, base_url=server.url, headers=headers)["x"]

    await called(tool)

    assert server.asked[0].headers["cookie"] == "sid=s3cr3t-t0ken"


async def test_a_header_parameter_cannot_read_a_secret(egress: Egress, server: WebServer) -> None:
    tool = tools_of(egress, taking("X-Note", required=True), base_url=server.url)["x"]

    await called(tool, {"X-Note": "${secret:TOKEN}"})

    assert server.asked[0].headers["x-note"] == "${secret:TOKEN}"


@pytest.mark.parametrize(
    "server", ["https://{host}/v1", "https://{host}", "https://api.{host}?x=1"]
)
async def test_a_host_is_not_for_the_model_to_choose(egress: Egress, server: str) -> None:
    parameter = {"name": "host", "in": "path", "required": True, "schema": {"type": "string"}}
    document = {**changed(x={"get": {"parameters": [parameter]}}), "servers": [{"url": server}]}

    with pytest.raises(InvalidError, match="may not choose the host"):
        tools_of(egress, document)
    with pytest.raises((InvalidError, ValidationError), match="may not choose the host"):
        tools_of(egress, {**document, "servers": []}, base_url=server)
