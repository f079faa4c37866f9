"""Tool calls in the text of a reply."""

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.core.errors import ProviderError
from milepost.core.model import CallDelta, TextDelta
from milepost.providers.call_markup import CALL_MARKER, RESULT_MARKER, written
from milepost.providers.text_calls import CALL_CHARS_MAX, TextCalls

NAMES = frozenset({"add", "get_weather", "agent:support"})
ADD = 'TOOL_CALL: {"name": "add", "arguments": {"a": 17, "b": 25}}'
SUM = CallDelta(0, "", "add", '{"a": 17, "b": 25}')

Outcome = tuple[str, list[CallDelta]]


def read(*pieces: str) -> Outcome:
    """Return the answer, and the calls, of a text that comes in `pieces`."""
    calls = TextCalls(NAMES)
    told = [each for piece in pieces for each in calls.feed(piece)] + calls.end()
    text = "".join(each.text for each in told if isinstance(each, TextDelta))
    return text, [each for each in told if isinstance(each, CallDelta)]


def asked(text: str) -> list[tuple[str, str]]:
    """Return names and arguments of the calls in `text`, in which nothing else is."""
    answer, calls = read(text)
    assert answer.strip() == ""
    return [(call.name, call.arguments) for call in calls]


# --- Calls -------------------------------------------------------------------------------------


def test_a_call_is_what_stands_behind_the_marker() -> None:
    assert read(ADD) == ("", [SUM])


@pytest.mark.parametrize(
    "text",
    [
        "  \t" + ADD,
        "\n\n" + ADD + "\n\n",
        'TOOL_CALL:{"name":"add","arguments":{"a": 17, "b": 25}}',
        'TOOL_CALL:\n{\n  "name": "add",\n  "arguments": {\n    "a": 17,\n    "b": 25\n  }\n}',
        f"```\n{ADD}\n```",
        f"```json\r\n{ADD}\r\n```\r\n",
        'TOOL_CALL:\n```json\n{"name": "add", "arguments": {"a": 17, "b": 25}}\n```',
        'TOOL_CALL: ```\n{"name": "add", "arguments": {"a": 17, "b": 25}}```',
        'TOOL_CALL: {"name": "add", "parameters": {"a": 17, "b": 25}}',
        'TOOL_CALL: {"name": "add", "a": 17, "b": 25}',
        'TOOL_CALL: {"name": "add", "arguments": "{\\"a\\": 17, \\"b\\": 25}"}',
    ],
)
def test_models_write_calls_in_many_ways(text: str) -> None:
    [(name, arguments)] = asked(text)

    assert (name, json.loads(arguments)) == ("add", {"a": 17, "b": 25})


@pytest.mark.parametrize("between", ["\n", "\n\n", " ", "", "\n```\n"])
def test_there_may_be_several(between: str) -> None:
    other = 'TOOL_CALL: {"name": "get_weather", "arguments": {"city": "Oslo"}}'

    assert [name for name, _ in asked(ADD + between + other + "\n" + ADD)] == [
        "add", "get_weather", "add",
    ]  # fmt: skip


def test_each_call_in_a_fence_of_its_own_leaves_nothing_of_it() -> None:
    fenced = f"```json\n{ADD}\n```\n"

    assert read(fenced + "\n" + fenced) == ("", [SUM, CallDelta(1, "", "add", SUM.arguments)])


@pytest.mark.parametrize(
    "value", ['a "quoted" } word {', "back\\slash\\", "line\nTOOL_CALL: x", "```", "\u2028 \u00e9"]
)
def test_arguments_may_hold_what_looks_like_markup(value: str) -> None:
    [(_, arguments)] = asked(written("add", {"text": value}))

    assert json.loads(arguments) == {"text": value}


def test_a_call_without_arguments_is_one() -> None:
    assert asked('TOOL_CALL: {"name": "add"}') == [("add", "{}")]
    assert asked('TOOL_CALL: {"name": "add", "arguments": null}') == [("add", "")]


