"""JSON Schemas as Gemini takes them."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.json import Json
from milepost.providers.gemini_schema import gemini_schema


def object_of(**properties: Json) -> dict[str, Json]:
    return {"type": "object", "properties": properties, "required": [*properties]}


def shown(part: dict[str, Json]) -> Any:
    """Return what becomes of a property."""
    properties: Any = gemini_schema(object_of(it=part))["properties"]
    return properties["it"]


def test_what_gemini_knows_stays_as_it_is() -> None:
    schema: dict[str, Json] = {
        "$defs": {"Point": object_of(x={"type": "number", "minimum": 0, "maximum": 9})},
        **object_of(
            at={"$ref": "#/$defs/Point"},
            unit={"type": ["string", "null"], "enum": ["C", "F"], "description": "Of degrees"},
            tags={"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
            pair={"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
            when={"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
        ),
        "additionalProperties": False,
    }

    assert gemini_schema(schema) == schema


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "integer", "exclusiveMinimum": 3}, "greater than 3"),
        ({"type": "string", "minLength": 2, "pattern": "^A"}, "at least 2 characters; must match"),
        ({"type": "integer", "multipleOf": 5, "default": 10}, "a multiple of 5; default: 10"),
        ({"type": "boolean", "enum": [True]}, "one of true"),
        ({"type": "array", "items": {}, "uniqueItems": True}, "no item twice"),
    ],
)
def test_what_it_would_pass_over_is_said_in_words(part: dict[str, Json], words: str) -> None:
    told = shown(part)

    assert words in told["description"]
    assert {*told} == {"type", "description", *({"items"} & {*part})}


def test_a_constant_is_the_only_choice() -> None:
    assert shown({"const": "circle"}) == {"enum": ["circle"]}
    assert shown({"const": None}) == {"description": "one of null"}


def test_a_reference_stands_alone() -> None:
    told = shown({"$ref": "#/$defs/Point", "description": "Where"})

    assert told == {"anyOf": [{"$ref": "#/$defs/Point"}], "description": "Where"}


def test_the_only_one_of_all_is_one_of_any() -> None:
    told = shown({"allOf": [{"$ref": "#/$defs/Point"}], "default": {"x": 1}})

    assert told["anyOf"] == [{"$ref": "#/$defs/Point"}]
    assert told["description"] == 'default: {"x": 1}'


def test_definitions_are_found_at_their_old_place() -> None:
    schema: dict[str, Json] = {
        "definitions": {"Node": object_of(next={"$ref": "#/definitions/Node"})},
        "$ref": "#/definitions/Node",
    }

    assert gemini_schema(schema) == {
        "$defs": {"Node": object_of(next={"$ref": "#/$defs/Node"})},
        "$ref": "#/$defs/Node",
    }


def test_a_reference_beside_definitions_and_words_keeps_both() -> None:
    schema: dict[str, Json] = {
        "$defs": {"Node": object_of(name={"type": "string"})},
        "$ref": "#/$defs/Node",
        "description": "A tree",
    }

    assert gemini_schema(schema) == {
        "$defs": {"Node": object_of(name={"type": "string"})},
        "anyOf": [{"$ref": "#/$defs/Node"}],
        "description": "A tree",
    }


def test_the_schema_that_was_given_is_not_changed() -> None:
    schema = object_of(it={"const": 1}, other={"type": "string", "minLength": 1})
    before = repr(schema)

    gemini_schema(schema)

    assert repr(schema) == before


VALUES: list[Any] = ["a", 1, None, True, [], {}, {"a": "b"}]
SCALARS = st.sampled_from([1, "a", None, True, 2.5])
PARTS: st.SearchStrategy[Any] = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "null", ["string", "null"]]),
            "const": SCALARS,
            "enum": st.lists(SCALARS, min_size=1, max_size=3),
            "minLength": st.integers(0, 3),
            "exclusiveMaximum": st.integers(0, 3),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "items": inner,
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "definitions": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
        },
    ),
    max_leaves=6,
)


@given(PARTS)
def test_whatever_comes_in_a_schema_goes_out_that_allows_no_less(part: dict[str, Any]) -> None:
    told = gemini_schema(part)

    jsonschema.Draft202012Validator.check_schema(told)
    for value in VALUES:
        if jsonschema.Draft202012Validator(part).is_valid(value):
            assert jsonschema.Draft202012Validator(told).is_valid(value)
