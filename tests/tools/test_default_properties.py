"""For any call: with the defaults of what it leaves out it is the same call, and stays so."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID, uuid4

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field

from milepost.core.errors import ToolValidationError
from milepost.tools import Tool
from tests.tools.drawing import near


@dataclass
class Line:
    """A line of a bill; a list is not what its default is."""

    to: Sequence[str] = ()
    value: int = 5


class Bill(BaseModel):
    """Something to pay, with defaults of all kinds."""

    a: Line = {"value": 3}  # type: ignore[assignment]  # as pydantic lets it be
    b: Annotated[str, AfterValidator(str.lower)] = "NONE"
    c: int | None = 3
    value: Line = Field(default_factory=Line)
    next: "Bill | None" = None


class Bills(BaseModel):
    """Bills, and what is made anew with each call."""

    a: list[Bill] = []
    b: Bill = Bill(c=1)
    c: Annotated[int, Field(ge=1)] = 0
    x: UUID = Field(default_factory=uuid4)
    y: dict[str, Bill] = {}


def take(
    a: Bill,
    b: list[Bills],
    c: tuple[Line, Bill] | None = None,
    d: Sequence[str] = ("x",),
    e: int = 7,
) -> None:
    """Take it."""


def without_ids(value: Any) -> Any:
    """Return values as they can be compared."""
    match value:
        case Bills():
            return without_ids({**value.__dict__, "x": None})
        case dict():
            return {name: without_ids(part) for name, part in value.items()}
        case list():
            return [*map(without_ids, value)]
        case _:
            return value


@given(st.booleans(), st.data())
@settings(deadline=None, max_examples=200)
def test_defaults_change_no_value_that_a_tool_gets_and_are_the_same_the_next_time(
    strict: bool,
    data: st.DataObject,
) -> None:
    definition = Tool(name="take", description="Take it.", function=take, strict=strict)
    arguments = data.draw(near(definition))
    try:
        mended = definition.validate(arguments)
    except ToolValidationError:
        return

    fitted = definition.fit(arguments)
    again = definition.fit(fitted.taken)

    assert fitted.given == mended
    assert again.given == again.taken == fitted.taken
    assert fitted.taken["e"] == fitted.given.get("e", 7)
    assert without_ids(definition.values(fitted.taken)) == without_ids(definition.values(mended))
