"""Schemas of answers as the Messages API takes them, beside what the official client makes."""

from datetime import datetime
from enum import Enum
from typing import Any, Literal

import pytest
from anthropic import transform_schema
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from milepost.core.json import Json
from milepost.providers.anthropic_schema import OPTIONAL_MAX, PARTS_MAX, UNIONS_MAX, answer_schema


class Kind(Enum):
    CITY = "city"
    RIVER = "river"


class Where(BaseModel):
    """Where something is."""

    country: str = Field(description="Its country", min_length=2)
    near: list[str] = []


class Place(BaseModel):
    name: str
    kind: Kind
    unit: Literal["km", "mi"]
    size: float = Field(gt=0)
    seen: datetime | None = None
    where: Where = Field(description="The place")
    known: bool = True


def obj(properties: dict[str, Json], **more: Json) -> dict[str, Json]:
    return {"type": "object", "properties": properties, **more}


def of(part: Json) -> Json:
    """Return what becomes of one property."""
    told = answer_schema(obj({"a": part}, required=["a"]))
    assert told is not None
    properties = told["properties"]
    assert isinstance(properties, dict)
    return properties["a"]


def shape(schema: Any) -> Any:
    """Return a schema without its words, which clients choose, and with each reference bare."""
    match schema:
        case {"anyOf": [{"$ref": reference}]}:
            return {"$ref": reference}
        case dict():
            kept = {key: shape(part) for key, part in schema.items()}
            return {k: part for k, part in kept.items() if k not in ("description", "title")}
        case list():
            return [shape(part) for part in schema]
        case _:
            return schema


def test_a_model_becomes_what_the_official_client_makes_of_it() -> None:
    assert shape(answer_schema(Place.model_json_schema())) == shape(transform_schema(Place))


def test_what_cannot_be_said_is_told_in_words() -> None:
    assert of({"type": "integer", "minimum": 1, "maximum": 9, "description": "How many"}) == {
        "type": "integer",
        "description": "How many (at least 1; at most 9)",
    }


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"type": "string", "format": "email"}, {"type": "string", "format": "email"}),
        (
            {"type": "string", "format": "phone"},
            {"type": "string", "description": "format: phone"},
        ),
        ({"const": 7}, {"const": 7}),
        (
            {"type": "string", "enum": ["a", None]},
            {"enum": ["a", None], "description": "type: string"},
        ),
        (
            {"type": ["string", "null"]},
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
        ),
        (
            {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        ),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
            {
                "type": "array", "items": {"type": "string"}, "minItems": 1,
                "description": "at most 3 items",
            },
        ),
        (
            {"allOf": [{"type": "string"}], "description": "It"},
            {"type": "string", "description": "It"},
        ),
        (
            {"type": "object", "properties": {}, "additionalProperties": False},
            {"type": "object", "properties": {}, "additionalProperties": False},
        ),
    ],
)  # fmt: skip
def test_each_form_has_one_that_the_vendor_knows(part: Json, told: Json) -> None:
    assert of(part) == told


def test_words_beside_a_reference_stand_around_it() -> None:
    words = {"$ref": "#/$defs/A", "description": "The A"}
    schema = obj({"a": {**words}, "b": {"$ref": "#/$defs/A"}})

    assert answer_schema({**schema, "$defs": {"A": {"type": "string"}}}) == {
        "type": "object",
        "properties": {
            "a": {"anyOf": [{"$ref": "#/$defs/A"}], "description": "The A"},
            "b": {"$ref": "#/$defs/A"},
        },
        "additionalProperties": False,
        "$defs": {"A": {"type": "string"}},
    }


@pytest.mark.parametrize(
    "part",
    [
        {},
        True,
        None,
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "array"},
        {"type": "array", "prefixItems": [{"type": "string"}]},
        {"type": "string", "not": {"const": "a"}},
        {"allOf": [{"type": "string"}, {"minLength": 1}]},
        {"enum": [{"a": 1}]},
        {"const": [1]},
        {"type": "date"},
        {"$ref": "#/$defs/Missing"},
        {"$ref": "https://example.com/schema"},
        {"type": "object", "properties": {}, "required": ["b"]},
        {"type": "object", "properties": 7},
    ],
)
def test_what_no_answer_can_be_held_to_is_not_sent(part: Json) -> None:
    assert answer_schema(obj({"a": part})) is None


def test_a_schema_that_contains_itself_is_not_sent() -> None:
    tree = obj({"left": {"$ref": "#/$defs/Tree"}})

    assert answer_schema({"$ref": "#/$defs/Tree", "$defs": {"Tree": tree}}) is None


def test_a_schema_whose_references_lead_on_and_on_is_not_sent() -> None:
    levels: dict[str, Json] = {f"L{n}": {"$ref": f"#/$defs/L{n + 1}"} for n in range(2_000)}
    definitions: Json = {**levels, "L2000": {"type": "string"}}

    assert answer_schema({**obj({"a": {"$ref": "#/$defs/L0"}}), "$defs": definitions}) is None


def test_a_definition_may_be_used_often() -> None:
    levels = {
        f"L{n}": obj({"a": {"$ref": f"#/$defs/L{n + 1}"}, "b": {"$ref": f"#/$defs/L{n + 1}"}},
                     required=["a", "b"])
        for n in range(40)
    }  # fmt: skip
    definitions: dict[str, Json] = {**levels, "L40": {"type": "string"}}

    assert answer_schema({"$ref": "#/$defs/L0", "$defs": definitions}) is not None


@pytest.mark.parametrize(
    ("properties", "fits"),
    [
        ({f"p{n}": {"type": "string"} for n in range(OPTIONAL_MAX)}, True),
        ({f"p{n}": {"type": "string"} for n in range(OPTIONAL_MAX + 1)}, False),
        ({f"p{n}": {"type": ["string", "null"]} for n in range(UNIONS_MAX)}, True),
        ({f"p{n}": {"type": ["string", "null"]} for n in range(UNIONS_MAX + 1)}, False),
        ({"p": {"anyOf": [{"type": "string"}] * PARTS_MAX}}, False),
    ],
)
def test_what_is_more_than_the_vendor_takes_is_not_sent(
    properties: dict[str, Json], fits: bool
) -> None:
    assert (answer_schema(obj(properties)) is not None) is fits


LEAVES: list[Json] = [None, True, False, 0, 7, "string", "object", "a", "#/$defs/a", ["a"], [["a"]]]
KEYWORDS = st.sampled_from(
    ["type", "properties", "items", "anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions",
     "required", "enum", "const", "additionalProperties", "minItems", "format", "a"]
)  # fmt: skip
ANYTHING = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(KEYWORDS, inner, max_size=4)
    ),
    max_leaves=12,
)
OBJECTS = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from("ab"), ANYTHING)},
    optional={"required": ANYTHING, "$defs": st.dictionaries(st.just("a"), ANYTHING)},
)


@given(st.one_of(OBJECTS, st.dictionaries(KEYWORDS, ANYTHING)))
def test_whatever_is_given_for_a_schema_is_told_or_not(schema: dict[str, Json]) -> None:
    told = answer_schema(schema)

    assert told is None or isinstance(told, dict)
