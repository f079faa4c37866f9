"""What may be remembered: by what the same thing is known again, and how it is shown in a line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.memories import SOUGHT_MAX, Finding, line, sought, words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Finding("entity", "a painter", "Ann  Lee"), Finding("entity", "", "ANN LEE.")),
        (Finding("fact", "Ann's cat is red"), Finding("fact", "ann s CAT is red!")),
        (
            Finding("relation", "", "Ann", "works_at", "Acme"),
            Finding("relation", "since May", "ann", "Works at", "ACME"),
        ),
        (Finding("entity", "", "Straße"), Finding("entity", "", "STRASSE")),
        (Finding("entity", "", "İstanbul"), Finding("entity", "", "istanbul")),
        (Finding("entity", "", "ジョン・スミス"), Finding("entity", "", "ジョンスミス")),
    ],
)
def test_the_same_thing_is_known_again(one: Finding, other: Finding) -> None:
    assert one.key == other.key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Finding("entity", "", "Ann"), Finding("entity", "", "Anna")),
        (Finding("relation", "", "a b", "c", "d"), Finding("relation", "", "a", "b c", "d")),
        (Finding("fact", "x" * 3_000), Finding("fact", "x" * 2_999 + "y")),
        (Finding("entity", "", "?!"), Finding("entity", "", "!?")),
        (Finding("entity", "", "मीना"), Finding("entity", "", "मोना")),  # Meena and Mona.
        (Finding("fact", "อาหารดี"), Finding("fact", "อาหารดู")),
    ],
)
def test_different_things_have_different_keys(one: Finding, other: Finding) -> None:
    assert one.key != other.key


def test_a_key_is_short_however_long_the_text() -> None:
    assert len(Finding("fact", "word " * 1_000).key) <= 200


def test_words_are_letters_and_digits_in_lower_case() -> None:
    assert words("It's 3.14 O'Clock, ann_lee@EXAMPLE.com — Ærø") == [
        "it", "s", "3", "14", "o", "clock", "ann", "lee", "example", "com", "ærø",
    ]  # fmt: skip
    assert words("x" * 100) == ["x" * 64]
    assert words("東京 Tokyo") == ["東", "京", "tokyo"]
    assert words("मीना से मिलो।") == ["मीना", "से", "मिलो"]
    assert words("ที่นี่") == ["ที่", "นี่"]


def test_what_is_said_is_found_by_all_of_its_words() -> None:
    assert Finding("relation", "at work", "Ann", "knows", "Ben").words == "ann knows ben at work"


def test_what_is_looked_for_leaves_out_words_that_begin_every_other_word() -> None:
    assert sought("Is it a harp, a HARP of 7 strings?") == ["harp", "7", "strings"]
    assert sought("is it") == ["is", "it"]
    assert sought("東京") == ["東", "京"]
    assert len(sought(" ".join(f"word{n}" for n in range(100)))) == SOUGHT_MAX


@given(st.text())
def test_a_line_is_one_line(text: str) -> None:
    shown = line(text, 50)

    assert len(shown) <= 50
    assert len(shown.splitlines()) <= 1
    assert shown.isprintable() or " " in shown or any(joiner in shown for joiner in "\u200c\u200d")


def test_a_line_keeps_the_joiners_that_words_are_spelt_with() -> None:
    persian, bengali = "\u0645\u06cc\u200c\u06a9\u0646\u0645", "\u09b0\u200d\u09cd\u09af\u09be"

    assert line(f"{persian}\n{bengali}") == f"{persian} {bengali}"
    assert line("\u0645\u06cc\u200c\u200c\u200d\u06a9\u0646\u0645") == persian
    assert line("\u200cpass\u200dword\u200b \u200c") == "password"
