"""`@tool` leaves a function what it is and gives it a definition."""

import functools
import inspect
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.tools import Tool, ToolParameter, schema_of, tool, tool_of


def test_a_bare_decorator_returns_the_very_same_function() -> None:
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Hello {name}"

    decorated = tool(greet)

    assert decorated is greet
    assert decorated("Ada") == "Hello Ada"
    assert tool_of(decorated).name == "greet"


def test_a_decorator_with_arguments_returns_the_very_same_function() -> None:
    async def search_google(query: str) -> str:
        """Search the web."""
        return query

    decorated = tool(name="web_search", effect="read", timeout_s=5, requires_approval=True)(
        search_google
    )

    definition = tool_of(decorated)
    assert decorated is search_google
    assert (definition.name, definition.effect) == ("web_search", "read")
    assert (definition.timeout_s, definition.requires_approval) == (5, True)


def test_functions_keep_their_kind() -> None:
    @tool
    async def coroutine() -> None:
        """Wait."""

    @tool
    def generator() -> Iterator[str]:
        """Count."""
        yield "1"

    @tool
    async def stream() -> AsyncIterator[str]:
        """Count slowly."""
        yield "1"

    assert inspect.iscoroutinefunction(coroutine)
    assert inspect.isgeneratorfunction(generator)
    assert inspect.isasyncgenfunction(stream)
    assert list(generator()) == ["1"]


def test_a_tool_is_repeated_never_unless_it_says_so() -> None:
    @tool
    def pay() -> None:
        """Pay."""

    assert tool_of(pay).effect == "once"


def test_an_explicit_description_goes_before_the_docstring() -> None:
    @tool(description="For people who look things up.")
    def look_up() -> None:
        """Look it up."""

    assert tool_of(look_up).description == "For people who look things up."


def test_the_first_paragraph_of_the_docstring_is_the_description_on_one_line() -> None:
    @tool
    def look_up() -> None:
        """Look something up
            in the big book.

        This is for colleagues.
        """

    assert tool_of(look_up).description == "Look something up in the big book."


def test_a_function_without_docstring_is_described_by_its_name_and_warned_about() -> None:
    def quiet() -> None: ...

    for decorate in (tool, tool(effect="read")):
        with pytest.warns(UserWarning, match="'quiet' has no docstring") as warned:
            decorate(quiet)

        assert tool_of(quiet).description == "Tool quiet"
        assert warned[0].filename == __file__


def test_an_empty_description_is_refused() -> None:
    def quiet() -> None: ...

    with pytest.raises(ToolValidationError, match="needs a description"):
        tool(description=" ")(quiet)


def test_a_function_that_is_no_tool_says_so() -> None:
    def plain() -> None: ...

    with pytest.raises(ToolValidationError, match="plain is not a tool; decorate it with @tool"):
        tool_of(plain)


def test_a_method_is_a_tool_of_its_instance() -> None:
    tool_of_instance = tool_of(_Shop("Oslo").address)

    assert tool_of_instance.schema.parameters["properties"] == {"street": {"type": "string"}}
    assert tool_of_instance.function(street="Main") == "Main, Oslo"


def test_calling_a_decorated_method_is_unchanged() -> None:
    assert _Shop("Oslo").address("Main") == "Main, Oslo"


def test_two_decorated_functions_have_two_tools() -> None:
    @tool
    def first() -> None:
        """Be the first."""

    @tool
    def second() -> None:
        """Be the second."""

    assert isinstance(tool_of(first), Tool)
    assert tool_of(first) is not tool_of(second)


def test_static_and_class_methods_are_tools_in_either_order() -> None:
    for function, result in (
        (_Shop.double, 4),
        (_Shop.twice, 4),
        (_Shop.made, "Oslo 2"),
        (_Shop.built, "Oslo 2"),
    ):
        definition = tool_of(function)

        assert definition.schema.parameters["properties"] == {"number": {"type": "integer"}}
        assert definition.function(number=2) == result
        assert function(2) == result


def test_a_partial_is_a_tool_of_what_is_left_to_fill() -> None:
    def scale(number: int, factor: int) -> int:
        """Scale a number."""
        return number * factor

    triple = tool(name="triple")(functools.partial(scale, factor=3))

    assert tool_of(triple).schema.to_dict() == {
        "name": "triple",
        "description": "Scale a number.",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "integer"}},
            "required": ["number"],
            "additionalProperties": False,
        },
    }
    assert triple(2) == 6