def test_an_integer_of_any_size_stays_what_it_is() -> None:
    [(_, arguments)] = asked(
        'TOOL_CALL: {"name": "add", "arguments": {"a": 123456789012345678901}}'
    )

    assert arguments == '{"a": 123456789012345678901}'


def test_line_ends_within_a_string_are_borne() -> None:
    [(_, arguments)] = asked('TOOL_CALL: {"name": "add", "arguments": {"a": "one\ntwo"}}')

    assert json.loads(arguments) == {"a": "one\ntwo"}


# --- Answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello",
        '{"name":"Bob","age":3}',
        '{"name": "add", "arguments": {"a": 1}}',
        '```json\n{"name": "add", "arguments": {}}\n```\n',
        'TOOL_CALL: {"name": "Bob", "age": 3}',
        'TOOL_CALL: {"name": 3}',
        "TOOL_CALL: {}",
        "TOOL_CALL:",
        "TOOL_CALL: \n\n",
        "TOOL_CALL: none of the tools",
        'TOOL_CALL: "add"',
        "TOOL_CALL: 42",
        'TOOL_CALL: {"arguments": {"name": "add"}}',
        "Say TOOL_CALL: " + ADD.partition(" ")[2],
        "`TOOL_CALL:` is a marker",
        "TOOL_CALLS: many",
        "tool_call: {}",
        "TOOL_CAL",
        "```python\nprint(1)\n```",
        "```",
        "``",
        "  indented\n\ttoo\n   ",
        " " * 100 + ADD,
        "```a-language-with-a-very-long-name\n" + "x",
        RESULT_MARKER + ' {"name": "add", "result": 42}',
        "a\r\n\r\nb\n",
    ],
)
def test_all_else_is_the_answer_byte_for_byte(text: str) -> None:
    assert read(text) == (text, [])
    assert read(*text) == (text, [])


def test_text_before_a_call_streams_on_at_once() -> None:
    calls = TextCalls(NAMES)

    assert calls.feed("Let me ") == [TextDelta("Let me ")]
    assert calls.feed("see.\nTOOL_") == [TextDelta("see.\n")]
    assert calls.feed('CALL: {"name": "add", ') == []
    assert calls.feed('"arguments": {"a": 17, "b": 25}}') == [SUM]
    assert calls.feed("\nThat is all") == [TextDelta("That is all")]
    assert calls.end() == []


@pytest.mark.parametrize("begun", ["TOOL", " ", "```", "```js", "```\n", "```\n  TOOL_CALL"])
def test_only_what_may_become_a_marker_is_held_back(begun: str) -> None:
    calls = TextCalls(NAMES)

    assert calls.feed(f"One\n{begun}") == [TextDelta("One\n")]
    assert calls.feed("!") == [TextDelta(f"{begun}!")]


def test_text_after_calls_is_the_answer_still() -> None:
    assert read(f"Look.\n{ADD}\n\nDone: {{}}\n") == ("Look.\nDone: {}\n", [SUM])


def test_a_made_up_result_and_what_follows_it_are_dropped() -> None:
    text = f'{ADD}\nTOOL_RESULT: {{"name": "add", "result": 43}}\nSo it is 43.\n{ADD}'

    assert read(text) == ("", [SUM])


def test_no_marker_of_a_call_is_shown() -> None:
    text, calls = read(f"```json\n{ADD}\n```\n{ADD}\n  {ADD}")

    assert (text, len(calls)) == ("", 3)


