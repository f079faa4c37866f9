"""For any arguments at all: what validation takes is what the schema takes, once it is mended."""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from milepost.core.errors import ToolValidationError
from milepost.tools import tool, tool_of
from tests.tools.drawing import accepts, judge, near


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


@pytest.mark.parametrize("function", FUNCTIONS)
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_a_strict_tool_takes_exactly_what_its_schema_takes(function: Any, data: Any) -> None:
    definition = tool_of(tool(strict=True)(function))
    given_arguments = data.draw(near(definition))

    accepted = accepts(definition, given_arguments)

    assert accepted == judge(definition).is_valid(given_arguments)


@pytest.mark.parametrize("function", FUNCTIONS)
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_what_fits_the_schema_passes_unchanged(function: Any, data: Any) -> None:
    definition = tool_of(tool(function))
    given_arguments = data.draw(near(definition))

    if judge(definition).is_valid(given_arguments):
        assert definition.validate(given_arguments) == given_arguments


@pytest.mark.parametrize("function", FUNCTIONS)
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_what_was_mended_fits_the_schema_and_stays_as_it_is(function: Any, data: Any) -> None:
    definition = tool_of(tool(function))
    given_arguments = data.draw(near(definition))

    try:
        mended = definition.validate(given_arguments)
    except ToolValidationError:
        return

    assert judge(definition).is_valid(mended)
    assert definition.validate(mended) == mended
