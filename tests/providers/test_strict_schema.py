"""Schemas as OpenAI holds answers to, beside what its own client makes of the same models."""

from datetime import datetime
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel, Field

from milepost.core.json import Json
from milepost.providers.strict_schema import (
    DEPTH_MAX,
    ENUM_VALUES_MAX,
    PROPERTIES_MAX,
    is_strict,
    strict_schema,
)


class Step(BaseModel):
    """One step."""

    words: str = Field(description="What is done", pattern="^[A-Z]")
    at: datetime | None = None


class Plan(BaseModel):
    first: Step = Field(description="Where to begin")
    others: list[Step] = Field(default_factory=list, max_length=5)
    mood: Literal["good", "bad"]
    effort: int = Field(ge=0, le=10)


class Tree(BaseModel):
    name: str
    branches: list["Tree"]


class Chain(BaseModel):
    link: "Chain | None" = Field(None, description="The next one")


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    good: bool


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Place(BaseModel):
    point: tuple[float, float]
    named: tuple[str, int]


def schema_of(**properties: Any) -> dict[str, Json]:
    return {"type": "object", "properties": properties, "required": [*properties]}


def strict(schema: dict[str, Json]) -> dict[str, Any]:
    told = strict_schema(schema)
    assert told is not None
    return told


def property_of(part: Json) -> Any:
    """Return `part` as it is told as a property."""
    return strict(schema_of(a=part))["properties"]["a"]


@pytest.mark.parametrize("model", [Step, Plan, Tree, Chain])
def test_a_model_is_told_as_the_vendors_own_client_tells_it(model: type[BaseModel]) -> None:
    assert strict_schema(model.model_json_schema()) == to_strict_json_schema(model)


def test_objects_are_closed_all_the_way_down() -> None:
    inner = schema_of(b={"type": "string"})

    told = strict(schema_of(a={"type": "array", "items": inner}))

    assert told["additionalProperties"] is False
    assert told["properties"]["a"]["items"] == {**inner, "additionalProperties": False}


def test_what_is_strict_already_stays_as_it_is() -> None:
    schema = strict(Plan.model_json_schema())

    assert is_strict(schema)
    assert strict_schema(schema) == schema
    assert not is_strict(Plan.model_json_schema())


@pytest.mark.parametrize(
    "optional",
    [
        {"type": "string", "default": "EUR"},
        {"type": ["string", "null"]},
        {"type": "null"},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"type": "array", "items": {"type": "string"}},
    ],
)
def test_an_optional_property_that_can_be_said_without_a_lie_is_required(optional: Json) -> None:
    told = strict({"type": "object", "properties": {"a": optional}})

    assert told["required"] == ["a"]


@pytest.mark.parametrize(
    "optional", [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
)
def test_an_optional_property_that_would_have_to_be_made_up_is_not_said(optional: Json) -> None:
    assert strict_schema({"type": "object", "properties": {"a": optional}}) is None


def test_constraints_that_strict_does_not_know_are_told_in_words() -> None:
    bounded: Json = {"type": "string", "minLength": 3, "default": "abc", "description": "A word"}

    assert property_of(bounded) == {
        "type": "string",
        "description": 'A word (at least 3 characters; default: "abc")',
    }


@pytest.mark.parametrize(
    ("part", "kept"),
    [
        ({"type": "string", "format": "uuid", "pattern": "^a"}, {"format", "pattern"}),
        ({"type": "string", "format": "color", "pattern": "^(?=a)"}, set()),
        ({"type": "integer", "minimum": 0, "multipleOf": 2}, {"minimum", "multipleOf"}),
        (
            {"type": "array", "items": {"type": "null"}, "maxItems": 2, "uniqueItems": True},
            {"items", "maxItems"},
        ),
        ({"type": ["number", "null"], "maximum": 5}, {"maximum"}),
        ({"type": "string", "const": "x", "title": "X"}, {"const", "title"}),
    ],
)
def test_constraints_that_strict_knows_stay(part: Json, kept: set[str]) -> None:
    assert set(property_of(part)) - {"type", "description"} == kept


def test_alternatives_are_told_as_any_of_them() -> None:
    told = strict(Owner.model_json_schema())

    assert told["properties"]["pet"]["anyOf"] == [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]


def test_the_items_of_a_tuple_are_told_together() -> None:
    places = strict(Place.model_json_schema())["properties"]

    assert places["point"]["items"] == {"type": "number"}
    assert (places["point"]["minItems"], places["point"]["maxItems"]) == (2, 2)
    assert places["named"]["items"] == {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    assert places["named"]["description"] == "its items differ by place"


@pytest.mark.parametrize(
    "part",
    [
        True,
        {},
        {"enum": ["a", 1]},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {**schema_of(b={"type": "string"}), "additionalProperties": True},
        {"type": "object", "properties": {}, "required": ["b"], "additionalProperties": False},
        {**schema_of(b={"type": "string"}), "patternProperties": {"^x": {}}},
        {"type": "array"},
        {"type": "array", "items": True},
        {"type": "string", "not": {"const": "x"}},
        {"type": "string", "anyOf": [{"type": "string"}]},
        {"allOf": [{"type": "string"}, {"type": "string"}]},
        {"$ref": "#/$defs/nobody"},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#"},
        {"$ref": "#/properties", "type": "string"},
        {"type": "color"},
        {"type": []},
        {"type": "object", "properties": {}, "required": "b", "additionalProperties": False},
        {"type": "object", "properties": {}, "required": [7], "additionalProperties": False},
        {"type": "object", "properties": {"b": True}},
        {"type": "string", "enum": "b"},
    ],
)
def test_what_strict_cannot_say_is_not_said(part: Json) -> None:
    assert strict_schema(schema_of(a=part)) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"anyOf": [schema_of(a={"type": "string"})]},
        {"type": "object"},
        {"$ref": "#/$defs/nobody"},
        {"type": "object", "properties": []},
    ],
)
def test_an_answer_that_is_no_closed_object_is_not_told(schema: dict[str, Json]) -> None:
    assert strict_schema(schema) is None


