"""What a reply consisted of, kept beside the message and unfolded again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.messages import Message, Sealed, ToolCall
from milepost.providers.responses_outline import (
    Part,
    Text,
    Thought,
    call_mark,
    is_worth_returning,
    sealed_outline,
    text_mark,
    unfolded,
)

SEAL = "responses:openai"
A, B = ToolCall("call_1_0", "add", {}), ToolCall("call_1_1", "look", {})
HM: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAAA"}
SO: dict[str, Any] = {**HM, "id": "rs_2"}
CALL = call_mark()


def parts(
    *outline: dict[str, Any], text: str = "", calls: tuple[ToolCall, ...] = (), seal: str = SEAL
) -> list[Part]:
    """Return what a message with that outline consists of."""
    sealed = tuple(sealed_outline(outline, seal))
    return [*unfolded(Message("assistant", text, calls, sealed=sealed), SEAL)]


def test_a_message_without_an_outline_is_its_text_and_then_its_calls() -> None:
    assert parts(text="Hello", calls=(A, B)) == [Text("Hello"), A, B]


def test_thoughts_stand_before_what_they_led_to() -> None:
    assert parts(HM, CALL, SO, CALL, calls=(A, B)) == [Thought(HM), A, Thought(SO), B]
    assert parts(HM, text_mark(5, None), CALL, text="Hello", calls=(A,)) == [
        Thought(HM),
        Text("Hello"),
        A,
    ]


def test_texts_are_cut_where_they_were() -> None:
    outline = (text_mark(5, "commentary"), CALL, text_mark(3, "final_answer"))

    assert parts(*outline, text="Hello42.", calls=(A,)) == [
        Text("Hello", "commentary"),
        A,
        Text("42.", "final_answer"),
    ]


def test_a_text_that_was_rewritten_since_is_not_cut() -> None:
    outline = (text_mark(5, "commentary"), HM, text_mark(3, "final_answer"))

    assert parts(*outline, text="[withheld]") == [Thought(HM), Text("[withheld]", "final_answer")]


def test_a_text_that_was_taken_away_is_none() -> None:
    assert parts(HM, text_mark(5, "commentary"), CALL, calls=(A,)) == [Thought(HM), A]


def test_calls_that_the_outline_does_not_know_come_last() -> None:
    assert parts(HM, CALL, calls=(A, B)) == [Thought(HM), A, B]


def test_calls_that_are_gone_are_gone() -> None:
    assert parts(HM, CALL, SO, text_mark(2, None), text="42") == [
        Thought(HM),
        Thought(SO),
        Text("42"),
    ]


@pytest.mark.parametrize("outline", [(HM,), (HM, SO), (HM, text_mark(0, None)), (HM, CALL)])
def test_thoughts_that_led_to_nothing_are_left_out(outline: tuple[dict[str, Any], ...]) -> None:
    """Who gets them back refuses them without what they belong to."""
    assert parts(*outline) == []


def test_what_another_provider_sealed_is_left_out() -> None:
    outline = (HM, text_mark(5, "commentary"), text_mark(3, None))

    assert parts(*outline, text="Hello42.", seal="responses:azure") == [Text("Hello42.")]


@pytest.mark.parametrize(
    "outline", [(), (CALL, CALL), (text_mark(5, None), CALL), (CALL, text_mark(5, None))]
)
def test_an_ordinary_reply_needs_no_outline(outline: tuple[dict[str, Any], ...]) -> None:
    assert sealed_outline(outline, SEAL) == []


def test_calls_at_the_end_are_where_they_would_be_anyway() -> None:
    assert sealed_outline((HM, CALL, CALL), SEAL) == [Sealed(SEAL, HM)]


@pytest.mark.parametrize(
    ("more", "worth"),
    [
        ({"encrypted_content": "gAAAA"}, True),
        ({"content": [{"type": "reasoning_text", "text": "Hm."}]}, True),
        ({"encrypted_content": None, "summary": [{"text": "Hm."}]}, False),
        ({"encrypted_content": "", "content": []}, False),
    ],
)
def test_a_thought_is_worth_returning_for_what_is_in_it(more: dict[str, Any], worth: bool) -> None:
    assert is_worth_returning({"type": "reasoning", "id": "rs_1", **more}) is worth


ANYTHING = st.none() | st.integers(-3, 9) | st.text(max_size=3) | st.lists(st.none(), max_size=1)
MARKS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["reasoning", "message", "function_call"]) | ANYTHING,
        "chars": st.integers(0, 9) | ANYTHING,
        "phase": st.just("commentary") | ANYTHING,
    },
)


@given(st.lists(MARKS, max_size=6), st.text(max_size=9), st.integers(0, 3))
def test_whatever_was_kept_no_text_and_no_call_is_lost_or_doubled(
    marks: list[dict[str, Any]], text: str, count: int
) -> None:
    calls = tuple(ToolCall(f"call_1_{n}", "add", {}) for n in range(count))
    sealed = tuple(Sealed(SEAL, mark) for mark in marks)

    told = [*unfolded(Message("assistant", text, calls, sealed=sealed), SEAL)]

    assert "".join(part.text for part in told if isinstance(part, Text)) == text
    assert tuple(part for part in told if isinstance(part, ToolCall)) == calls
