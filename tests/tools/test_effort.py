"""What judging a value may cost: no schema and no value makes it take for ever."""

import time
from typing import Annotated, Literal, cast

import pytest
from pydantic import BaseModel, Field

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.tools import Tool, tool, tool_of
from milepost.tools.coerce import SchemaCompiler
from milepost.tools.misfit import Misfit
from tests.tools.test_unions import Watched

ENOUGH_S = 5.0
DEPTH = 60


class Left(BaseModel):
    """One of two that hold one another."""

    next: "Left | Right | None" = None
    kind: Literal["left"]


class Right(BaseModel):
    """The other."""

    next: "Left | Right | None" = None
    kind: Literal["right"]


class MarkedLeft(BaseModel):
    """One of two that are told apart by their kind."""

    next: "Annotated[MarkedLeft | MarkedRight, Field(discriminator='kind')] | None" = None
    kind: Literal["left"]


class MarkedRight(BaseModel):
    """The other."""

    next: "Annotated[MarkedLeft | MarkedRight, Field(discriminator='kind')] | None" = None
    kind: Literal["right"]


@tool
def walk(node: Left | Right) -> None:
    """Walk."""


@tool
def walk_marked(
    node: Annotated[MarkedLeft | MarkedRight, Field(discriminator="kind")],
) -> None:
    """Walk."""


def take(**arguments: Json) -> Json:
    """Take anything."""
    return arguments


def chain(depth: int, leaf: dict[str, Json]) -> Json:
    """Return objects in objects, of one kind and the other, with `leaf` in the innermost."""
    nested: dict[str, Json] = leaf
    for level in range(depth):
        nested = {"next": nested, "kind": "right" if level % 2 else "left"}
    return nested


def both_ways(kind: str) -> dict[str, Json]:
    """Return the schema of a node that holds a node of either kind."""
    node: Json = {"anyOf": [{"$ref": "#/$defs/left"}, {"$ref": "#/$defs/right"}]}
    return {"type": "object", "properties": {"next": node, "kind": {"const": kind}}}


EITHER: dict[str, Json] = {
    "$defs": {"left": both_ways("left"), "right": both_ways("right")},
    "anyOf": [{"$ref": "#/$defs/left"}, {"$ref": "#/$defs/right"}],
}
# Each level asks its next twice, of what the first has made anew.
_BOTH: Json = {"allOf": [{"$ref": "#/$defs/nextA"}, {"$ref": "#/$defs/nextB"}]}
TWICE: dict[str, Json] = {
    "$defs": {
        "A": _BOTH,
        "B": _BOTH,
        "nextA": {"type": "object", "properties": {"next": {"$ref": "#/$defs/A"}}},
        "nextB": {"type": "object", "properties": {"next": {"$ref": "#/$defs/B"}}},
    },
    "$ref": "#/$defs/A",
}
MANY = 20_000
WORDS: Json = [f"w{at}" for at in range(MANY)]
NAMES: dict[str, Json] = {f"p{at}": {} for at in range(MANY)}


def judged(schema: dict[str, Json], value: Json, *, strict: bool = False) -> Json:
    return SchemaCompiler(schema, strict=strict).compile(cast("Json", schema))(value)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("leaf", [{"kind": "neither"}, {"kind": "left", "next": {"kind": 1}}])
def test_alternatives_that_hold_one_another_are_each_asked_once_however_deep(
    leaf: dict[str, Json], strict: bool
) -> None:
    watched = Watched(leaf)

    with pytest.raises(Misfit):
        judged(EITHER, chain(DEPTH, watched), strict=strict)

    assert watched.visits == 2