def test_what_has_no_name_of_its_own_needs_one() -> None:
    with pytest.raises(ToolValidationError, match="has no name of its own; give one"):
        tool(functools.partial(print))


def test_an_object_that_can_be_called_is_a_tool() -> None:
    shop = _Caller("Rome")

    assert tool(name="ask")(shop) is shop
    assert tool_of(shop).function(2) == "Rome 2"


def test_a_class_that_can_be_called_once_made_is_a_tool_of_an_instance() -> None:
    decorated = tool(_Caller)

    assert decorated is _Caller
    assert tool_of(_Caller).name == "_Caller"
    assert tool_of(_Caller).function(number=2) == "Oslo 2"
    assert tool_of(_Caller("Rome")).function(number=2) == "Rome 2"


def test_a_class_that_cannot_be_made_without_arguments_is_refused() -> None:
    class Asker:
        def __init__(self, town: str) -> None: ...

        def __call__(self) -> None: ...

    with pytest.raises(ToolValidationError, match="make a tool of an instance"):
        tool(description="Ask.")(Asker)


def test_a_dataclass_is_a_tool_that_makes_one() -> None:
    @dataclass
    class Point:
        """Make a point."""

        x: int

    assert tool_of(tool(Point)).function(x=1) == Point(1)


def test_any_function_has_a_schema_without_being_decorated() -> None:
    def greet(name: str) -> str:
        """Greet somebody."""
        return name

    plain = schema_of(greet)

    assert list(plain) == ["name", "description", "parameters"]
    assert (plain["name"], plain["description"]) == ("greet", "Greet somebody.")
    assert schema_of(tool(greet)) == plain
    assert schema_of(_Caller("Oslo").ask)["name"] == "ask"


def test_a_decorator_may_bring_the_parameters_along() -> None:
    schema: dict[str, Json] = {"type": "object", "properties": {"city": {"type": "string"}}}

    @tool(parameters=schema)
    def forecast(**arguments: Json) -> Json:
        """Tell the weather."""
        return arguments

    @tool(parameters=[ToolParameter(name="city", description="Where")])
    def ask(city: str) -> str:
        """Ask."""
        return city

    assert tool_of(forecast).schema.parameters == {**schema, "additionalProperties": False}
    assert tool_of(ask).schema.parameters["properties"] == {
        "city": {"type": "string", "description": "Where"}
    }


def test_inspect_says_of_a_tool_what_it_said_of_the_function() -> None:
    async def search(query: str, *, limit: int = 3) -> list[str]:
        """Search."""
        return [query] * limit

    before = (inspect.signature(search), inspect.getdoc(search), inspect.getsource(search))

    tool(effect="read")(search)

    assert (inspect.signature(search), inspect.getdoc(search), inspect.getsource(search)) == before


def test_a_keyword_that_tools_do_not_have_is_an_error() -> None:
    def greet() -> None: ...

    with pytest.raises(TypeError, match="confirm"):
        tool(description="Greet.", confirm=True)(greet)  # type: ignore[call-overload]


class _Caller:
    """Ask for a number."""

    def __init__(self, town: str = "Oslo") -> None:
        self._town = town

    def __call__(self, number: int) -> str:
        """Answer."""
        return f"{self._town} {number}"

    def ask(self, number: int) -> str:
        """Answer in a method."""
        return self(number)


class _Shop:
    def __init__(self, town: str) -> None:
        self._town = town

    @tool
    def address(self, street: str) -> str:
        """Return an address."""
        return f"{street}, {self._town}"

    @tool
    @staticmethod
    def double(number: int) -> int:
        """Double."""
        return number * 2

    @staticmethod
    @tool
    def twice(number: int) -> int:
        """Double."""
        return number * 2

    @tool
    @classmethod
    def made(cls, number: int) -> str:
        """Make."""
        return f"{cls('Oslo')._town} {number}"

    @classmethod
    @tool
    def built(cls, number: int) -> str:
        """Make."""
        return f"{cls('Oslo')._town} {number}"
