"""For any arguments at all: what validation takes is what the schema takes, once it is mended."""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from milepost.core.errors import ToolValidationError
from milepost.core.json import INT_MAX, INT_MIN, Json
from milepost.tools import Tool, tool, tool_of


class Unit(Enum):
    """Degrees."""

    CELSIUS = "C"
    FAHRENHEIT = "F"


@dataclass
class Point:
    """A place."""

    x: float
    y: int = 0


class Node(BaseModel):
    """A list of its own kind."""

    value: int
    next: "Node | None" = None


def plain(a: str, b: int, c: float = 1.5, d: bool = False) -> None:
    """Take scalars."""


def optional(a: int | None, b: Literal["x", "y"] | None = None, c: list[str] | None = None) -> None:
    """Take what may be missing."""


def unions(a: int | str, b: list[int] | dict[str, bool] | None = None, c: float | bool = 0) -> None:
    """Take alternatives."""


def containers(
    a: list[list[int]], b: dict[str, list[bool]], c: tuple[int, str], d: set[str] | None
) -> None:
    """Take what contains."""


def classes(a: Point, b: Unit = Unit.CELSIUS, c: Node | None = None, d: Any = None) -> None:
    """Take objects."""


def bounded(
    a: Annotated[int, Field(ge=-2, lt=5)],
    b: Annotated[str, Field(min_length=1, max_length=3, pattern="^[a-z]*$")] = "a",
    c: Annotated[list[int] | None, Field(min_length=1, max_length=2)] = None,
    d: Literal[1, "1", True] = 1,
) -> None:
    """Take what is bounded."""


FUNCTIONS = [plain, optional, unions, containers, classes, bounded]

# Beyond 64 bits a whole number travels as text, which no schema says: tested apart.
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-10, 10)
    | st.integers(INT_MIN, INT_MAX)
    | st.floats(-1e15, 1e15)
    | st.sampled_from(
        ["x", "y", "C", "F", "1", " 2 ", "-3", "4.0", "true", "off", "abc", "a\n", ""]
    )
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5)
)
keys = st.sampled_from(["a", "b", "c", "x", "y", "value", "next"])
values: st.SearchStrategy[Json] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e"]), values, max_size=5)


@pytest.mark.parametrize("function", FUNCTIONS)
@given(data=st.data())
@settings(deadline=None)
def test_a_strict_tool_takes_exactly_what_its_schema_takes(function: Any, data: Any) -> None:
    definition = tool_of(tool(strict=True)(function))
    given_arguments = data.draw(near(definition))

    accepted = accepts(definition, given_arguments)

    assert accepted == judge(definition).is_valid(given_arguments)


@pytest.mark.parametrize("function", FUNCTIONS)
@given(data=st.data())
@settings(deadline=None)
def test_what_fits_the_schema_passes_unchanged(function: Any, data: Any) -> None:
    definition = tool_of(tool(function))
    given_arguments = data.draw(near(definition))

    if judge(definition).is_valid(given_arguments):
        assert definition.validate(given_arguments) == given_arguments


@pytest.mark.parametrize("function", FUNCTIONS)
@given(data=st.data())
@settings(deadline=None)
def test_what_was_mended_fits_the_schema_and_stays_as_it_is(function: Any, data: Any) -> None:
    definition = tool_of(tool(function))
    given_arguments = data.draw(near(definition))

    try:
        mended = definition.validate(given_arguments)
    except ToolValidationError:
        return

    assert judge(definition).is_valid(mended)
    assert definition.validate(mended) == mended


def judge(definition: Tool) -> jsonschema.Draft202012Validator:
    """Return the independent judge of a tool's arguments."""
    return jsonschema.Draft202012Validator(dict(definition.schema.parameters))


def accepts(definition: Tool, given_arguments: dict[str, Json]) -> bool:
    """Say whether validation takes `given_arguments`."""
    try:
        definition.validate(given_arguments)
    except ToolValidationError:
        return False
    return True


def near(definition: Tool) -> st.SearchStrategy[dict[str, Json]]:
    """Draw arguments, half of them at least shaped like what the tool wants."""
    schema: dict[str, Any] = dict(definition.schema.parameters)
    fitting = {name: shaped(part, schema) | values for name, part in schema["properties"].items()}
    required = {name: fitting.pop(name) for name in schema["required"]}
    return st.fixed_dictionaries(required, optional=fitting) | arguments


def shaped(part: Any, root: Any) -> st.SearchStrategy[Any]:
    """Draw what the schema `part` would take, or nearly."""
    if "$ref" in part:
        return st.deferred(lambda: shaped(root["$defs"][part["$ref"].rpartition("/")[2]], root))
    if "anyOf" in part:
        return st.one_of([shaped(branch, root) for branch in part["anyOf"]])
    if "enum" in part:
        return st.sampled_from(part["enum"])
    match part.get("type"):
        case "array" if "prefixItems" in part:
            return st.tuples(*(shaped(item, root) for item in part["prefixItems"])).map(list)
        case "array":
            return st.lists(shaped(part.get("items", {}), root), max_size=3)
        case "object" if "properties" in part:
            inner = {name: shaped(p, root) for name, p in part["properties"].items()}
            return st.fixed_dictionaries({}, optional=inner)
        case "object":
            return st.dictionaries(keys, shaped(part["additionalProperties"], root), max_size=3)
        case _:
            return scalars
