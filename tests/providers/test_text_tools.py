"""Tools told and called in plain text, around a provider that knows none."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.errors import ProviderError
from milepost.core.json import Json
from milepost.core.messages import Image, Message, Sealed, ToolCall
from milepost.core.model import (
    CallDelta,
    Delta,
    FellBack,
    Finished,
    FinishReason,
    ModelRequest,
    ReasoningDelta,
    RequestedCall,
    ResponseFormat,
    SealedDelta,
    Spent,
    TextDelta,
    ToolSchema,
)
from milepost.core.usage import Usage
from milepost.providers.assemble import Assembly
from milepost.providers.scripted import Scripted
from milepost.providers.text_tools import TextTools, in_words

NUMBER: dict[str, Json] = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD = ToolSchema("add", "Add numbers", NUMBER)
NOW = ToolSchema("now", "Tell the time", {"type": "object", "properties": {}})
QUESTION = Message("user", "What is 17 + 25?")
CALL = 'TOOL_CALL: {"name": "add", "arguments": {"a": 17}}'


def request(*messages: Message, **fields: Any) -> ModelRequest:
    given: dict[str, Any] = {"tools": (ADD, NOW), **fields}
    return ModelRequest("t", "small", messages or (QUESTION,), **given)


async def told(*script: Delta, asked: ModelRequest | None = None) -> list[Delta]:
    provider = TextTools(Scripted([script]))
    return [delta async for delta in provider.stream(asked or request())]


def said(*messages: Message) -> list[tuple[str, str]]:
    """Return who says what, behind the instructions."""
    return [(turn.role, turn.content) for turn in in_words(request(*messages)).messages[1:]]


# --- The reply ---------------------------------------------------------------------------------


async def test_calls_in_the_text_are_calls_and_the_rest_streams_on() -> None:
    deltas = await told(
        TextDelta("Let me "),
        TextDelta("see.\nTOOL_"),
        TextDelta('CALL: {"name": "add", "argu'),
        TextDelta('ments": {"a": 17}}\n'),
        Spent(Usage(9, 5)),
        Finished("stop", "r-1", "small"),
    )

    assert deltas == [
        TextDelta("Let me "),
        TextDelta("see.\n"),
        CallDelta(0, "", "add", '{"a": 17}'),
        Spent(Usage(9, 5)),
        Finished("tool_calls", "r-1", "small"),
    ]


async def test_an_answer_that_looks_like_a_call_stays_an_answer() -> None:
    deltas = await told(TextDelta('{"name":"Bob","age":3}'), Finished("stop"))

    assert deltas == [TextDelta('{"name":"Bob","age":3}'), Finished("stop")]


async def test_what_was_held_back_comes_before_the_end() -> None:
    deltas = await told(TextDelta("See\nTOOL_CAL"), Finished("stop"))

    assert deltas == [TextDelta("See\n"), TextDelta("TOOL_CAL"), Finished("stop")]


@pytest.mark.parametrize("broken", ["{name: 'add', a: 17}", '{"name": "add", "a": }', "add(17)"])
async def test_malformed_json_is_a_call_whose_arguments_tell_what_is_wrong(broken: str) -> None:
    deltas = await told(TextDelta(f"TOOL_CALL: {broken}"), Finished("stop"))

    assert deltas == [CallDelta(0, "", "add", broken), Finished("tool_calls")]


@pytest.mark.parametrize("reason", ["length", "content_filter", "tool_calls"])
async def test_another_reason_than_the_end_stays_the_reason(reason: FinishReason) -> None:
    deltas = await told(TextDelta(CALL), Finished(reason))

    assert deltas == [CallDelta(0, "", "add", '{"a": 17}'), Finished(reason)]


async def test_a_model_that_calls_on_its_own_is_heard_as_well() -> None:
    assembly = Assembly()
    for delta in await told(
        CallDelta(0, "id_a", "now"),
        TextDelta(CALL + "\n"),
        CallDelta(0, arguments="{}"),
        CallDelta(1, "id_b", "now", "{}"),
        Finished("stop"),
    ):
        assembly.feed(delta)

    assert assembly.reply().calls == (
        RequestedCall("id_a", "now", "{}"),
        RequestedCall("", "add", '{"a": 17}'),
        RequestedCall("id_b", "now", "{}"),
    )


async def test_all_that_is_no_text_passes_as_it_is() -> None:
    deltas: list[Delta] = [
        FellBack("a/b", "c/d", "provider_overloaded", "busy"),
        ReasoningDelta(CALL),
        SealedDelta(Sealed("x", {})),
        Spent(Usage(1, 1)),
        Finished("stop"),
    ]

    assert await told(*deltas) == deltas


async def test_without_tools_a_reply_passes_as_it_is() -> None:
    texts = [TextDelta("See\nTOOL_"), TextDelta("CALL: {}"), TextDelta(CALL)]
    deltas: list[Delta] = [*texts, Finished("stop")]

    assert await told(*deltas, asked=request(tools=())) == deltas


async def test_a_reply_that_breaks_off_has_no_end_and_no_half_call() -> None:
    provider = TextTools(Scripted([[TextDelta("Hi\n" + CALL[:-1]), ProviderError("cut")]]))
    deltas = provider.stream(request())

    assert await anext(deltas) == TextDelta("Hi\n")
    with pytest.raises(ProviderError, match="cut"):
        await anext(deltas)


async def test_leaving_early_leaves_the_provider_inside_too() -> None:
    left = []

    class Endless:
        async def stream(self, _: ModelRequest) -> Any:
            try:
                while True:
                    yield TextDelta("x")
            finally:
                left.append(True)

    deltas = TextTools(Endless()).stream(request())
    await anext(deltas)
    await deltas.aclose()

    assert left == [True]


# --- The request -------------------------------------------------------------------------------


def test_tools_are_told_in_the_instructions_a_line_each() -> None:
    sent = in_words(request(Message("system", "Be kind"), QUESTION))

    [instructions, question] = sent.messages
    lines = instructions.content.splitlines()
    at = lines.index("Available tools (JSON schema):")
    assert lines[0] == "Be kind"
    assert [json.loads(line) for line in lines[at + 1 : at + 3]] == [ADD.to_dict(), NOW.to_dict()]
    assert 'TOOL_CALL: {"name": "<tool>", "arguments": {...}}' in lines
    assert (sent.tools, question) == ((), QUESTION)


def test_without_instructions_the_tools_are_all_of_them() -> None:
    [instructions, question] = in_words(request()).messages

    assert instructions.role == "system"
    assert instructions.content.startswith("Available tools (JSON schema):\n{")
    assert question == QUESTION


def test_what_only_goes_with_tools_is_not_sent_without_them() -> None:
    sent = in_words(
        request(
            parallel_tools=False,
            response_format=ResponseFormat(NUMBER),
            stop=("END",),
            temperature=0.5,
            tokens_max=9,
        )
    )

    assert (sent.parallel_tools, sent.response_format) == (None, None)
    assert (sent.stop, sent.temperature, sent.tokens_max) == (("END", "TOOL_RESULT:"), 0.5, 9)
    assert "Call one tool at a time." in sent.messages[0].content
    assert json.dumps(NUMBER) in sent.messages[0].content


def test_an_agent_that_uses_all_stop_sequences_of_a_vendor_is_sent_with_no_other() -> None:
    three, four = ("A", "B", "C"), ("A", "B", "C", "D")

    assert in_words(request(stop=three)).stop == (*three, "TOOL_RESULT:")
    assert in_words(request(stop=four)).stop == four


def test_a_request_without_tools_and_calls_stays_as_it_is() -> None:
    plain = request(
        Message("system", "Be kind"), QUESTION, Message("user", "Now"), Message("assistant", "42"),
        tools=(), response_format=ResponseFormat(NUMBER),
    )  # fmt: skip

    assert in_words(plain) == plain


def test_earlier_calls_and_results_are_told_as_the_model_would_write_and_read_them() -> None:
    calls = (ToolCall("call_1_0", "add", {"a": 17}, "x"), ToolCall("call_1_1", "now", {}))

    assert said(
        QUESTION,
        Message("assistant", "Let me see.\n\n", calls, sealed=(Sealed("gemini", {"call": 0}),)),
        Message("tool", "42", call_id="call_1_0"),
        Message("tool", "noon,\nor so", call_id="call_1_1"),
        Message("assistant", "42 at noon"),
    ) == [
        ("user", QUESTION.content),
        (
            "assistant",
            f'Let me see.\n{CALL}\nTOOL_CALL: {{"name": "now", "arguments": {{}}}}',
        ),
        (
            "user",
            """TOOL_RESULT: {"name": "add", "result": 42}\n
