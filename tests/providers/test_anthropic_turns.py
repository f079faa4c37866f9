"""Conversations as turns, and that no conversation is one that the vendor refuses."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.messages import Image, Message, Sealed, ToolCall
from milepost.core.model import ModelRequest, ToolSchema
from milepost.providers.anthropic import ANTHROPIC
from milepost.providers.anthropic_request import MessagesEncoder
from milepost.providers.anthropic_turns import turns_of
from tests.stubs.anthropic_official import check_request
from tests.stubs.anthropic_rules import refusal

HEADERS = {"anthropic-version": "2026-10-21"}
HI = Message("user", "Hi")


def turns(*messages: Message) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(turn.role, turn.blocks) for turn in turns_of(messages).turns]


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def call(wire_id: str, name: str = "add", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": wire_id, "name": name, "input": arguments}


def result(wire_id: str, content: str = "") -> dict[str, Any]:
    said = {"content": content} if content else {}
    return {"type": "tool_result", "tool_use_id": wire_id, **said}


def asked(*call_ids: str, said: str = "") -> Message:
    return Message("assistant", said, tuple(ToolCall(i, "add", {"a": 1}) for i in call_ids))


# --- Whose turn it is --------------------------------------------------------------------------


def test_results_of_one_step_stand_in_one_turn() -> None:
    messages = (
        HI,
        asked("call_1_0", "call_1_1", said="I add."),
        Message("tool", "2", call_id="call_1_0"),
        Message("tool", "3", call_id="call_1_1"),
    )

    assert turns(*messages) == [
        ("user", [text("Hi")]),
        ("assistant", [text("I add."), call("call_1_0", a=1), call("call_1_1", a=1)]),
        ("user", [result("call_1_0", "2"), result("call_1_1", "3")]),
    ]


def test_what_one_side_says_twice_is_one_turn() -> None:
    said = (
        HI,
        Message("user", "You there?"),
        Message("assistant", "Yes."),
        Message("assistant", "?"),
    )

    assert turns(*said)[:2] == [
        ("user", [text("Hi"), text("You there?")]),
        ("assistant", [text("Yes."), text("?")]),
    ]


def test_results_stand_before_what_the_user_said_meanwhile() -> None:
    messages = (
        HI,
        asked("call_1_0", "call_1_1"),
        Message("tool", "2", call_id="call_1_0"),
        Message("user", "Faster!"),
        Message("tool", "3", call_id="call_1_1"),
    )

    assert turns(*messages)[2] == (
        "user",
        [result("call_1_0", "2"), result("call_1_1", "3"), text("Faster!")],
    )


@pytest.mark.parametrize(
    "messages", [(), (Message("system", " "),), (Message("assistant", "Hello!"), HI)]
)
def test_the_user_begins(messages: tuple[Message, ...]) -> None:
    assert turns(*messages)[0] == ("user", [text("(The conversation began earlier.)")])


def test_the_user_has_the_last_word() -> None:
    assert turns(HI, Message("assistant", "Hello!"))[-1] == ("user", [text("Go on.")])


def test_an_answer_of_nothing_is_no_turn() -> None:
    assert turns(HI, Message("assistant", "\n"), Message("user", "Well?")) == [
        ("user", [text("Hi"), text("Well?")])
    ]


def test_a_question_of_nothing_is_one_all_the_same() -> None:
    assert turns(Message("user", " ")) == [("user", [text("(Nothing was said.)")])]


# --- Calls and results -------------------------------------------------------------------------


def test_a_call_without_a_result_is_given_one() -> None:
    messages = (HI, asked("call_1_0", "call_1_1"), Message("tool", "3", call_id="call_1_1"))

    assert turns(*messages)[2] == (
        "user",
        [result("call_1_1", "3"), result("call_1_0", "This call has no result.")],
    )


def test_calls_without_results_are_closed_before_the_next_answer() -> None:
    assert [role for role, _ in turns(HI, asked("call_1_0"), asked("call_2_0"))] == [
        "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip


def test_a_result_without_its_call_is_something_that_was_said() -> None:
    assert turns(Message("tool", "42", call_id="call_1_0")) == [("user", [text("42")])]


def test_a_second_result_of_a_call_is_something_that_was_said() -> None:
    twice = (Message("tool", "2", call_id="call_1_0"), Message("tool", "3", call_id="call_1_0"))

    assert turns(HI, asked("call_1_0"), *twice)[2] == (
        "user",
        [result("call_1_0", "2"), text("3")],
    )


@pytest.mark.parametrize("content", ["", " \n"])
def test_a_result_of_nothing_is_one_without_content(content: str) -> None:
    messages = (HI, asked("call_1_0"), Message("tool", content, call_id="call_1_0"))

    assert turns(*messages)[2] == ("user", [result("call_1_0")])


def test_malformed_arguments_go_back_as_an_empty_object() -> None:
    broken = ToolCall("call_1_0", "add", {}, malformed='{"a":')

    assert turns(HI, Message("assistant", calls=(broken,)))[1] == ("assistant", [call("call_1_0")])


def test_ids_go_out_in_letters_that_the_vendor_takes_and_each_once() -> None:
    calls = (
        ToolCall("call_1_0", "add", {}, "functions.add:0"),
        ToolCall("call_1_1", "add", {}, "functions/add:0"),
        ToolCall("call_1_2", "add", {}, "toolu_1"),
    )
    results = [Message("tool", str(n), call_id=made.id) for n, made in enumerate(calls)]

    said = turns(HI, Message("assistant", calls=calls), *results)

    assert [block["id"] for block in said[1][1]] == ["functions_add_0", "call_1_1", "toolu_1"]
    assert [(block["tool_use_id"], block["content"]) for block in said[2][1]] == [
        ("functions_add_0", "0"), ("call_1_1", "1"), ("toolu_1", "2"),
    ]  # fmt: skip


# --- Images ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("https://example.com/a.png", {"type": "url", "url": "https://example.com/a.png"}),
        (
            "data:image/webp;base64,aGk=",
            {"type": "base64", "media_type": "image/webp", "data": "aGk="},
        ),
        (
            "data:image/JPG;name=a.jpg;base64,aGk=",
            {"type": "base64", "media_type": "image/jpeg", "data": "aGk="},
        ),
    ],
)
def test_images_stand_before_the_text(url: str, source: dict[str, str]) -> None:
    message = Message("user", "Who is this?", images=(Image(url),))

    assert turns(message) == [("user", [{"type": "image", "source": source}, text("Who is this?")])]


def test_an_image_may_stand_alone() -> None:
    [(_, blocks)] = turns(Message("user", images=(Image("https://example.com/a.png"),)))

    assert [block["type"] for block in blocks] == ["image"]


# --- Whatever was said -------------------------------------------------------------------------

SAID = st.sampled_from(["", " ", "\n", "Hello", "Grüße", '{"a": 1}'])
IDS = st.sampled_from(["call_1_0", "call_1_1", "a.b:c", "", "ü"])
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
LAYOUTS = st.lists(
    st.sampled_from(
        [
            THOUGHT,
            {"type": "redacted_thinking", "data": "c2Vj"},
            {"type": "text", "chars": 1, "was": "?"},
            {"type": "tool_use", "was": "?"},
            {"type": 7},
            {},
            None,
        ]
    ),
    max_size=4,
)
CALLS = st.builds(
    ToolCall,
    id=IDS,
    name=st.sampled_from(["add", "agent_x"]),
    arguments=st.just({"a": 1}),
    provider_id=IDS,
    malformed=st.sampled_from([None, "{"]),
)
SEALED = st.one_of(
    st.builds(lambda blocks: Sealed("anthropic", {"blocks": blocks}), LAYOUTS),
    st.just(Sealed("anthropic", {"blocks": 7})),
    st.just(Sealed("openai", {"reasoning": "Hm."})),
)
MESSAGES = st.one_of(
    st.builds(Message, role=st.just("system"), content=SAID),
    st.builds(
        Message,
        role=st.just("user"),
        content=SAID,
        images=st.sampled_from([(), (Image("https://example.com/a.png"),)]),
    ),
    st.builds(
        Message,
        role=st.just("assistant"),
        content=SAID,
        calls=st.lists(CALLS, max_size=3).map(tuple),
        sealed=st.lists(SEALED, max_size=2).map(tuple),
    ),
    st.builds(Message, role=st.just("tool"), content=SAID, call_id=IDS),
)


@given(
    st.lists(MESSAGES, max_size=10),
    st.sampled_from([(), (ToolSchema("add", "", {"type": "object"}),)]),
    st.sampled_from([None, "none", "high", "2000"]),
)
def test_no_conversation_is_one_that_the_vendor_refuses(
    messages: list[Message], tools: tuple[ToolSchema, ...], effort: str | None
) -> None:
    request = ModelRequest("t", "m", tuple(messages), tools=tools, reasoning_effort=effort)

    body = orjson.loads(MessagesEncoder(ANTHROPIC).encode(request))

    assert refusal(HEADERS, body) is None
    check_request(body)


@given(st.lists(MESSAGES, max_size=10), st.lists(MESSAGES, max_size=4))
def test_what_was_said_stays_as_it_is_when_an_answer_and_more_follow(
    before: list[Message], after: list[Message]
) -> None:
    earlier = turns(*before, HI)

    assert turns(*before, HI, Message("assistant", "Hello!"), *after)[: len(earlier)] == earlier
