"""What the demo makes of the user's words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.json import Json
from milepost.providers.demo_rules import WISHES_MAX, wishes


def wished(message: str) -> list[tuple[str, dict[str, Json]]]:
    return [(wish.tool, dict(wish.arguments)) for wish in wishes(message)]


@pytest.mark.parametrize(
    ("message", "tool", "a", "b"),
    [
        ("What is 17+25?", "add", 17, 25),
        ("2 plus -3", "add", 2, -3),
        ("2.5 + 0.5", "add", 2.5, 0.5),
        ("Add the numbers 2 and 3", "add", 2, 3),
        ("add 2 to 3 please", "add", 2, 3),
        ("the sum of 2 and 3", "add", 2, 3),
        ("6 x 7", "multiply", 6, 7),
        ("6 \N{MULTIPLICATION SIGN} 7", "multiply", 6, 7),
        ("6*7", "multiply", 6, 7),
        ("6 multiplied by 7", "multiply", 6, 7),
        ("Multiply 6 by 7", "multiply", 6, 7),
        ("the product of 6 and 7", "multiply", 6, 7),
    ],
)
def test_simple_arithmetic_is_understood(message: str, tool: str, a: float, b: float) -> None:
    assert wished(message) == [(tool, {"a": a, "b": b})]


@pytest.mark.parametrize("message", ["", "Hi", "I have 17 apples", "many times", "ann@example.com"])
def test_words_that_ask_for_nothing_are_nothing(message: str) -> None:
    assert wished(message) == []


@pytest.mark.parametrize(
    ("message", "subject", "body"),
    [
        ("Send an email to a@b.co saying I'm late.", None, "I'm late."),
        ("email a@b.co: 'see you at 5 + 1'", None, "see you at 5 + 1"),
        ("Mail a@b.co about lunch", "lunch", "This is about lunch."),
        ("write to a@b.co about lunch saying no time", "lunch", "no time"),
        ("e-mail a@b.co subject Lunch body Not today", "Lunch", "Not today"),
        ("send a note to a@b.co", None, "Hello from Milepost's demo."),
    ],
)
def test_a_mail_has_an_address_a_subject_and_a_body(
    message: str, subject: str | None, body: str
) -> None:
    subject = subject or "A note from Milepost's demo"

    assert wished(message) == [("send_email", {"to": "a@b.co", "subject": subject, "body": body})]


def test_wishes_come_in_the_order_of_the_words() -> None:
    tools = [
        tool for tool, _ in wished("Tell me the time, 2 * 3, mail a@b.co: hi, then add 1 and 2")
    ]

    assert tools == ["current_time", "multiply", "send_email", "add"]


def test_there_are_never_too_many() -> None:
    assert len(wishes("1 + 2, " * 100)) == WISHES_MAX


@given(st.text(alphabet="send mail@.-+x12 about:\n", max_size=300))
def test_no_message_is_too_strange(message: str) -> None:
    assert len(wishes(message)) <= WISHES_MAX
