"""Thinking, which goes back only behind the conversation that it followed."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.messages import Image, Message, Sealed, ToolCall
from milepost.core.model import Delta, ModelRequest, ResponseFormat, SealedDelta, ToolSchema
from milepost.providers.anthropic_binding import BoundThinking, followed_by_reply, in_place

ADD = ToolSchema("add", "Add", {"type": "object"})
OTHER = Sealed("openai", {"reasoning": "Hm."})
HI = Message("user", "Hi")
REQUEST = ModelRequest("t", "claude-stub", (Message("system", "Be kind."), HI), tools=(ADD,))


def answered(request: ModelRequest, said: str = "Hello!", *sealed: Sealed) -> ModelRequest:
    """Return the request that follows one whose reply had a thought in it."""
    thought = Sealed("anthropic", {"blocks": [], "followed": followed_by_reply(request)})
    answer = Message("assistant", said, sealed=(thought, *sealed))
    return replace(request, messages=(*request.messages, answer, Message("user", "And?")))


def thoughts(request: ModelRequest) -> list[bool]:
    """Return of each answer whether its thought goes back."""
    return [
        any(sealed.wire == "anthropic" for sealed in message.sealed)
        for message in in_place(request).messages
        if message.role == "assistant"
    ]


def with_message(request: ModelRequest, at: int, **changes: Any) -> ModelRequest:
    messages = list(request.messages)
    messages[at] = replace(messages[at], **changes)
    return replace(request, messages=tuple(messages))


TWICE = answered(answered(REQUEST), "Well.")


def test_thoughts_go_back_as_long_as_the_conversation_only_grows() -> None:
    assert thoughts(TWICE) == [True, True]


@pytest.mark.parametrize(
    "changed",
    [
        replace(TWICE, model="claude-other"),
        replace(TWICE, tools=()),
        replace(TWICE, tools=(replace(ADD, description="Sum"),)),
        replace(TWICE, response_format=ResponseFormat({"type": "object"})),
        with_message(TWICE, 0, content="Be unkind."),
        with_message(TWICE, 1, content="Hi!"),
        with_message(TWICE, 1, images=(Image("https://example.com/a.png"),)),
        replace(TWICE, messages=TWICE.messages[1:]),
        replace(TWICE, messages=(*TWICE.messages, Message("system", "Be brief."))),
    ],
    ids=[
        "model", "tools gone", "tool changed", "format", "instructions", "question", "image",
        "instructions gone", "instructions added",
    ],
)  # fmt: skip
def test_behind_something_else_they_stay_away(changed: ModelRequest) -> None:
    assert thoughts(changed) == [False, False]


def test_a_change_leaves_what_stood_before_it_alone() -> None:
    assert thoughts(with_message(TWICE, 3, content="And then?")) == [True, False]


def test_what_was_thought_since_the_change_goes_back() -> None:
    changed = in_place(replace(TWICE, model="claude-other"))

    assert thoughts(answered(changed, "Now.")) == [False, False, True]


def test_an_answer_that_was_changed_keeps_its_own_thought_and_no_later_one() -> None:
    assert thoughts(with_message(TWICE, 2, content="[redacted]")) == [True, False]


def test_how_a_call_was_made_is_a_part_of_the_conversation() -> None:
    call = ToolCall("call_1_0", "add", {"a": 1}, "toolu_1")
    result = Message("tool", "2", call_id="call_1_0")
    made = replace(REQUEST, messages=(HI, Message("assistant", calls=(call,)), result))
    grown = answered(made)

    edited = with_message(grown, 1, calls=(replace(call, arguments={"a": 2}),))

    assert thoughts(grown) == [False, True]
    assert thoughts(edited) == [False, False]
    assert thoughts(with_message(grown, 2, content="3")) == [False, False]


def test_what_another_wire_kept_stays_where_it_is() -> None:
    request = replace(answered(REQUEST, "Hello!", OTHER), model="claude-other")

    [answer] = [m for m in in_place(request).messages if m.role == "assistant"]

    assert answer.sealed == (OTHER,)


def test_where_nobody_thought_nothing_is_touched() -> None:
    assert in_place(REQUEST) is REQUEST


def test_a_model_that_thinks_by_the_token_gets_all_of_it_back() -> None:
    request = replace(TWICE, model="claude-other", reasoning_effort="2000")

    assert in_place(request) is request


def test_what_followed_an_answer_directly_is_not_sent_back() -> None:
    """The wire puts a word of the user's between them, which will not be there again."""
    twice = replace(REQUEST, messages=(HI, Message("assistant", "Hello!")))
    sealed = Sealed("anthropic", {"blocks": [], "followed": followed_by_reply(twice)})
    answer = Message("assistant", "Well.", sealed=(sealed,))

    assert thoughts(replace(twice, messages=(*twice.messages, answer, HI))) == [False, False]


async def test_a_thought_is_told_what_it_followed_and_all_else_is_let_through() -> None:
    asked: list[ModelRequest] = []

    class Thinking:
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
            asked.append(request)
            yield SealedDelta(Sealed("anthropic", {"blocks": []}))
            yield SealedDelta(OTHER)

    request = replace(TWICE, model="claude-other")
    deltas = [delta async for delta in BoundThinking(Thinking()).stream(request)]

    assert asked == [in_place(request)]
    assert deltas == [
        SealedDelta(Sealed("anthropic", {"blocks": [], "followed": followed_by_reply(asked[0])})),
        SealedDelta(OTHER),
    ]


MESSAGES = st.lists(
    st.builds(Message, role=st.sampled_from(["system", "user"]), content=st.text(max_size=3)),
    max_size=4,
).map(tuple)


@given(MESSAGES, MESSAGES)
def test_what_a_reply_followed_is_the_same_for_the_same_conversation_alone(
    one: tuple[Message, ...], other: tuple[Message, ...]
) -> None:
    def parted(messages: tuple[Message, ...]) -> list[list[str]]:
        return [[m.content for m in messages if m.role == role] for role in ("system", "user")]

    names = [followed_by_reply(replace(REQUEST, messages=messages)) for messages in (one, other)]

    assert (names[0] == names[1]) is (parted(one) == parted(other))