# --- Malformed ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('TOOL_CALL: {"name": "add", "arguments": {"a": 1', '{"name": "add", "arguments": {"a": 1'),
        ('TOOL_CALL: {"name": "add", "arguments": {a: 1}}', '{"name": "add", "arguments": {a: 1}}'),
        ("TOOL_CALL: {'name': 'add', 'a': 1}", "{'name': 'add', 'a': 1}"),
        ("TOOL_CALL: add(a=1, b=2)", "add(a=1, b=2)"),
        ('TOOL_CALL: add {"a": 1}', 'add {"a": 1}'),
        ('TOOL_CALL: add: {"a": 1}', 'add: {"a": 1}'),
        ("TOOL_CALL: agent:support", "agent:support"),
        ("TOOL_CALL:\n```json\nadd\n```", "add"),
    ],
)
def test_what_names_a_tool_and_is_no_json_is_called_with_what_was_written(
    text: str, arguments: str
) -> None:
    answer, [call] = read(text)

    assert answer.strip("`\n") == ""
    assert call.name in NAMES
    assert call.arguments == arguments


def test_a_call_that_is_not_closed_ends_where_the_next_begins() -> None:
    broken = '{"name": "add", "arguments": {"a": "1'

    assert asked(f"TOOL_CALL: {broken}\n{ADD}") == [("add", broken), ("add", SUM.arguments)]


def test_a_call_without_end_is_an_error() -> None:
    calls = TextCalls(NAMES)
    calls.feed('TOOL_CALL: {"name": "add", "a": "')

    with pytest.raises(ProviderError, match="a tool call of more than 200000 characters"):
        calls.feed("x" * CALL_CHARS_MAX)


def test_an_object_nested_beyond_all_measure_is_no_call() -> None:
    text = 'TOOL_CALL: {"name": "Bob", "a": ' + "[" * 100_000 + "}"

    assert read(text) == (text, [])


# --- Any text, cut anywhere --------------------------------------------------------------------


FRAGMENTS = [
    "TOOL_CALL:", "TOOL_RESULT:", "TOOL_", "CALL", "```", "```json", "`", "\n", "\r\n", " ", "\t",
    "{", "}", '"', "\\", "'", ":", ",", "[", "]", '"name"', '"add"', "add", '{"name": "add"}',
    '{"name":"Bob","age":3}', '"arguments": {"a": 1}', ADD, "Hello", "\u00e9", "\U0001f600", "1",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=14).map("".join)


def cut(text: str, cuts: Iterable[int]) -> list[str]:
    borders = [0, *sorted(at % (len(text) + 1) for at in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(borders)]


@given(TEXTS, st.lists(st.integers(0, 1_000), max_size=10))
@example('TOOL_CALL: {"name": "add", "a": "\\\\"}\n', [33, 34])
@example("```\n```\nTOOL_CALL: add\n", [3, 4, 5, 8])
def test_it_does_not_matter_where_a_text_is_cut(text: str, cuts: list[int]) -> None:
    assert read(*cut(text, cuts)) == read(text)
    assert read(*text) == read(text)


@given(TEXTS.filter(lambda text: CALL_MARKER not in text))
def test_a_text_without_a_marker_passes_byte_for_byte(text: str) -> None:
    assert read(text) == (text, [])


@given(TEXTS)
def test_no_call_is_of_a_tool_that_is_not_there_or_has_no_marker(text: str) -> None:
    answer, calls = read(text)

    assert {call.name for call in calls} <= NAMES
    assert len(calls) <= text.count(CALL_MARKER)
    assert [call.index for call in calls] == [*range(len(calls))]
    assert calls or answer == text


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
CALLS = st.lists(st.tuples(st.sampled_from(sorted(NAMES)), st.dictionaries(st.text(), JSON)))


@given(CALLS, st.lists(st.integers(0, 1_000), max_size=10))
def test_what_is_written_as_calls_is_read_as_the_same(
    said: list[tuple[str, dict[str, Any]]], cuts: list[int]
) -> None:
    text = "\n".join(written(name, arguments) for name, arguments in said)

    answer, calls = read(*cut(text, cuts))

    assert answer == ""
    assert [(call.name, json.loads(call.arguments)) for call in calls] == said
