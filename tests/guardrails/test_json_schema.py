"""Values that must fit a schema."""

import pytest

from milepost.core.json import Json
from milepost.guardrails.json_schema import JsonSchema
from milepost.guardrails.verdicts import PASS, Block, Subject, Verdict, Warn


def misfit(value: Json) -> str | None:
    return None if isinstance(value, dict) else f"it must be an object, got {value!r}"


@pytest.mark.parametrize(
    ("subject", "verdict"),
    [
        (Subject("output", '{"a": 1}'), PASS),
        (Subject("output", "[7]"), Block("it does not fit the schema")),
        (Subject("output", "seven"), Block("it is no JSON")),
        (Subject("output", "[" * 100_000), Block("it is no JSON")),
        (Subject("input", "NaN"), Block("it is no JSON")),
        (Subject("tool_results", {"a": 1}), PASS),
        (Subject("tool_results", '{"a": 1}'), Block("it does not fit the schema")),
        (Subject("tool_arguments", [7]), Block("it must be an object, got [7]")),
    ],
)
async def test_a_value_must_fit_and_a_text_must_be_json_that_does(
    subject: Subject, verdict: Verdict
) -> None:
    assert await JsonSchema(misfit).check(subject) == verdict


async def test_what_does_not_fit_may_be_warned_of() -> None:
    assert await JsonSchema(misfit, "warn").check(Subject("output", "[7]")) == Warn(
        "it does not fit the schema"
    )
