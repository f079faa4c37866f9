"""`@tool` leaves a function what it is and gives it a definition."""

import inspect
from collections.abc import AsyncIterator, Iterator

import pytest

from milepost.core.errors import ToolValidationError
from milepost.tools import Tool, tool, tool_of


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

    with pytest.warns(UserWarning, match="'quiet' has no docstring"):
        tool(quiet)

    assert tool_of(quiet).description == "Tool quiet"


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


class _Shop:
    def __init__(self, town: str) -> None:
        self._town = town

    @tool
    def address(self, street: str) -> str:
        """Return an address."""
        return f"{street}, {self._town}"
