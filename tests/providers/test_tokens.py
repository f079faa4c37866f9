"""Guessing at tokens where nobody counts them."""

from milepost.core.messages import Message, ToolCall
from milepost.core.model import ModelRequest
from milepost.providers.tokens import estimate, estimate_prompt


def test_a_token_is_about_four_characters_and_never_less_than_one() -> None:
    assert [estimate(chars) for chars in (0, 1, 4, 5, 400)] == [0, 1, 1, 2, 100]


def test_a_prompt_counts_what_was_said_and_what_was_called() -> None:
    call = ToolCall("call_1_0", "add", {"a": 1})
    messages = (Message("user", "x" * 33), Message("assistant", calls=(call,)))

    assert estimate_prompt(ModelRequest("t", "m", messages)) == 10
