"""What becomes of the arguments that a model wrote."""

import copy
import math
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field

from milepost.core.canonical import call_digest
from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.tools import Injected, Tool, ToolContext, tool, tool_of


class Unit(Enum):
    """Degrees."""

    CELSIUS = "C"
    FAHRENHEIT = "F"


@dataclass
class Point:
    """A place."""

    x: float
    label: str = ""


class Node(BaseModel):
    """A list of its own kind."""

    value: int
    next: "Node | None" = None


def tool_with(annotation: Any, *, strict: bool = False) -> Tool:
    """Return a tool with one parameter of that annotation, called `value`."""

    def take(value: Any) -> Any:
        return value

    take.__annotations__["value"] = annotation
    return tool_of(tool(description="Take a value.", strict=strict)(take))


def coerced(annotation: Any, value: Json) -> Json:
    """Return what becomes of `value`, proven to stay that way."""
    definition = tool_with(annotation)
    once = definition.validate({"value": value})
    assert definition.validate(once) == once
    return once["value"]


def refusal_of(annotation: Any, value: Json, *, strict: bool = False) -> str:
    """Return the message with which `value` is refused."""
    with pytest.raises(ToolValidationError) as refusal:
        tool_with(annotation, strict=strict).validate({"value": value})
    assert refusal.value.code == "invalid_arguments"
    return str(refusal.value)


@tool
def search(query: str, limit: int = 10, unit: Unit = Unit.CELSIUS) -> str:
    """Search for something."""
    return f"{query} {limit} {unit}"


def search_refusal(arguments: dict[str, Json]) -> str:
    """Return the message with which `search` refuses `arguments`."""
    with pytest.raises(ToolValidationError) as refusal:
        tool_of(search).validate(arguments)
    return str(refusal.value)


def test_an_unexpected_parameter_is_answered_with_the_one_that_was_meant() -> None:
    assert search_refusal({"qury": "x", "limit": 1}) == (
        "search got the unexpected parameter 'qury'. Did you mean 'query'? "
        "Expected parameters: query, limit, unit"
    )


def test_an_unexpected_parameter_like_no_other_is_answered_with_those_expected() -> None:
    assert search_refusal({"query": "x", "zzz": 1}) == (
        "search got the unexpected parameter 'zzz'. 'zzz' is not a valid parameter. "
        "Expected parameters: query, limit, unit"
    )


def test_several_unexpected_parameters_are_named_in_order() -> None:
    assert "unexpected parameters: a, b, c." in search_refusal({"c": 1, "a": 1, "b": 1})


def test_a_missing_parameter_is_named_with_all_that_are_required() -> None:
    @tool
    def mail(to: str, subject: str, body: str = "") -> None:
        """Send a mail."""

    with pytest.raises(ToolValidationError) as refusal:
        tool_of(mail).validate({"to": "a@b.c"})

    assert str(refusal.value) == (
        "mail is missing the required parameter 'subject'. Required parameters: to, subject"
    )


def test_the_unexpected_is_said_before_the_missing_and_the_missing_before_the_mistyped() -> None:
    assert "unexpected" in search_refusal({"zzz": 1, "limit": "x"})
    assert "missing" in search_refusal({"limit": "x"})
    assert "must be an integer" in search_refusal({"query": "x", "limit": "x", "unit": "K"})
    assert "must be one of" in search_refusal({"query": "x", "limit": 1, "unit": "K"})


def test_a_mistyped_value_is_answered_with_what_to_try() -> None:
    assert refusal_of(str, 5) == (
        "take: parameter 'value' must be a string, got 5 (integer). Try: value=str(5)"
    )
    assert refusal_of(int, "x") == (
        "take: parameter 'value' must be an integer, got \"x\" (string). Try: value=int('x')"
    )
    assert refusal_of(list[int], 5) == (
        "take: parameter 'value' must be an array, got 5 (integer). Expected type: array"
    )


