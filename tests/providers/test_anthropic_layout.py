"""The order of a reply's blocks, out of the stream and back onto the wire."""

from dataclasses import replace
from typing import Any

import pytest

from milepost.core.json import Json
from milepost.core.messages import Message, Sealed, ToolCall
from milepost.providers.anthropic_layout import Called, Layout, Said, Thought, parts_of

THINKING: dict[str, Json] = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
REDACTED: dict[str, Json] = {"type": "redacted_thinking", "data": "c2Vj"}
ADD = ToolCall("call_1_0", "add", {"a": 1, "b": 2})
NOW = ToolCall("call_1_1", "now", {})


def thought(thinking: str = "Hm.", signature: str = "c2ln") -> Thought:
    return Thought({"type": "thinking", "thinking": "", "signature": signature}, [thinking])


def noted(*blocks: Said | Called | Thought) -> Sealed | None:
    layout = Layout()
    for block in blocks:
        layout.begin(block)
    return layout.sealed()


def kept(*blocks: Said | Called | Thought) -> tuple[Sealed, ...]:
    sealed = noted(*blocks)
    assert sealed is not None
    return (sealed,)


INTERLEAVED = kept(
    thought(),
    Said(["Let", " me"]),
    Called(['{"b": 2,', ' "a": 1}']),
    Thought(dict(REDACTED)),
    Called([]),
    Said(["Done."]),
)


def test_a_reply_comes_back_in_the_order_in_which_it_came() -> None:
    message = Message("assistant", "Let meDone.", (ADD, NOW), sealed=INTERLEAVED)

    assert [*parts_of(message)] == [THINKING, "Let me", ADD, REDACTED, "Done.", NOW]


def test_a_thought_behind_arguments_that_are_no_json_does_not_come_back() -> None:
    broken = replace(ADD, arguments={}, malformed='{"a": ')
    sealed = kept(thought(), Called(['{"a": ']), thought())

    assert [*parts_of(Message("assistant", "", (broken,), sealed=sealed))] == [THINKING, "", broken]


def test_where_nobody_thought_nothing_is_kept() -> None:
    assert noted(Said(["Hi"]), Called(["{}"])) is None


def test_a_thought_of_nothing_is_none() -> None:
    assert noted(thought("", ""), Said(["Hi"])) is None


def test_a_thought_that_is_hidden_is_kept_for_its_signature() -> None:
    hidden: list[Json] = [{**THINKING, "thinking": ""}]

    assert noted(thought("")) == Sealed("anthropic", {"blocks": hidden})


def test_what_another_wire_kept_is_none_of_ours() -> None:
    other = (Sealed("openai", {"blocks": [THINKING]}),)

    assert [*parts_of(Message("assistant", "Hi", sealed=other))] == ["Hi"]


@pytest.mark.parametrize(
    "changed",
    [
        {"content": "Let him. Done."},
        {"calls": (replace(ADD, arguments={"a": 9, "b": 2}), NOW)},
        {"calls": (replace(ADD, arguments={}, malformed="{"), NOW)},
        {"calls": ()},
    ],
    ids=["text", "arguments", "malformed arguments", "calls"],
)
def test_a_thought_behind_something_that_changed_does_not_come_back(
    changed: dict[str, Any],
) -> None:
    message = Message("assistant", "Let meDone.", (ADD, NOW), sealed=INTERLEAVED)

    parts = [*parts_of(replace(message, **changed))]

    assert parts[0] == THINKING
    assert REDACTED not in parts
    assert "".join(part for part in parts if isinstance(part, str)) == changed.get(
        "content", "Let meDone."
    )
    assert tuple(p for p in parts if isinstance(p, ToolCall)) == changed.get("calls", (ADD, NOW))


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"blocks": None},
        {"blocks": [None, 7, "thinking"]},
        {"blocks": [{"type": "text", "chars": -5, "was": ""}, THINKING]},
        {"blocks": [{"type": "fallback", "from": "m"}, THINKING]},
        {"blocks": [{"type": "tool_use", "was": ""}, THINKING]},
    ],
)
def test_what_was_kept_by_a_version_that_knew_more_is_left_where_it_is(
    item: dict[str, Any],
) -> None:
    message = Message("assistant", "Hi", sealed=(Sealed("anthropic", item),))

    assert [part for part in parts_of(message) if part != ""] == ["Hi"]


def test_what_cannot_be_stored_is_not_kept() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]

    assert noted(Thought({**REDACTED, "more": deep})) is None
