"""What spans say of an input that guardrails look at: what they let pass, and nothing before."""

from typing import Any

import orjson
import pytest

from milepost.core.events import Event, InputMessage, InputScreened, InputScreening, RunResumed
from milepost.core.spans import Span
from milepost.telemetry.spans import SpanFold
from tests.telemetry.run_logs import RUN_ID, begun, ended

INPUT = "gen_ai.input.messages"
CHANGED = (InputMessage("user", "Write to [email]."),)


def first_stretch(*events: Event, content: bool = True) -> Span:
    """Return the first span of a worker's work on a run to which these things happen."""
    fold = SpanFold(RUN_ID, None, provider="openai", content=content)
    log = ended(begun().write(*events))
    spans = [span for entry in log.entries for span in fold.feed(*entry)]
    return next(span for span in spans if span.kind == "invoke_agent")


def said_in(span: Span) -> list[Any] | None:
    """Return the texts of the input, None where the span says nothing of it."""
    told = span.attributes.get(INPUT)
    if not isinstance(told, str):
        return None
    return [part["content"] for turn in orjson.loads(told) for part in turn["parts"]]


def test_without_guardrails_the_input_is_told_as_it_came() -> None:
    assert said_in(first_stretch()) == ["Refund order 7"]


@pytest.mark.parametrize(
    ("screened", "told"),
    [
        (InputScreened(), ["Refund order 7"]),
        (InputScreened(input=CHANGED), ["Write to [email]."]),
        (InputScreened(blocked="an e-mail address"), None),
    ],
)
def test_an_input_is_told_as_its_guardrails_let_it_pass(
    screened: InputScreened, told: list[str] | None
) -> None:
    assert said_in(first_stretch(InputScreening(), screened)) == told


def test_an_input_that_was_being_looked_at_when_its_worker_died_is_not_told() -> None:
    assert said_in(first_stretch(InputScreening(), RunResumed(2, "w2", "crash"))) is None


def test_nothing_is_told_where_content_is_not_to_be() -> None:
    span = first_stretch(InputScreening(), InputScreened(input=CHANGED), content=False)

    assert said_in(span) is None
