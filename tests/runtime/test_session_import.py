"""Sessions from elsewhere: each run's log says what was said, and that it was not said here."""

from itertools import count
from typing import Any

import pytest
from pydantic import ValidationError

from milepost.core.codec import decode
from milepost.core.errors import InvalidError
from milepost.core.events import RunCompleted, RunImported, RunQueued
from milepost.core.evolve import fold
from milepost.core.messages import NOT_RUN, Image, Message, ToolCall
from milepost.core.state import transcript
from milepost.core.window import Place
from milepost.runtime.session_import import imported
from milepost.runtime.session_spec import SessionSpec
from milepost.store.session_imports import Imported
from milepost.store.sessions import NewSession

NEW = NewSession("ses_1", "acme", None, None, "{}", created_ms=7)
USER = {"role": "user", "content": "What is 2 + 3?"}
ANSWER = {"role": "assistant", "content": "5."}
CALL = {"id": "c1", "name": "add", "arguments": {"a": 2}}
ASKS: dict[str, Any] = {"role": "assistant", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "5", "tool_call_id": "c1"}


def a_run(*messages: dict[str, Any], turn: int = 1, **fields: Any) -> dict[str, Any]:
    return {"turn": turn, "agent": "clerk", "messages": list(messages), **fields}


def made(*runs: dict[str, Any], **fields: Any) -> Imported:
    spec = {"format": "milepost.session/1", "session": {}, "runs": list(runs), **fields}
    numbers = count(1)
    return imported(
        SessionSpec.model_validate(spec), NEW, lambda prefix: f"{prefix}_{next(numbers)}"
    )


def said(found: Imported, at: int = 0) -> tuple[Message, ...]:
    entries = found.runs[at].entries
    events = (decode(entry.type, entry.data) for entry in entries)
    return transcript(fold(event for event in events if event))


def test_a_runs_log_says_that_it_was_done_elsewhere() -> None:
    terms: dict[str, Any] = {
        "run_id": "run_x",
        "status": "failed",
        "ended_at": "then",
        "user": "ann",
    }

    found = made(a_run(USER, ANSWER, agent_version=3, metadata={"a": "b"}, **terms))

    (run,) = found.runs
    queued, told, completed = (decode(entry.type, entry.data) for entry in run.entries)
    assert isinstance(queued, RunQueued)
    assert (queued.agent, queued.agent_id, queued.input) == ("clerk", "agt_imported", ())
    assert isinstance(told, RunImported)
    assert (told.run_id, told.status, told.ended_at) == ("run_x", "failed", "then")
    assert isinstance(completed, RunCompleted)
    assert (completed.output.text, completed.usage.input_tokens) == ("5.", 0)
    assert (run.turn, run.agent_version, run.user, run.metadata) == (1, 3, "ann", '{"a":"b"}')


def test_what_was_said_is_what_models_are_shown() -> None:
    pictured = {**USER, "images": ["https://x.example/a.png"]}

    found = made(a_run(pictured, ASKS, RESULT, ANSWER))

    assert said(found) == (
        Message("user", "What is 2 + 3?", images=(Image("https://x.example/a.png"),)),
        Message("assistant", calls=(ToolCall("c1", "add", {"a": 2}),)),
        Message("tool", "5", call_id="c1"),
        Message("assistant", "5."),
    )


@pytest.mark.parametrize("messages", [(ASKS,), (ASKS, ANSWER), (ASKS, USER)])
def test_a_call_without_a_result_gets_one(messages: tuple[dict[str, Any], ...]) -> None:
    assert said(made(a_run(*messages)))[1] == Message("tool", NOT_RUN, call_id="c1")


@pytest.mark.parametrize(
    "messages",
    [
        (RESULT,),
        (ASKS, ANSWER, RESULT),
        (ASKS, RESULT, RESULT),
        ({**ASKS, "role": "user"},),
        ({**ASKS, "tool_calls": [CALL, CALL]},),
        ({**USER, "tool_call_id": "c1"},),
    ],
)
def test_messages_that_no_model_would_take_are_refused(
    messages: tuple[dict[str, Any], ...],
) -> None:
    with pytest.raises(InvalidError) as caught:
        made(a_run(USER, *messages))

    assert caught.value.code == "invalid_export"
    assert caught.value.pointer is not None
    assert caught.value.pointer.startswith("/runs/0/messages/")


@pytest.mark.parametrize("turns", [(1, 1), (2, 1)])
def test_turns_that_are_out_of_order_are_refused(turns: tuple[int, int]) -> None:
    with pytest.raises(InvalidError, match="comes behind turn"):
        made(*(a_run(USER, turn=turn) for turn in turns))


def test_a_turn_behind_which_no_session_could_go_on_is_refused() -> None:
    with pytest.raises(ValidationError, match="turn"):
        made(a_run(USER, turn=100_000_000))


def test_summaries_and_pins_are_brought_along() -> None:
    summary = {"first": "1.0", "last": "1.1", "content": "A sum."}

    found = made(a_run(USER, ANSWER), summaries=[summary], pins=["1.1", "1.0", "1.1"])

    assert [(each.first, each.last, each.content) for each in found.summaries] == [
        (Place(1, 0), Place(1, 1), "A sum.")
    ]
    assert found.pins == (Place(1, 0), Place(1, 1))


@pytest.mark.parametrize(
    "places", [[("1.1", "1.0")], [("1.0", "1.1"), ("1.0", "1.1")], [("1.0", "2.0")]]
)
def test_summaries_that_do_not_fit_are_refused(places: list[tuple[str, str]]) -> None:
    stretches = [{"first": first, "last": last, "content": "x"} for first, last in places]

    with pytest.raises(InvalidError):
        made(a_run(USER, ANSWER), summaries=stretches)


@pytest.mark.parametrize("place", ["1.1", "1.2"])
def test_what_is_of_no_use_alone_cannot_be_pinned(place: str) -> None:
    with pytest.raises(InvalidError, match=f"message {place} is of no use") as refused:
        made(a_run(USER, ASKS, RESULT, ANSWER), pins=["1.0", place])

    assert refused.value.pointer == "/pins/1"


def test_a_pin_of_what_is_there_no_more_is_left_out() -> None:
    found = made(a_run(USER, ANSWER, turn=2), pins=["1.0", "2.0", "2.7", "3.0"])

    assert found.pins == (Place(2, 0),)


def test_a_stretch_that_parts_a_result_from_its_call_is_refused() -> None:
    stretch = {"first": "1.0", "last": "1.1", "content": "x"}

    with pytest.raises(InvalidError, match="parts a result from its call") as refused:
        made(a_run(USER, ASKS, RESULT, ANSWER), summaries=[stretch])

    assert refused.value.pointer == "/summaries/0/last"
    found = made(a_run(USER, ASKS, RESULT, ANSWER), summaries=[{**stretch, "last": "1.2"}])
    assert found.summaries[0].last == Place(1, 2)


def test_only_users_show_pictures_and_only_such_as_any_run_may_be_shown() -> None:
    picture = "https://x.example/a.png"

    with pytest.raises(InvalidError, match="no assistant's"):
        made(a_run(USER, {**ANSWER, "images": [picture]}))
    with pytest.raises(ValidationError, match="images"):
        made(a_run({**USER, "images": ["file:///etc/passwd"]}))
