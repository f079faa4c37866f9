"""What is read out of a docstring, in each style that people write."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import Field

from milepost.tools import tool, tool_of
from milepost.tools.docstring import documentation


def google(city: str, days: int = 1, *more: str) -> None:
    """Tell the weather
    of a city.

    Slowly.

    Args:
        city (str): Where: a town,
            not a country.
        days: How many days.
        *more: Other towns.

    Returns:
        nothing: at all.
    """


def numpy(city: str, days: int = 1) -> None:
    """Tell the weather
    of a city.

    Parameters
    ----------
    city : str
        Where: a town,
        not a country.
    days, hours : int, optional
        How many days.

    Returns
    -------
    nothing
        At all.
    """


def rest(city: str, days: int = 1) -> None:
    """Tell the weather
    of a city.

    :param str city: Where: a town,
        not a country.
    :param days: How many days.
    :type days: int
    :returns: Nothing.
    """


@pytest.mark.parametrize("function", [google, numpy, rest])
def test_parameters_are_described_by_the_docstring_in_three_styles(
    function: Callable[..., Any],
) -> None:
    definition = tool_of(tool(function))

    properties: Any = definition.schema.parameters["properties"]
    assert definition.description == "Tell the weather of a city."
    assert properties["city"]["description"] == "Where: a town, not a country."
    assert properties["days"]["description"] == "How many days."
    assert list(properties) == ["city", "days"]


@pytest.mark.parametrize(
    "text",
    [
        "Do it.\nArgs:\n    a: One.",
        "Do it.\n:param a: One.",
        "Do it.\n\nParameters\n----------\na\n    One.",
    ],
)
def test_a_section_ends_the_first_paragraph_also_without_a_blank_line(text: str) -> None:
    def function(a: int) -> None: ...

    function.__doc__ = text
    read = documentation(function)

    assert (read.summary, read.parameters) == ("Do it.", {"a": "One."})


def test_a_parameter_of_which_nothing_is_said_has_no_description() -> None:
    @tool
    def look(city: str, days: int) -> None:
        """Look.

        Args:
            city:
            town: There is none.
        """

    assert tool_of(look).schema.parameters["properties"] == {
        "city": {"type": "string"},
        "days": {"type": "integer"},
    }


def test_what_is_said_nearer_to_the_parameter_counts_for_more() -> None:
    @tool(param_metadata={"c": {"description": "Noted."}})
    def look(a: Annotated[str, "Annotated."], b: Annotated[int, Field(ge=1)], c: int) -> None:
        """Look.

        Args:
            a: Documented.
            b: Documented.
            c: Documented.
        """

    properties: Any = tool_of(look).schema.parameters["properties"]
    told = [properties[name]["description"] for name in "abc"]
    assert told == ["Annotated.", "Documented.", "Noted."]


def test_the_whole_docstring_is_kept_for_people() -> None:
    definition = tool_of(tool(rest))

    assert definition.long_description.startswith("Tell the weather\nof a city.\n\n:param")
    assert definition.describe()["long_description"] == definition.long_description


def test_a_partial_speaks_for_its_function_and_an_object_for_its_call() -> None:
    partial = functools.partial(google, days=2)

    assert documentation(partial).summary == "Tell the weather of a city."
    assert documentation(_Counter()).summary == "Count."
    assert documentation(_Counter()).parameters == {"step": "How far."}


class _Counter:
    """Count."""

    def __call__(self, step: int) -> int:
        """Go on.

        Args:
            step: How far.
        """
        return step