@pytest.mark.parametrize(
    ("annotation", "value", "result"),
    [
        (int, "42", 42),
        (int, " 8 ", 8),
        (int, "-3", -3),
        (int, 4.0, 4),
        (float, "2.5", 2.5),
        (float, "1e2", 100.0),
        (float, 3, 3),
        (bool, "true", True),
        (bool, " Yes ", True),
        (bool, "1", True),
        (bool, "ON", True),
        (bool, "false", False),
        (bool, "No", False),
        (bool, "0", False),
        (bool, "off", False),
        (list[int], ["1", 2.0], [1, 2]),
        (dict[str, int], {"a": "1"}, {"a": 1}),
        (tuple[int, str], ["1", "1"], [1, "1"]),
        (set[int], [1, "1", 2], [1, 2]),
        (Literal[1, 2], "2", 2),
        (Literal[1, "a"], "1", 1),
        (Literal[True, "maybe"], "yes", True),
        (Point, {"x": "1"}, {"x": 1.0}),
    ],
)
def test_what_can_only_mean_one_thing_is_mended(annotation: Any, value: Json, result: Json) -> None:
    mended = coerced(annotation, value)

    assert mended == result
    assert type(mended) is type(result)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, "4.0"),
        (int, "0x1F"),
        (int, ""),
        (int, 4.5),
        (int, None),
        (float, "2,5"),
        (float, "nan"),
        (float, "inf"),
        (float, "1e999"),
        (float, math.nan),
        (float, math.inf),
        (int, math.nan),
        (Any, math.nan),
        (list[Any], [{"a": -math.inf}]),
        (bool, "maybe"),
        (bool, 1),
        (bool, 0.0),
        (int, True),
        (float, False),
        (Literal[1], True),
        (str, None),
        (str, True),
        (Literal["a", "b"], "A"),
        (Unit, "K"),
        (date, "tomorrow"),
        (tuple[int, str], [1]),
        (list[int], "[1]"),
    ],
)
def test_what_cannot_be_meant_is_refused(annotation: Any, value: Json) -> None:
    assert "parameter 'value" in refusal_of(annotation, value)


@pytest.mark.parametrize(
    ("annotation", "value", "result"),
    [
        (int | str, 5, 5),
        (int | str, "5", "5"),
        (str | int, 5, 5),
        (int | bool, "5", 5),
        (int | bool, True, True),
        (bool | int, "yes", True),
        (int | None, "5", 5),
        (int | float, 2.5, 2.5),
        (list[int] | list[str], ["1"], ["1"]),
        (Literal["all"] | int, "7", 7),
        (date | str, "2026-01-02", "2026-01-02"),
    ],
)
def test_a_union_takes_the_exact_branch_first_and_then_mends_in_order(
    annotation: Any, value: Json, result: Json
) -> None:
    chosen = coerced(annotation, value)

    assert chosen == result
    assert type(chosen) is type(result)


def test_a_union_that_nothing_fits_names_its_alternatives() -> None:
    assert "must be integer or boolean, got [] (array)" in refusal_of(int | bool, [])


def test_an_optional_complains_about_its_value_alone() -> None:
    assert "must be an integer" in refusal_of(int | None, "x")


def test_the_place_of_a_mistake_is_named_to_the_item() -> None:
    assert "'value[1].x' must be" in refusal_of(list[Point], [{"x": 1}, {"x": "far"}])
    assert "'value.a' must be" in refusal_of(dict[str, int], {"a": None})


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (Annotated[int, Field(ge=1)], "0", "must be at least 1, got 0"),
        (Annotated[int, Field(lt=1)], 1, "must be less than 1"),
        (Annotated[float, Field(multiple_of=0.1)], 0.25, "must be a multiple of 0.1"),
        (Annotated[str, Field(max_length=2)], "abc", "must have at most 2 characters, got 3"),
        (Annotated[str, Field(pattern="^a")], "b", "must match the pattern ^a"),
        (Annotated[list[int], Field(min_length=1)], [], "must have at least 1 items, got 0"),
        (Annotated[int, Field(le=9)], str(2**70), "must be at most 9"),
    ],
)
def test_a_bound_is_enforced_in_words(annotation: Any, value: Json, words: str) -> None:
    assert words in refusal_of(annotation, value)