def test_one_schema_of_all_is_that_schema() -> None:
    assert property_of({"allOf": [{"type": "string"}], "description": "x"}) == {
        "type": "string",
        "description": "x",
    }


def nested(depth: int) -> dict[str, Json]:
    schema = schema_of(a={"type": "string"})
    for _ in range(depth - 1):
        schema = schema_of(a=schema)
    return schema


@pytest.mark.parametrize(
    ("fits", "does_not"),
    [
        (nested(DEPTH_MAX), nested(DEPTH_MAX + 1)),
        (
            schema_of(**{f"p{n}": {"type": "null"} for n in range(PROPERTIES_MAX)}),
            schema_of(**{f"p{n}": {"type": "null"} for n in range(PROPERTIES_MAX + 1)}),
        ),
        (
            schema_of(a={"type": "integer", "enum": [*range(ENUM_VALUES_MAX)]}),
            schema_of(a={"type": "integer", "enum": [*range(ENUM_VALUES_MAX + 1)]}),
        ),
    ],
    ids=["depth", "properties", "values"],
)
def test_the_vendors_limits_are_kept(fits: dict[str, Json], does_not: dict[str, Json]) -> None:
    assert strict_schema(fits) is not None
    assert strict_schema(does_not) is None


def test_references_that_lead_on_and_on_are_not_said() -> None:
    levels: dict[str, Json] = {
        f"L{n}": {"$ref": f"#/$defs/L{n + 1}", "description": "Next."} for n in range(1_000)
    }
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/L0", "description": "First."}},
        "required": ["a"],
        "$defs": {**levels, "L1000": {"type": "null"}},
    }

    assert strict_schema(schema) is None


@pytest.mark.timeout(10)
def test_a_long_tuple_keeps_nobody_waiting() -> None:
    places: Json = [{"const": place, "type": "integer"} for place in range(40_000)]

    tuple_: Json = {"type": "array", "prefixItems": places}

    assert strict_schema({"type": "object", "properties": {"a": tuple_}}) is None


def test_a_schema_that_grows_without_end_is_given_up() -> None:
    doubled: dict[str, Json] = {
        f"l{n}": schema_of(
            a={"$ref": f"#/$defs/l{n + 1}", "description": "a"},
            b={"$ref": f"#/$defs/l{n + 1}", "description": "b"},
        )
        for n in range(20)
    }
    definitions: Json = {**doubled, "l20": {"type": "string"}}

    told = strict_schema({**schema_of(a={"$ref": "#/$defs/l0"}), "$defs": definitions})

    assert told is None


SCALAR_EXAMPLES = {"string": "x", "integer": 1, "number": 0.5, "boolean": True, "null": None}
SCALARS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"type": kind} for kind in SCALAR_EXAMPLES]
)


def objects(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from("abc")
    return st.builds(
        lambda properties, required, extra: {
            "type": "object",
            "properties": properties,
            "required": sorted(required & properties.keys()),
            **extra,
        },
        st.dictionaries(names, parts, min_size=1, max_size=3),
        st.sets(names),
        st.sampled_from([{}, {"additionalProperties": False}, {"additionalProperties": True}]),
    )


PARTS: st.SearchStrategy[Any] = st.recursive(
    SCALARS | st.just({"type": "string", "default": "x", "maxLength": 9}) | st.just({}),
    lambda inner: (
        objects(inner)
        | st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=2))
    ),
    max_leaves=6,
)


@given(objects(PARTS))
def test_whatever_is_told_is_strict_and_no_wider_in_its_shape(schema: dict[str, Any]) -> None:
    told = strict_schema(schema)

    if told is not None:
        jsonschema.Draft202012Validator.check_schema(told)
        assert is_strict(told)
        example = example_of(told)
        assert jsonschema.Draft202012Validator(schema).is_valid(example)


def example_of(part: dict[str, Any]) -> Any:
    """Return a value that fits a strict schema, the first of its alternatives."""
    match part:
        case {"anyOf": [first, *_]}:
            return example_of(first)
        case {"type": "object", "properties": properties}:
            return {name: example_of(inner) for name, inner in properties.items()}
        case {"type": "array", "items": items}:
            return [example_of(items)]
        case _:
            return SCALAR_EXAMPLES[part["type"]]


KEYWORDS = st.sampled_from(
    [
        "type", "properties", "required", "items", "anyOf", "allOf", "$ref", "$defs", "enum",
        "prefixItems", "additionalProperties", "default", "description", "pattern", "format",
    ]
)  # fmt: skip
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 9) | st.text("ab#/", max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYWORDS, inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=300)
@given(st.dictionaries(KEYWORDS, ANYTHING, max_size=5))
def test_nonsense_is_not_told(schema: dict[str, Any]) -> None:
    told = strict_schema({"type": "object", **schema, "$comment": "nonsense"})

    assert told is None or told["additionalProperties"] is False
