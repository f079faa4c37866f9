"""Events to bytes and back: nothing is lost, and what a later version adds does no harm."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.core.codec import EVENTS, decode, encode
from milepost.core.events import (
    ChildRunEnded,
    Event,
    MessageAborted,
    MessageCompleted,
    RunQueued,
    RunWaiting,
    ToolCallRequested,
)
from milepost.core.json import INT_MAX, INT_MIN, Json
from milepost.core.usage import Usage

INTEGERS = st.integers(INT_MIN, INT_MAX)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
PLAIN: Mapping[Any, st.SearchStrategy[Any]] = {
    str: st.text(),
    bool: st.booleans(),
    int: INTEGERS,
    float: FLOATS,
    type(None): st.none(),
}

# The names that clients know; a log is kept as long as its run, so that none may ever change.
NAMES = {
    "run.queued", "run.started", "run.resumed", "run.retrying", "run.waiting", "run.cancelling",
    "run.retried", "run.completed", "run.incomplete", "run.failed", "run.cancelled", "run.expired",
    "session.loaded", "step.started", "step.completed", "message.started", "message.completed",
    "message.aborted", "reasoning.completed", "model.retried", "cache.hit", "tool_call.requested",
    "policy.decided", "tool_call.started", "tool_call.completed", "tool_call.failed",
    "tool_call.denied", "tool_call.interrupted", "approval.requested", "approval.decided",
    "approval.expired", "approval.withdrawn", "tool_result.compressing", "tool_result.compressed",
    "artifact.created", "guardrail.triggered", "run.failing", "input.screening", "input.screened",
    "model.fell_back", "structured.retried", "loop.detected", "budget.warning", "budget.exceeded",
    "tool_call.screening", "tool_call.screened", "custom", "child_run.started", "child_run.ended",
    "run.forked", "run.imported", "tool_call.counting", "tool_call.counted", "tool_call.checked",
    "approval.escalated", "steer.received", "steer.applied", "side_call.aborted",
    "memory.extracted", "memory.summarizing", "memory.summarized", "memory.trimmed",
}  # fmt: skip


def anything(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for whatever a field of this type may hold."""
    if hint in PLAIN:
        return PLAIN[hint]
    if hint == Json:
        return VALUES
    if dataclasses.is_dataclass(hint):
        return any_of(hint)
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is tuple:
        return st.lists(anything(get_args(hint)[0]), max_size=3).map(tuple)
    if get_origin(hint) in {types.UnionType, typing.Union}:
        return st.one_of(*map(anything, get_args(hint)))
    assert issubclass(get_origin(hint), Mapping), f"no strategy for {hint}"
    return st.dictionaries(st.text(), VALUES, max_size=3)


def any_of(record: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for a dataclass, every field by its type."""
    fields = {field.name: anything(field.type) for field in dataclasses.fields(record)}
    return st.builds(record, **fields)


ANY_EVENT: st.SearchStrategy[Event] = st.one_of(*map(any_of, EVENTS.values()))
each_event = pytest.mark.parametrize("member", EVENTS.values(), ids=EVENTS)


@each_event
@settings(max_examples=50)
@given(data=st.data())
def test_an_event_comes_back_as_it_went(member: type[Any], data: st.DataObject) -> None:
    event = data.draw(any_of(member))

    assert decode(member.type, encode(event)) == event
    assert decode(member.type, encode(event).decode()) == event


@each_event
@settings(max_examples=10)
@given(data=st.data())
def test_a_field_of_a_later_version_is_dropped(member: type[Any], data: st.DataObject) -> None:
    event = data.draw(any_of(member))
    later = {**orjson.loads(encode(event)), "added_later": {"deep": [1]}}

    assert decode(member.type, orjson.dumps(later)) == event


@given(ANY_EVENT)
def test_an_events_data_is_one_line_of_json(event: Event) -> None:
    encoded = encode(event)

    assert b"\n" not in encoded
    assert isinstance(orjson.loads(encoded), dict)


def test_a_type_of_a_later_version_is_none() -> None:
    assert decode("nudge.received", "{}") is None


def test_a_field_that_an_earlier_version_did_not_write_takes_its_default() -> None:
    data = '{"message_id":"msg_1","content":"hi","finish_reason":"stop","usage":{}}'

    event = decode("message.completed", data)

    assert isinstance(event, MessageCompleted)
    assert event.first_delta_ms is None
    assert event.model == ""


def test_a_child_of_an_earlier_version_called_no_tools_that_we_know_of() -> None:
    data = '{"call_id":"call_1_0","run_id":"run_2","status":"completed","usage":{"model_calls":1}}'

    event = decode("child_run.ended", data)

    assert event == ChildRunEnded(
        "call_1_0", "run_2", "completed", Usage(model_calls=1), below=Usage(), tool_calls=0
    )


def test_the_log_holds_exactly_the_events_that_clients_know() -> None:
    assert set(EVENTS) == NAMES


def test_a_wait_is_for_something_on_the_wire() -> None:
    shown = orjson.loads(encode(RunWaiting("approval", ("apr_1",))))

    assert shown == {"for": "approval", "pending": ["apr_1"]}


def test_nested_records_of_a_later_version_lose_only_what_is_new() -> None:
    said = '{"agent":"a","agent_id":"agt_1","agent_version":1,"session_id":"ses_1",'
    said += '"input":[{"role":"user","content":"hi","lang":"de"}]}'

    event = decode("run.queued", said)

    assert isinstance(event, RunQueued)
    assert event.input[0].content == "hi"


def test_a_calls_arguments_stay_exact() -> None:
    event = ToolCallRequested(
        "call_1_0", "pay", {"cents": INT_MAX, "rate": 0.1}, "server", "key", "msg_1"
    )

    assert decode(event.type, encode(event)) == event


def test_a_message_that_was_aborted_before_its_usage_was_told_has_none() -> None:
    written = b'{"message_id":"msg_1","reason":"its worker died","error":null}'

    assert decode("message.aborted", written) == MessageAborted("msg_1", "its worker died")
