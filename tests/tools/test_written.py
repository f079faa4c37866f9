"""A plain tool, whose parameters are written down one by one."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.tools import Injected, Invoker, Tool, ToolContext, ToolParameter


def book(city: str, on: date, tags: Any = None, nights: int = 1, *, key: Injected[str] = "") -> str:
    """Book a room."""
    return f"{city} {on.isoformat()} {nights} {tags}"


CITY = ToolParameter(name="city", description="Where", enum=["Oslo", "Rome"])
ON = ToolParameter(name="on", type=date, description="When")


def plain(*parameters: ToolParameter, function: Callable[..., Any] = book) -> Tool:
    """Return a tool with `parameters`."""
    inject = {"key": "k"} if function is book else {}
    return Tool(
        name="book", description="Book.", parameters=parameters, function=function, inject=inject
    )


async def test_a_plain_tool_offers_what_is_written_down(
    invoker: Invoker, context: ToolContext
) -> None:
    tags = ToolParameter(name="tags", type=list, element_type=str, required=False)
    definition = plain(CITY, ON, tags)

    result = await invoker.invoke(definition, {"city": "Oslo", "on": "2026-05-01"}, context)

    assert definition.schema.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where", "enum": ["Oslo", "Rome"]},
            "on": {"type": "string", "format": "date", "description": "When"},
            "tags": {"type": "array", "items": {"type": "string"}, "default": None},
        },
        "required": ["city", "on"],
        "additionalProperties": False,
    }
    assert result == "Oslo 2026-05-01 1 None"
    with pytest.raises(ToolValidationError, match='must be one of "Oslo", "Rome"'):
        definition.validate({"city": "Bonn", "on": "2026-05-01"})


@pytest.mark.parametrize(
    ("container", "schema"),
    [
        (set, {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        (tuple, {"type": "array", "items": {"type": "integer"}}),
        (dict, {"type": "object", "additionalProperties": {"type": "integer"}}),
    ],
)
def test_an_element_type_says_what_a_container_holds(container: Any, schema: Json) -> None:
    def count(numbers: Any) -> None: ...

    definition = plain(
        ToolParameter(name="numbers", type=container, element_type=int), function=count
    )

    assert definition.schema.parameters["properties"] == {"numbers": schema}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ([CITY, CITY, ON], "more than one parameter 'city'"),
        ([CITY, ON, ToolParameter(name="town")], "does not take 'town'; it takes 'city', "),
        ([CITY], "its function needs 'on'"),
        ([CITY, ON, ToolParameter(name="key")], "'key' is injected"),
        ([CITY, ON, ToolParameter(name="nights", type=int)], "'nights' is said to be required"),
        ([ToolParameter(name="city", required=False), ON], "'city' is said to be optional"),
        ([ToolParameter(name="city", element_type=int), ON], "'city' has an element_type"),
        ([ToolParameter(name="city", enum=[]), ON], "allows no value at all"),
        ([ToolParameter(name="city", type=type), ON], "'city' is annotated"),
    ],
)
def test_parameters_that_the_function_cannot_be_called_with_are_refused(
    parameters: list[ToolParameter], message: str
) -> None:
    with pytest.raises(ToolValidationError) as refusal:
        plain(*parameters)

    assert message in str(refusal.value)
    assert refusal.value.code == "invalid_tool"


def test_parameters_are_described_in_one_place() -> None:
    with pytest.raises(ToolValidationError, match="param_metadata belongs into the parameters"):
        Tool(
            name="book",
            description="Book.",
            parameters=[CITY, ON],
            function=book,
            param_metadata={"city": {"description": "Which"}},
        )


async def test_a_function_that_takes_anything_gets_what_the_model_wrote_and_no_more(
    invoker: Invoker, context: ToolContext
) -> None:
    async def collect(**arguments: Any) -> list[str]:
        return [f"{name}={value!r}" for name, value in arguments.items()]

    definition = plain(
        ToolParameter(name="a", type=int),
        ToolParameter(name="b", type=date, required=False),
        function=collect,
    )

    assert await invoker.invoke(definition, {"a": "1"}, context) == ["a=1"]
    assert await invoker.invoke(definition, {"a": 1, "b": "2026-05-01"}, context) == [
        "a=1",
        "b=datetime.date(2026, 5, 1)",
    ]


def test_a_builtin_that_tells_no_parameters_is_taken_at_the_authors_word() -> None:
    definition = plain(ToolParameter(name="x", type=float), function=max)

    assert definition.schema.parameters["required"] == ["x"]
