"""The bounds of a schema: refused where they bound nothing, and never the reason for a crash."""

import math
from typing import Annotated

import pytest
from pydantic import Field

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.tools import Tool, tool, tool_of


def take(**arguments: Json) -> Json:
    """Take anything."""
    return arguments


def bounded(bounds: dict[str, Json], **rest: Json) -> Tool:
    """Return a tool whose parameter `a` has `bounds`."""
    schema: dict[str, Json] = {"type": "object", "properties": {"a": bounds}, **rest}
    return Tool(name="take", description="Take.", function=take, parameters=schema)


def multiple_of(factor: float) -> Tool:
    """Return a tool whose parameter `a` is a multiple of `factor`."""
    return bounded({"type": "number", "multipleOf": factor})


@pytest.mark.parametrize(
    ("number", "factor"),
    [(1e27, 1), (10**29, 1), (10**29, 10), (0.3, 0.1), (1e300, 1e-7), (5e-324, 5e-324), (0, 3)],
)
def test_a_multiple_of_any_size_is_taken(number: float, factor: float) -> None:
    assert multiple_of(factor).validate({"a": number}) == {"a": float(number)}


@pytest.mark.parametrize(("number", "factor"), [(1e27, 7), (0.25, 0.1), (1, 1e27), (2.5, 10**29)])
def test_no_multiple_of_any_size_is_taken_for_one(number: float, factor: float) -> None:
    with pytest.raises(ToolValidationError, match="'a' must be a multiple of "):
        multiple_of(factor).validate({"a": number})


def test_a_multiple_beyond_64_bits_is_told_from_its_neighbour() -> None:
    definition = bounded({"type": "integer", "multipleOf": 10})

    assert definition.validate({"a": 10**29}) == {"a": str(10**29)}
    with pytest.raises(ToolValidationError, match="must be a multiple of 10"):
        definition.validate({"a": 10**29 + 1})


@pytest.mark.parametrize(
    ("keyword", "bound", "words"),
    [
        ("minimum", "5", "has the minimum '5'; it must be a finite number"),
        ("maximum", None, "has the maximum None; it must be a finite number"),
        ("exclusiveMinimum", True, "has the exclusiveMinimum True; it must be a finite number"),
        ("exclusiveMaximum", [], "has the exclusiveMaximum []; it must be a finite number"),
        ("maximum", math.nan, "has the maximum nan; it must be a finite number"),
        ("maxLength", "5", "has the maxLength '5'; it must be a whole number, 0 or more"),
        ("minLength", None, "has the minLength None; it must be a whole number, 0 or more"),
        ("minItems", -1, "has the minItems -1; it must be a whole number, 0 or more"),
        ("maxItems", 1.5, "has the maxItems 1.5; it must be a whole number, 0 or more"),
        ("minProperties", False, "has the minProperties False; it must be a whole number"),
        ("maxProperties", {}, "has the maxProperties {}; it must be a whole number"),
        ("multipleOf", 0, "has the multipleOf 0; it must be a finite number greater than 0"),
        ("multipleOf", -2, "has the multipleOf -2; it must be a finite number greater than 0"),
        ("multipleOf", "a", "has the multipleOf 'a'; it must be a finite number greater than 0"),
        ("pattern", 5, "has the pattern 5; it must be a string"),
    ],
)
def test_a_bound_that_bounds_nothing_is_refused_when_the_tool_is_defined(
    keyword: str, bound: Json, words: str
) -> None:
    with pytest.raises(ToolValidationError) as refusal:
        bounded({keyword: bound})

    assert f"tool 'take': the schema at #/properties/a {words}" in str(refusal.value)
    assert refusal.value.code == "invalid_tool"


def test_bounds_that_can_be_judged_are_taken() -> None:
    bounds: dict[str, Json] = {
        "minimum": -1.5, "maximum": 10**400, "exclusiveMinimum": -2, "exclusiveMaximum": 1e308,
        "multipleOf": 0.5, "minLength": 0, "maxLength": 5.0, "minItems": 0, "maxItems": 2,
        "minProperties": 0, "maxProperties": 2, "pattern": "^a",
    }  # fmt: skip

    definition = bounded(bounds)

    assert definition.validate({"a": 2.5}) == {"a": 2.5}
    assert definition.validate({"a": "abcde"}) == {"a": "abcde"}


def test_a_check_that_breaks_refuses_the_arguments() -> None:
    @tool
    def grow(size: Annotated[int, Field(json_schema_extra={"minimum": "5"})]) -> None:
        """Grow."""

    @tool
    def share(size: Annotated[int, Field(json_schema_extra={"multipleOf": 0})]) -> None:
        """Share."""

    broken: list[tuple[Tool, dict[str, Json], type[Exception]]] = [
        (tool_of(grow), {"size": 7}, TypeError),
        (tool_of(share), {"size": 7}, ZeroDivisionError),
        (bounded({"type": "string"}), {"a": 10**5000}, ValueError),
    ]
    for definition, arguments, cause in broken:
        for judge in (definition.validate, definition.values):
            with pytest.raises(ToolValidationError, match="its arguments are refused: ") as told:
                judge(arguments)

            assert told.value.code == "invalid_arguments"
            assert isinstance(told.value.__cause__, cause)
