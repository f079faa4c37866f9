"""How long a text may be and must be, also while it comes."""

import pytest
from hypothesis import given

from milepost.guardrails.finds import Passing
from milepost.guardrails.length import TooLong, TooShort
from tests.guardrails.passing import in_pieces, passed


@pytest.mark.parametrize(
    ("rail", "text", "kept"),
    [
        (TooLong(max_chars=5), "12345", "12345"),
        (TooLong(max_chars=5), "123456", "12345"),
        (TooLong(max_words=2), "one  two", "one  two"),
        (TooLong(max_words=2), "one  two three", "one  two "),
        (TooLong(max_tokens=1), "four", "four"),
        (TooLong(max_tokens=1), "fours", "four"),
        (TooLong(max_tokens=1), "中文", "中"),
        (TooLong(max_chars=9, max_words=1), "one two", "one "),
        (TooLong(max_chars=2), "", ""),
    ],
)
def test_a_text_is_cut_where_it_becomes_too_long(rail: TooLong, text: str, kept: str) -> None:
    assert passed(rail, text) == kept
    assert passed(rail, text, "block") == kept
    assert passed(rail, text, "warn") == text


@pytest.mark.parametrize(
    ("rail", "text", "is_short"),
    [
        (TooShort(min_chars=3), "ab", True),
        (TooShort(min_chars=3), "abc", False),
        (TooShort(min_words=2), "one", True),
        (TooShort(min_words=2), "one two", False),
    ],
)
def test_a_text_that_is_too_short_is_blocked_whole(
    rail: TooShort, text: str, *, is_short: bool
) -> None:
    passing = Passing(rail, "block")

    assert passing.feed(text) == ("" if is_short else text)
    assert passing.finish() == ""
    assert passing.blocked is is_short


def test_a_text_is_let_go_as_soon_as_it_is_long_enough() -> None:
    passing = Passing(TooShort(min_words=3), "block")

    assert passing.feed("one two ") == ""
    assert passing.feed("three") == "one two three"


def test_what_is_wrong_is_told_once() -> None:
    passing = Passing(TooLong(max_chars=3), "warn")
    for piece in ("ab", "cd", "ef"):
        passing.feed(piece)
    passing.finish()

    assert passing.found == {"more than 3 characters": 1}


@given(in_pieces("one ", "two"))
def test_however_a_text_is_cut_the_same_comes_out(drawn: tuple[str, list[str]]) -> None:
    text, pieces = drawn
    rail = TooLong(max_chars=11, max_words=4, max_tokens=5)
    passing = Passing(rail, "rewrite")

    assert "".join(map(passing.feed, pieces)) + passing.finish() == passed(rail, text)
