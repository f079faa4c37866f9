"""What vendors send, read without trust."""

import orjson
import pytest

from milepost.core.errors import ProviderError
from milepost.providers.failures import Failures
from milepost.providers.payload import TOKENS_MAX, count, parsed, text

FAILURES = Failures("vendor", None)


def test_an_object_is_read() -> None:
    assert parsed(b'{"a": [1, null]}', FAILURES) == {"a": [1, None]}


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a": NaN'])
def test_what_is_no_json_is_an_error(payload: bytes) -> None:
    with pytest.raises(ProviderError, match="vendor sent an event that is no JSON"):
        parsed(payload, FAILURES)


@pytest.mark.parametrize("value", [None, 7, "hello", []])
def test_what_is_no_object_is_an_error(value: object) -> None:
    with pytest.raises(ProviderError, match="an event that is no JSON object"):
        parsed(orjson.dumps(value), FAILURES)


def test_text_that_was_cut_inside_of_a_letter_is_readable_still() -> None:
    assert parsed(b'{"text": "\\ud83d"}', FAILURES) == {"text": "\N{REPLACEMENT CHARACTER}"}


@pytest.mark.parametrize(("value", "said"), [("Hi", "Hi"), (None, ""), (7, ""), (["Hi"], "")])
def test_text_is_text_and_nothing_else_is(value: object, said: str) -> None:
    assert text(value) == said


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"a": {"b": 7}}, 7),
        ({"a": {"b": TOKENS_MAX + 1}}, 0),
        ({"a": {"b": -1}}, 0),
        ({"a": {"b": True}}, 0),
        ({"a": {"b": 7.0}}, 0),
        ({"a": {"b": "7"}}, 0),
        ({"a": None}, 0),
        ({}, 0),
    ],
)
def test_a_count_is_a_number_of_tokens_or_none(usage: dict[str, object], tokens: int) -> None:
    assert count(usage, "a", "b") == tokens
