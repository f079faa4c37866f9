"""Asking what is wrong with arguments, without a call."""

import copy
from typing import Annotated

from pydantic import AfterValidator, Field

from milepost.core.json import Json
from milepost.tools import Issue, Tool, tool, tool_of


def _even(number: int) -> int:
    if number % 2:
        raise ValueError("must be even")
    return number


@tool
def book(
    city: str,
    nights: Annotated[int, Field(ge=1)],
    kind: Annotated[int, AfterValidator(_even)] = 2,
    tags: list[str] = [],  # noqa: B006 - a default to be copied
    note: str | None = None,
) -> None:
    """Book a room."""


def test_right_arguments_come_back_with_the_defaults_filled_in() -> None:
    given: dict[str, Json] = {"city": "Oslo", "nights": 2}

    found = tool_of(book).check(given)

    assert found.valid
    assert found.arguments == {
        "city": "Oslo", "nights": 2, "kind": 2, "tags": [], "note": None,
    }  # fmt: skip


def test_nothing_is_mended_and_every_parameter_has_its_issue() -> None:
    found = tool_of(book).check({"nights": 0, "kind": "2", "tags": ["a", 1], "cty": "Oslo"})

    assert [(issue.kind, issue.path) for issue in found.issues] == [
        ("unexpected", "cty"),
        ("missing", "city"),
        ("bound", "nights"),
        ("type", "kind"),
        ("type", "tags[1]"),
    ]
    assert "Did you mean 'city'?" in found.issues[0].message
    assert found.issues[2] == Issue("bound", "nights", "must be at least 1, got 0 (integer).")


def test_an_authors_own_validator_is_asked_once_the_rest_is_right() -> None:
    found = tool_of(book).check({"city": "Oslo", "nights": 2, "kind": 3})

    [issue] = found.issues
    assert (issue.kind, issue.path) == ("value", "kind")
    assert "must be even" in issue.message


def test_what_a_schema_says_of_the_whole_is_checked_too() -> None:
    async def ask(**_: Json) -> None: ...

    schema: dict[str, Json] = {
        "type": "object",
        "properties": {"a": {}, "b": {}},
        "maxProperties": 1,
    }
    definition = Tool(name="ask", description="Ask.", function=ask, parameters=schema)

    [issue] = definition.check({"a": 1, "b": 2}).issues

    assert (issue.kind, issue.path) == ("bound", "")


def test_neither_the_arguments_nor_the_defaults_are_shared() -> None:
    given: dict[str, Json] = {"city": "Oslo", "nights": 2}
    before = copy.deepcopy(given)

    first = tool_of(book).check(given)
    assert isinstance(first.arguments["tags"], list)
    first.arguments["tags"].append("changed")

    assert given == before
    assert tool_of(book).check(given).arguments["tags"] == []