TOOL_RESULT: {"name": "now", "result": "noon,\\nor so"}""",
        ),
        ("assistant", "42 at noon"),
    ]


def test_what_the_user_says_after_results_is_of_the_same_turn() -> None:
    asked = Message("assistant", calls=(ToolCall("call_1_0", "now", {}),))
    picture = Image("https://example.com/cat.png")
    after = Message("user", "And this?", images=(picture,))

    sent = in_words(request(QUESTION, asked, Message("tool", "noon", call_id="call_1_0"), after))

    assert [turn.role for turn in sent.messages] == ["system", "user", "assistant", "user"]
    assert sent.messages[-1].content.endswith('"result": "noon"}\n\nAnd this?')
    assert sent.messages[-1].images == (picture,)


def test_users_that_speak_twice_stay_two() -> None:
    assert said(Message("user", "A"), Message("user", "B")) == [("user", "A"), ("user", "B")]


@pytest.mark.parametrize(
    ("malformed", "line"),
    [
        ('{"name": "add", "a": }', 'TOOL_CALL: {"name": "add", "a": }'),
        ('{"a": ', 'TOOL_CALL: {"name": "add", "arguments": {"a": }'),
    ],
)
def test_a_call_that_was_malformed_is_told_as_it_was(malformed: str, line: str) -> None:
    call = ToolCall("call_1_0", "add", {}, malformed=malformed)

    assert said(Message("assistant", calls=(call,))) == [("assistant", line)]


@given(st.text())
def test_no_result_can_pass_for_another(content: str) -> None:
    asked = Message("assistant", calls=(ToolCall("call_1_0", "now", {}),))

    *_, (_, told) = said(asked, Message("tool", content, call_id="call_1_0"))

    result = json.loads(told.removeprefix("TOOL_RESULT: "))["result"]
    assert result in (content, _parsed(content))
    assert "\nTOOL_RESULT:" not in told


def _parsed(content: str) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content


def test_the_same_conversation_begins_with_the_same_words_when_it_is_longer() -> None:
    """Vendors cache prefixes."""
    turn = (
        QUESTION,
        Message("assistant", calls=(ToolCall("call_1_0", "add", {"a": 17}),)),
        Message("tool", "42", call_id="call_1_0"),
        Message("assistant", "42"),
    )

    assert in_words(request(*turn, *turn)).messages[:5] == in_words(request(*turn)).messages
