"""For any signature: the schema takes what validation takes, and values have their types."""

from collections.abc import Callable
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.core.errors import ToolValidationError
from milepost.tools import Tool
from tests.tools.drawing import accepts, judge, near
from tests.tools.signatures import functions, is_of

few = settings(deadline=None, max_examples=80)


def tool_from(function: Callable[..., Any], *, strict: bool = False) -> Tool:
    """Return `function` as a tool."""
    return Tool(name="any", description="Any.", function=function, strict=strict)


@given(functions(), st.data())
@few
def test_a_strict_tool_of_any_signature_takes_what_its_schema_takes(
    function: Callable[..., Any], data: st.DataObject
) -> None:
    definition = tool_from(function, strict=True)
    arguments = data.draw(near(definition))

    jsonschema.Draft202012Validator.check_schema(dict(definition.schema.parameters))
    fits = judge(definition).is_valid(arguments)

    assert accepts(definition, arguments) == fits
    assert definition.check(arguments).valid == fits


@given(functions(), st.data())
@few
def test_what_is_mended_has_the_annotated_types_and_fits_the_schema(
    function: Callable[..., Any], data: st.DataObject
) -> None:
    definition = tool_from(function)
    arguments = data.draw(near(definition))

    try:
        mended = definition.validate(arguments)
    except ToolValidationError:
        return

    assert judge(definition).is_valid(mended)
    values = definition.values(mended)
    hints = function.__annotations__
    assert {name: v for name, v in values.items() if not is_of(v, hints[name])} == {}
    assert values.keys() == hints.keys()


@given(functions(), st.data())
@few
def test_what_fits_the_schema_of_any_signature_passes_unchanged(
    function: Callable[..., Any], data: st.DataObject
) -> None:
    definition = tool_from(function)
    arguments = data.draw(near(definition))

    if judge(definition).is_valid(arguments):
        assert definition.validate(arguments) == arguments