def test_a_validator_of_the_authors_own_has_its_say() -> None:
    def even(value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value

    assert "'value' is refused: Value error, must be even, got 3" in refusal_of(
        Annotated[int, AfterValidator(even)], "3"
    )


@pytest.mark.parametrize("error", [RuntimeError("no reply"), KeyError("gone"), SystemExit(3)])
def test_whatever_a_tools_own_validator_raises_refuses_the_arguments(error: BaseException) -> None:
    def look_up(_: str) -> str:
        raise error

    @tool
    def greet(name: Annotated[str, AfterValidator(look_up)]) -> None:
        """Greet."""

    for judge in (tool_of(greet).validate, tool_of(greet).values):
        with pytest.raises(ToolValidationError, match="greet: its arguments are refused: ") as told:
            judge({"name": "Ada"})

        assert type(error).__name__ in str(told.value)
        assert told.value.__cause__ is error


def test_null_counts_as_left_out_where_a_default_cannot_be_null() -> None:
    assert tool_of(search).validate({"query": "x", "limit": None}) == {"query": "x"}
    assert tool_of(search).values({"query": "x", "limit": None})["limit"] == 10


def test_null_is_passed_where_it_is_allowed() -> None:
    @tool
    def look(city: str | None = "Oslo") -> None:
        """Look."""

    assert tool_of(look).validate({"city": None}) == {"city": None}
    assert tool_of(look).values({"city": None}) == {"city": None}
    assert tool_of(look).values({}) == {"city": "Oslo"}


def test_an_optional_without_default_that_is_left_out_is_none() -> None:
    @tool
    def look(city: str | None) -> None:
        """Look."""

    assert tool_of(look).validate({}) == {}
    assert tool_of(look).values({}) == {"city": None}


def test_a_strict_tool_mends_nothing() -> None:
    assert "must be an integer" in refusal_of(int, "42", strict=True)
    assert "must be a boolean" in refusal_of(bool, "true", strict=True)
    assert "same item twice" in refusal_of(set[int], [1, 1], strict=True)
    assert 'must be one of 1, "a"' in refusal_of(Literal[1, "a"], "1", strict=True)
    assert "got null" in refusal_of(Point, {"x": 1, "label": None}, strict=True)
    assert tool_with(int, strict=True).validate({"value": 4.0}) == {"value": 4}


def test_the_callers_arguments_are_neither_changed_nor_shared() -> None:
    given: dict[str, Json] = {"value": {"items": ["1", {"deep": ["2"]}]}}
    before = copy.deepcopy(given)

    result = tool_with(dict[str, Any]).validate(given)
    result["value"]["items"][1]["deep"].append("3")  # type: ignore[index,call-overload,union-attr]

    assert given == before


def test_equal_arguments_have_one_digest_however_they_were_written() -> None:
    definition = tool_of(search)

    digests = {
        call_digest("search", definition.validate({"limit": limit, "query": "x"}))
        for limit in (3, 3.0, "3", " 3 ")
    }

    assert len(digests) == 1


def test_what_cannot_be_stored_is_made_storable() -> None:
    assert coerced(str, "a\x00\ud800") == "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"
    assert coerced(Any, {"big": 2**64}) == {"big": str(2**64)}
    assert coerced(int, 2**64) == str(2**64)
    assert coerced(float, 2**64) == float(2**64)


def test_an_integer_beyond_64_bits_reaches_the_tool_as_an_integer() -> None:
    definition = tool_with(int)

    assert definition.values(definition.validate({"value": 2**64})) == {"value": 2**64}
    assert "has too many digits" in refusal_of(int, 10**5000)


def test_endless_nesting_is_refused() -> None:
    deep: dict[str, Json] = {"value": 1}
    for _ in range(5_000):
        deep = {"value": 1, "next": deep}

    assert "nested too deeply" in refusal_of(Node, deep)


def test_the_values_have_the_annotated_types() -> None:
    @tool
    def look(
        at: Point, unit: Unit, when: datetime, ids: set[int], node: Node | None = None
    ) -> None:
        """Look."""

    values = tool_of(look).values(
        {"at": {"x": 1}, "unit": "F", "when": "2026-01-02T03:04:05Z", "ids": ["1", 1]}
    )

    assert values["at"] == Point(1.0)
    assert values["unit"] is Unit.FAHRENHEIT
    assert values["when"].year == 2026
    assert values["ids"] == {1}
    assert values["node"] is None


@pytest.mark.parametrize("name", ["key", "context"])
def test_a_model_that_supplies_what_is_injected_gets_unexpected_parameter(name: str) -> None:
    @tool(inject={"key": "s3cret"})
    def call(query: str, key: Injected[str], context: ToolContext) -> None:
        """Call."""

    with pytest.raises(ToolValidationError) as refusal:
        tool_of(call).validate({"query": "x", name: "mine"})

    assert f"unexpected parameter {name!r}" in str(refusal.value)
    assert str(refusal.value).endswith("Expected parameters: query")


def test_a_refusal_says_its_parts_apart_too() -> None:
    @tool
    def add(count: int, word: str) -> None:
        """Add."""

    def refused(arguments: dict[str, Json]) -> tuple[str, str, str, str]:
        with pytest.raises(ToolValidationError) as refusal:
            tool_of(add).validate(arguments)
        error = refusal.value
        return error.tool, error.parameter, error.issue, error.suggestion

    assert refused({"count": "x", "word": "a"}) == (
        "add",
        "count",
        'must be an integer, got "x" (string)',
        "Try: count=int('x')",
    )
    assert refused({"z": 1, "y": 2})[1:3] == ("y, z", "got unexpected parameters: y, z")
    assert refused({})[1] == "count, word"