def test_what_is_known_to_be_wrong_is_told_with_the_place_where_it_counts() -> None:
    word: Json = {"$ref": "#/$defs/word"}
    schema: dict[str, Json] = {
        "$defs": {"word": {"properties": {"word": {"type": "string"}}, "type": "object"}},
        "type": "object",
        "properties": {"a": {"anyOf": [word, {"type": "object"}]}, "b": word},
    }
    wrong: Json = {"word": 1}

    with pytest.raises(Misfit) as misfit:
        judged(schema, {"a": wrong, "b": wrong})

    assert misfit.value.path == ("b", "word")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (TWICE, chain(DEPTH, {})),
        ({"items": {"anyOf": [{"const": at} for at in range(MANY)]}}, [-1] * MANY),
        ({"items": {"type": "object", "properties": NAMES}}, [{}] * MANY),
        ({"items": {"allOf": [{"type": "integer"}] * MANY}}, [1] * MANY),
        (
            {"additionalProperties": {"allOf": [{"type": "integer"}] * MANY}},
            dict.fromkeys(NAMES, 1),
        ),
    ],
    ids=["allOf", "anyOf", "properties", "conjunction", "additionalProperties"],
)
def test_what_would_take_too_long_to_check_is_refused(schema: dict[str, Json], value: Json) -> None:
    kind = "object" if isinstance(value, dict) else "array"
    began = time.process_time()

    with pytest.raises(Misfit, match="takes too long to check"):
        judged({"type": kind, **schema}, value)

    assert time.process_time() - began < ENOUGH_S


@pytest.mark.parametrize(
    "alternative",
    [{"enum": WORDS}, {"type": "object", "properties": NAMES, "additionalProperties": False}],
    ids=["enum", "properties"],
)
def test_complaints_that_nobody_hears_cost_little(alternative: dict[str, Json]) -> None:
    value: Json = [{"p": 1}] * 90
    began = time.process_time()

    taken = judged({"type": "array", "items": {"anyOf": [alternative, {}]}}, value)

    assert taken == value
    assert time.process_time() - began < ENOUGH_S


def test_a_complaint_shows_some_of_many_choices_and_how_many_there_are() -> None:
    with pytest.raises(Misfit) as misfit:
        judged({"enum": WORDS}, "x")

    assert misfit.value.issue.startswith('must be one of "w0", "w1", ')
    assert f"… ({MANY} in all)" in misfit.value.issue
    assert len(misfit.value.issue) < 1_000


def test_a_large_value_is_taken() -> None:
    node: Json = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}},
    }
    value: Json = [{"name": "a", "next": {"name": "b"}} for _ in range(MANY)]

    assert judged({"$defs": {"node": node}, "type": "array", "items": node}, value) == value


@pytest.mark.parametrize("depth", [1, 8])
def test_python_types_that_hold_one_another_are_taken_to_a_depth(depth: int) -> None:
    given = {"node": chain(depth, {"kind": "right"})}

    assert tool_of(walk).validate(given)["node"]


@pytest.mark.parametrize("leaf", ["right", "neither"])
def test_python_types_that_hold_one_another_are_refused_where_trying_them_all_takes_too_long(
    leaf: str,
) -> None:
    began = time.process_time()

    with pytest.raises(ToolValidationError, match=r"takes too long to check: .* in fewer levels"):
        tool_of(walk).validate({"node": chain(DEPTH, {"kind": leaf})})

    assert time.process_time() - began < ENOUGH_S


def test_python_types_with_a_discriminator_are_taken_however_deep() -> None:
    given: dict[str, Json] = {"node": chain(DEPTH, {"kind": "right", "next": None})}

    assert tool_of(walk_marked).validate(given) == given


def test_a_list_of_alternatives_is_no_depth() -> None:
    @tool
    def take_all(nodes: list[Left | Right]) -> int:
        """Take all."""
        return len(nodes)

    nodes: list[Json] = [{"kind": "right"}] * MANY

    assert len(cast("list[Json]", tool_of(take_all).validate({"nodes": nodes})["nodes"])) == MANY


def test_a_ready_schema_may_hold_itself_in_alternatives_however_deep() -> None:
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {"node": {"anyOf": EITHER["anyOf"]}},
        "$defs": EITHER["$defs"],
    }
    definition = Tool(name="take", description="Take.", function=take, parameters=schema)
    given = {"node": chain(DEPTH, {"kind": "right"})}

    assert definition.validate(given) == given
