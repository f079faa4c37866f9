"""Guessing at tokens where nobody counts them."""

from milepost.core.messages import Image, Message, ToolCall
from milepost.core.model import ModelRequest, ToolSchema
from milepost.providers.tokens import IMAGE_TOKENS, estimate, estimate_prompt, estimate_request


def test_a_token_is_about_four_characters_and_never_less_than_one() -> None:
    assert [estimate(chars) for chars in (0, 1, 4, 5, 400)] == [0, 1, 1, 2, 100]


def test_a_prompt_counts_what_was_said_and_what_was_called() -> None:
    call = ToolCall("call_1_0", "add", {"a": 1})
    messages = (Message("user", "x" * 33), Message("assistant", calls=(call,)))

    assert estimate_prompt(ModelRequest("t", "m", messages)) == 10


def test_a_request_counts_its_pictures_and_its_tools_too() -> None:
    tool = ToolSchema("add", "Add.", {"type": "object"})
    picture = Image("https://pictures.example/1")
    messages = (Message("user", "x" * 40, images=(picture, picture)),)

    plain = estimate_request(ModelRequest("t", "m", messages))
    equipped = estimate_request(ModelRequest("t", "m", messages, (tool,)))

    assert plain == 10 + 2 * IMAGE_TOKENS
    assert plain < equipped < plain + 100
