"""What a result tells of its run: the answer's value, the calls, the trace, what was thought."""

from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from milepost import emit_artifact, tool
from milepost.core.agents import StructuredOutput
from milepost.core.errors import ConfigurationError
from milepost.core.model import ReasoningDelta
from milepost.providers.scripted import Scripted, calling, saying
from tests.agent.making import ADD, AT_ONCE, BUSY, add, adding, agent

SCHEMA: dict[str, Any] = {
    "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
}  # fmt: skip


class Trip(BaseModel):
    """Somewhere, for some days."""

    city: str
    days: int

    @field_validator("days")
    @classmethod
    def _is_short(cls, days: int) -> int:
        if days > 9:
            raise ValueError("nobody has so much time")
        return days


def test_an_answer_is_an_object_of_the_class_that_was_asked_for() -> None:
    model = Scripted([saying('{"city": "Oslo", "days": 3}')])

    result = agent(model=model, response_format=Trip).run("Where to?")

    assert result.parsed == Trip(city="Oslo", days=3)
    assert result.content == '{"city": "Oslo", "days": 3}'
    assert "JSON Schema" in model.requests[0].messages[0].content


def test_an_answer_fits_a_schema_or_is_asked_for_again_with_what_is_wrong() -> None:
    model = Scripted([saying("{}"), saying('Here: {"n": 7}')])

    result = agent(model=model).run("How many?", response_format=SCHEMA)

    assert (result.parsed, result.content) == ({"n": 7}, 'Here: {"n": 7}')
    assert "n" in model.requests[-1].messages[-1].content
    [retry] = result.trace.filter("structured_retry")
    assert retry.detail["error"]


def test_what_the_class_itself_demands_is_demanded_of_the_answer() -> None:
    model = Scripted(
        [saying('{"city": "Oslo", "days": 30}'), saying('{"city": "Oslo", "days": 3}')]
    )

    result = agent(model=model, response_format=Trip).run("Where to?")

    assert result.parsed == Trip(city="Oslo", days=3)
    assert "days: Value error, nobody has so much time" in model.requests[-1].messages[-1].content


def test_answers_that_never_fit_end_the_run_after_retries_of_their_own() -> None:
    wanted = StructuredOutput(SCHEMA, retries=1)
    model = Scripted([saying("{}")] * 3)

    result = agent(model=model, response_format=wanted, limits={**AT_ONCE, "max_steps": 1}).run("?")

    assert (result.status, result.finish_reason) == ("incomplete", "structured_output")
    assert (result.parsed, len(model.requests)) == (None, 2)


def test_a_format_of_one_run_takes_the_place_of_the_agents_and_leaves_no_trace() -> None:
    model = Scripted([saying('{"n": 1}'), saying('{"city": "Oslo", "days": 3}')])
    asked = agent(model=model, response_format=Trip)

    assert asked.run("How many?", response_format=SCHEMA).parsed == {"n": 1}
    assert asked.run("Where to?").parsed == Trip(city="Oslo", days=3)


def test_a_schema_by_which_nothing_could_be_judged_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        agent(response_format={"type": "object", "not": {}})


def test_a_format_may_be_in_the_words_of_the_service() -> None:
    asked = agent(
        saying("Many."), saying('{"n": 1}'), response_format={"schema": SCHEMA, "retries": 0}
    )

    first, second = asked.run("How many?"), asked.run("How many?")

    assert (first.finish_reason, second.parsed) == ("structured_output", {"n": 1})


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (dict, "give a class of pydantic's"),
        (list[int], "give a class of pydantic's"),
        ("json", "give a class of pydantic's"),
        ({"schema": {"type": "objct"}}, "the schema at # has the type 'objct'"),
        ({"schema": SCHEMA, "retry": 1}, "response_format.retry: no such field"),
    ],
)
def test_what_is_no_format_is_refused(wanted: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        agent(response_format=wanted)


def test_what_a_model_thinks_is_kept_step_by_step() -> None:
    result = agent(
        [ReasoningDelta("Sums."), *saying("Let me add."), *ADD],
        [ReasoningDelta("Done."), *saying("It is 42.")],
        tools=[add],
    ).run("What is 17 + 25?")

    assert result.reasoning_history == ("Sums.\nLet me add.", "Done.")
    assert result.reasoning == "Done."
    assert [step.reasoning for step in result.trace.filter("llm_call")] == [
        "Sums.\nLet me add.", "Done.",
    ]  # fmt: skip
    assert result.trace.filter("tool_selection")[0].reasoning == "Sums.\nLet me add."
    assert adding().run("Go.").reasoning is None


def test_artifacts_are_there_with_their_contents_however_the_run_ends() -> None:
    @tool
    def draw() -> str:
        """Draw."""
        emit_artifact(content="<svg/>", filename="a.svg")
        emit_artifact("https://example.com/b.png")
        return "drawn"

    result = agent(calling(("draw", {})), BUSY, BUSY, BUSY, tools=[draw]).run("Draw.")

    assert result.status == "failed"
    drawn, elsewhere = result.artifacts
    assert (drawn.filename, drawn.mime_type, drawn.size) == ("a.svg", "image/svg+xml", 6)
    assert elsewhere.url == "https://example.com/b.png"
    assert result.contents == {drawn.id: b"<svg/>"}


def test_calls_are_told_with_what_came_of_them() -> None:
    result = agent(
        calling(("add", {"a": "17", "b": 25}), ("add", {"a": 1})), saying("Done."), tools=[add]
    ).run("Go.")

    done, failed = result.tool_calls
    assert (dict(done.arguments), done.result, done.error) == ({"a": 17, "b": 25}, 42, None)
    assert (failed.result, "b" in (failed.error or "")) == (None, True)
