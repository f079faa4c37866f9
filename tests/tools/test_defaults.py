"""What a call leaves out, and what the tool says that it is then."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from typing import Annotated, Any
from uuid import UUID, uuid4

import pytest
from pydantic import AfterValidator, BaseModel, Field, SecretStr

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.tools import Tool, tool, tool_of
from milepost.tools.defaults import CHARS_MAX


class Currency(Enum):
    """What is paid in."""

    EURO = "EUR"
    POUND = "GBP"


@dataclass
class Line:
    """A line of an order."""

    sku: str
    quantity: int = 1


class Money(BaseModel):
    """An amount."""

    cents: int
    currency: Currency = Currency.EURO


class Folder(BaseModel):
    """A list of its own kind."""

    name: str = "new"
    inner: "list[Folder]" = []


def taking(annotation: Any, *default: Any) -> Tool:
    """Return a tool with one parameter of that annotation, called `value`."""

    def take(value: Any) -> Any:
        return value

    take.__annotations__["value"] = annotation
    take.__defaults__ = default or None
    return tool_of(tool(description="Take a value.")(take))


def described(function: Callable[..., Any], **properties: Json) -> Tool:
    """Return the tool of a function that a ready schema describes."""
    schema: dict[str, Json] = {"type": "object", "properties": properties}
    return tool_of(tool(description="Take values.", parameters=schema)(function))


def taken(definition: Tool, given: dict[str, Json]) -> dict[str, Json]:
    """Return what the tool gets, proven to stay that way."""
    fitted = definition.fit(given)
    again = definition.fit(fitted.taken)
    assert again.given == again.taken == fitted.taken
    assert fitted.given == definition.validate(given)
    return fitted.taken


@pytest.mark.parametrize(
    ("annotation", "default", "said"),
    [
        (int, 500, 500),
        (bool, False, False),
        (str, "", ""),
        (float, 1.5, 1.5),
        (list[str], [], []),
        (str | None, "all", "all"),
        (date, date(2020, 1, 31), "2020-01-31"),
        (Currency, Currency.POUND, "GBP"),
        (Money, Money(cents=5), {"cents": 5, "currency": "EUR"}),
    ],
    ids=str,
)
def test_a_default_is_a_part_of_the_call_that_leaves_it_out(
    annotation: Any, default: Any, said: Json
) -> None:
    definition = taking(annotation, default)

    assert taken(definition, {}) == {"value": said}
    assert definition.values({"value": said}) == definition.values({}) == {"value": default}


def test_what_is_said_counts() -> None:
    assert taken(taking(int, 500), {"value": "7"}) == {"value": 7}


def test_null_says_nothing() -> None:
    assert taken(taking(str | None, None), {}) == {}
    assert taken(taking(int, 500), {"value": None}) == {"value": 500}


@pytest.mark.parametrize(
    ("annotation", "given", "said"),
    [
        (Line, {"sku": "a"}, {"sku": "a", "quantity": 1}),
        (Line | None, {"sku": "a"}, {"sku": "a", "quantity": 1}),
        (list[Line], [{"sku": "a"}], [{"sku": "a", "quantity": 1}]),
        (tuple[int, Line], [3, {"sku": "a"}], [3, {"sku": "a", "quantity": 1}]),
        (dict[str, Line], {"b": {"sku": "a"}}, {"b": {"sku": "a", "quantity": 1}}),
        (
            Folder,
            {"name": "a", "inner": [{}]},
            {"name": "a", "inner": [{"name": "new", "inner": []}]},
        ),
    ],
    ids=str,
)
def test_what_is_left_out_within_a_value_is_looked_for_too(
    annotation: Any, given: Json, said: Json
) -> None:
    assert taken(taking(annotation), {"value": given}) == {"value": said}


def test_nobody_knows_which_of_several_alternatives_is_meant() -> None:
    given: Json = {"sku": "a"}

    assert taken(taking(Line | Money), {"value": given}) == {"value": given}


def test_a_default_that_the_tool_would_refuse_is_not_said() -> None:
    definition = taking(Annotated[int, Field(ge=1)], 0)

    assert taken(definition, {}) == {}
    assert definition.values({}) == {"value": 0}


def test_a_default_that_would_become_something_else_is_not_said_and_others_are() -> None:
    @tool()
    def tell(
        code: Annotated[str, AfterValidator(str.lower)] = "NONE",
        parts: Any = (1, 2),
        times: int = 3,
    ) -> str:
        """Tell."""
        return f"{code}{parts}{times}"

    definition = tool_of(tell)

    assert taken(definition, {}) == {"times": 3}
    assert definition.values({"times": 3}) == {"code": "NONE", "parts": (1, 2), "times": 3}


def test_what_others_make_of_what_is_left_out_is_theirs_to_say() -> None:
    def change(**given: Any) -> Any:
        return given

    definition = described(change, state={"type": "string", "default": "open"})

    assert taken(definition, {}) == {}


def test_of_a_function_with_a_ready_schema_its_own_defaults_count() -> None:
    def find(
        text: str = "all",
        limit: int = 30,
        day: date = date(2020, 1, 31),
        wrong: Any = -1,
        unsaid: int = 2**70,
    ) -> str:
        return f"{text}{limit}{day}{wrong}{unsaid}"

    definition = described(
        find,
        text={"type": "string"},
        limit={"type": "integer", "default": 20},
        day={"type": "string"},
        wrong={"type": "integer", "minimum": 0},
        unsaid={"type": "integer"},
    )

    assert taken(definition, {}) == {"text": "all", "limit": 30}


def test_what_is_made_anew_with_each_call_keeps_no_default_beside_it_from_being_said() -> None:
    class Bill(BaseModel):
        """Something to pay."""

        cents: int = 500
        id: UUID = Field(default_factory=uuid4)

    @tool()
    def pay(bill: Bill, parts: Iterable[int], times: int = 3) -> str:
        """Pay."""
        return f"{bill}{parts}{times}"

    given: dict[str, Json] = {"bill": {}, "parts": [1]}

    assert taken(tool_of(pay), given) == {"bill": {"cents": 500}, "parts": [1], "times": 3}


def test_what_is_made_anew_hides_no_default_that_would_become_something_else() -> None:
    class Access(BaseModel):
        """A way in."""

        token: SecretStr = SecretStr("word")
        id: UUID = Field(default_factory=uuid4)

    assert taken(taking(Access), {"value": {}}) == {"value": {}}


def test_a_default_that_would_become_something_else_keeps_none_beside_it_from_being_said() -> None:
    @dataclass
    class Bill:
        """Something to pay."""

        to: Sequence[str] = ()
        cents: int = 500
        money: Money = field(default_factory=lambda: Money(cents=5))

    definition = taking(list[Bill])

    assert taken(definition, {"value": [{}, {"to": ["ann"]}, {"money": {"cents": 7}}]}) == {
        "value": [
            {"cents": 500},
            {"to": ["ann"], "cents": 500},
            {"money": {"cents": 7, "currency": "EUR"}, "cents": 500},
        ]
    }


def test_a_default_that_json_cannot_say_keeps_none_beside_it_from_being_said() -> None:
    @dataclass
    class Range:
        """From an amount to another."""

        least: int = 500
        most: float = float("inf")

    assert taken(taking(Range), {"value": {}}) == {"value": {"least": 500}}


def test_a_default_that_lacks_what_has_a_default_itself_is_not_said() -> None:
    class Bill(BaseModel):
        """Something to pay."""

        money: Money = {"cents": 5}  # type: ignore[assignment]  # as pydantic lets it be

    @tool()
    def pay(bill: Bill, times: int = 1) -> str:
        """Pay."""
        return f"{bill}{times}"

    assert taken(tool_of(pay), {"bill": {}}) == {"bill": {}, "times": 1}


def test_calls_do_not_share_a_default() -> None:
    definition = taking(list[str], ["a"])

    first, second = definition.fit({}), definition.fit({})

    assert first.taken["value"] is not second.taken["value"]


def test_a_call_does_not_grow_without_bound() -> None:
    @dataclass
    class Note:
        text: str = "x" * 1_000

    definition = taking(list[Note])
    most = CHARS_MAX // len(f'"{Note().text}"')

    full = definition.fit({"value": [{}] * most}).taken["value"]
    assert full == [{"text": Note().text}] * most
    with pytest.raises(ToolValidationError, match="leaves out too much that has defaults"):
        definition.fit({"value": [{}] * (most + 1)})
