"""Texts in JSON, whose escapes hide nothing from those who look at them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.guardrails.escapes import Unescaping, written


def unescaped(*pieces: str) -> str:
    reading = Unescaping()
    return "".join((*map(reading.feed, pieces), reading.finish()))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (r'{"to": "ann\u0040example.com"}', '{"to": "ann@example.com"}'),
        (r'"\u00dcber \ud83d\ude00"', '"Über 😀"'),
        (r'"http:\/\/example.com"', '"http://example.com"'),
        (r'"\\u0040 \\\u0040"', r'"\\u0040 \\@"'),
        (r'"\u0022 \u005c \u000a \n \ud83d \ude00"', r'"\u0022 \u005c \u000a \n \ud83d \ude00"'),
        (r"\u00", r"\u00"),
        (r"\uzzzz \x", r"\uzzzz \x"),
        ("\\", "\\"),
    ],
)
def test_an_escape_is_read_as_the_letter_that_it_is(text: str, read: str) -> None:
    assert unescaped(text) == read
    assert unescaped(*text) == read


def test_what_is_settled_does_not_wait() -> None:
    reading = Unescaping()

    assert [reading.feed(piece) for piece in ("a\\", "u00", "40b", "\\\\", "c")] == [
        "a", "", "@b", "\\\\", "c",
    ]  # fmt: skip


@given(st.text(), st.integers(min_value=1, max_value=9))
def test_the_text_means_what_it_meant_however_it_is_cut(said: str, length: int) -> None:
    text = json.dumps({said: said})

    read = unescaped(*(text[at : at + length] for at in range(0, len(text), length)))

    assert json.loads(read) == {said: said}
    assert read == unescaped(text)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (r'"a\nb\u000Ac\td\r\f\b\u0007"', '"a\nb\nc\td\r\f\b\x07"'),
        (r'"\\n \" \u0022 \u005c"', r'"\\n \" \u0022 \u005c"'),
        ('{\n\t"a": 1\r\n}', '{\x1c\x1e"a": 1\x1d\x1c}'),
        (r'"\u001c"', r'"\u001c"'),
    ],
)
def test_what_lays_a_text_out_is_told_from_what_stands_in_it(text: str, read: str) -> None:
    reading = Unescaping(controls=True)

    assert "".join((*map(reading.feed, text), reading.finish())) == read
    assert json.loads(written(read)) == json.loads(text)


@given(st.text(), st.integers(min_value=0, max_value=2))
def test_what_was_read_is_written_as_it_was(said: str, indent: int) -> None:
    text = json.dumps({said: said}, indent=indent, ensure_ascii=False)
    reading = Unescaping(controls=True)

    assert json.loads(written(reading.feed(text) + reading.finish())) == {said: said}
