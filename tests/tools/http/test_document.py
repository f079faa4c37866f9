"""What an OpenAPI document's schemas cost: each is read once, and all of it has bounds."""

import json
import re
from typing import Any

import pytest

from milepost.core.errors import InvalidError
from milepost.core.json import DEPTH_MAX
from milepost.tools.http.document import DEFINITIONS_MAX, EXPANDED_CHARS_MAX
from milepost.tools.http.openapi import OPERATIONS_MAX, OpenApiSpec, operations_of

REMEDY = "; choose others with tags or operations, or mend the document"


def a_document(operations: int, schemas: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """Return a document whose operations all take a list of the first of `schemas`."""
    body = {"type": "array", "items": {"$ref": f"#/components/schemas/{next(iter(schemas))}"}}
    item = {"requestBody": {"content": {"application/json": {"schema": body}}}}
    paths = {f"/{at}": {"post": {"operationId": f"op{at}", **item}} for at in range(operations)}
    return {
        "openapi": "3.1.0",
        "servers": [{"url": "https://api.example"}],
        "paths": paths,
        "components": {"schemas": schemas, **parts},
    }


def flat(count: int, words: str = "") -> dict[str, Any]:
    """Return a schema whose properties are the others."""
    others = {f"S{at}": {"type": "string", "description": words} for at in range(1, count)}
    properties = {name: {"$ref": f"#/components/schemas/{name}"} for name in others}
    return {"S0": {"type": "object", "properties": properties}, **others}


def parameters_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    spec = OpenApiSpec.model_validate({"document": document})
    return [dict(described.parameters) for described, _ in operations_of(spec)]


def refusal_of(document: dict[str, Any]) -> str:
    with pytest.raises(InvalidError) as refused:
        parameters_of(document)
    return str(refused.value)


def test_operations_share_what_they_refer_to() -> None:
    first, second = parameters_of(a_document(2, flat(5)))

    assert list(first["$defs"]) == list(second["$defs"])
    assert all(second["$defs"][name] is part for name, part in first["$defs"].items())


def test_operations_share_a_body_that_is_spread_over_their_parameters() -> None:
    body = {"$ref": "#/components/schemas/S0"}
    item = {"requestBody": {"required": True, "content": {"application/json": {"schema": body}}}}
    document = a_document(0, {"S0": {"properties": {"name": {"type": "string"}}}})
    document["paths"] = {"/a": {"put": item, "post": item}}

    first, second = parameters_of(document)

    assert first["properties"]["name"] is second["properties"]["name"]


def test_an_operation_has_the_definitions_that_it_reaches_and_no_others() -> None:
    schemas = {
        "S0": {"properties": {"next": {"$ref": "#/components/schemas/S1"}}},
        "S1": {"properties": {"back": {"$ref": "#/components/schemas/S0"}}},
        "S2": {"type": "string"},
    }
    document = a_document(1, schemas)
    document["paths"]["/x"] = {
        "get": {
            "parameters": [
                {"name": "q", "in": "query", "schema": {"$ref": "#/components/schemas/S2"}}
            ]
        }
    }

    taking_s0, taking_s2 = parameters_of(document)

    assert sorted(taking_s0["$defs"]) == ["S0", "S1"]
    assert sorted(taking_s2["$defs"]) == ["S2"]


def test_schemas_may_refer_to_one_another_in_a_chain_of_any_length() -> None:
    links: dict[str, Any] = {
        f"S{at}": {"properties": {"next": {"$ref": f"#/components/schemas/S{at + 1}"}}}
        for at in range(DEFINITIONS_MAX - 1)
    }
    last = f"S{DEFINITIONS_MAX - 1}"

    (parameters,) = parameters_of(a_document(1, {**links, last: {"type": "string"}}))

    assert len(parameters["$defs"]) == DEFINITIONS_MAX


def test_schemas_of_the_same_name_in_different_places_stay_apart() -> None:
    document = a_document(
        1,
        {"S0": {"properties": {"a": {"$ref": "#/components/more/S0"}, "S0_2": {}}}},
        more={"S0": {"type": "integer"}},
    )

    (parameters,) = parameters_of(document)

    assert parameters["$defs"]["S0"]["properties"]["a"] == {"$ref": "#/$defs/S0_2"}
    assert parameters["$defs"]["S0_2"] == {"type": "integer"}


def test_an_item_of_a_list_and_a_quoted_name_can_be_referred_to() -> None:
    shown = {"name": "q", "in": "query", "schema": {"type": "integer"}}
    document = a_document(1, {"S0": {"type": "string"}})
    document["paths"]["/{a}"] = {
        "get": {"parameters": [shown, {"name": "a", "in": "path", "required": True, "schema": {}}]}
    }
    reference = {"$ref": "#/paths/~1%7Ba%7D/get/parameters/0"}
    document["paths"]["/y"] = {"get": {"parameters": [reference]}}

    assert parameters_of(document)[-1]["properties"] == {"q": {"type": "integer"}}


def test_an_operation_that_refers_to_too_many_schemas_is_named() -> None:
    told = refusal_of(a_document(1, flat(DEFINITIONS_MAX + 1)))

    assert told == f"operation op0: it refers to more than {DEFINITIONS_MAX} schemas{REMEDY}"


def test_a_schema_that_is_nested_too_deep_is_named() -> None:
    nested: dict[str, Any] = {"type": "string"}
    for _ in range(DEPTH_MAX + 1):
        nested = {"type": "array", "items": nested}

    told = refusal_of(a_document(1, {"S0": nested}))

    assert told == f"operation op0: a schema is nested deeper than {DEPTH_MAX} levels{REMEDY}"


def test_too_many_operations_are_refused_before_any_is_read() -> None:
    told = refusal_of(a_document(OPERATIONS_MAX + 1, {"S0": {"$ref": "#/nowhere"}}))

    assert told.startswith(f"{OPERATIONS_MAX + 1} operations are chosen, and {OPERATIONS_MAX} may")


@pytest.mark.parametrize("shared", ["schemas", "parameters"])
def test_a_small_document_that_says_the_same_many_times_is_refused_where_it_grows_too_large(
    shared: str,
) -> None:
    document = a_document(100, flat(400, "x" * 200))
    if shared == "parameters":
        names = (f"q{at}{'x' * 100}" for at in range(1_500))
        taken = [{"name": name, "in": "query", "schema": {}} for name in names]
        document["paths"] = {f"/{at}": {"$ref": "#/x-item"} for at in range(100)}
        document["x-item"] = {"parameters": taken, "get": {}}

    told = refusal_of(document)

    assert len(json.dumps(document)) < EXPANDED_CHARS_MAX / 10
    assert re.fullmatch(
        r"operation \w+: with it the schemas of all operations, each with what it refers to, have"
        f" more than {EXPANDED_CHARS_MAX} characters{re.escape(REMEDY)}",
        told,
    )
