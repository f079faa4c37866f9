"""JSON in answers: whole, fenced, in prose, and nowhere."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.answers import NoJsonError, extract_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("  [1, 2]\n", [1, 2]),
        ('"yes"', "yes"),
        ('Here it is:\n```json\n{"a": 1}\n```\nAnything else?', {"a": 1}),
        ("```\n[1]\n```", [1]),
        ('Sure! {"a": {"b": "}"}} is what you want', {"a": {"b": "}"}}),
        ("The list is [1, 2], as you said", [1, 2]),
        ('I mean {this}, not that: {"a": 2}', {"a": 2}),
        ('```python\nprint("{")\n```\n{"a": 3}', {"a": 3}),
    ],
)
def test_json_is_found_where_it_stands(text: str, value: object) -> None:
    assert extract_json(text) == value


@pytest.mark.parametrize("text", ["", "no", "{", "[1, 2", "{'a': 1}", '{"a": NaN}', "7 of 9"])
def test_what_holds_none_says_so(text: str) -> None:
    with pytest.raises(NoJsonError, match="no JSON object or array"):
        extract_json(text)


def test_a_text_of_braces_alone_is_given_up_soon() -> None:
    with pytest.raises(NoJsonError):
        extract_json("[" * 200_000)


def test_a_fence_with_lines_and_no_end_is_given_up_soon() -> None:
    with pytest.raises(NoJsonError):
        extract_json("```json" + "\n" * 200_000)


@given(VALUES)
def test_whatever_is_json_as_a_whole_is_what_it_is(value: object) -> None:
    assert extract_json(json.dumps(value)) == (
        json.loads(json.dumps(value).replace("\\u0000", "\\ufffd"))
    )


@given(st.dictionaries(st.text("ab"), st.integers(0, 9), min_size=1), st.text("abc \n"))
def test_words_around_it_do_not_matter(value: dict[str, int], words: str) -> None:
    assert extract_json(f"{words} {json.dumps(value)} {words}") == value


def test_what_comes_behind_long_garbage_is_not_looked_for_for_ever() -> None:
    garbage = "[1," * 10 + "1," * 1_000_000

    with pytest.raises(NoJsonError):
        extract_json(garbage + '{"a": 1}')
    assert extract_json(garbage[:20_000] + '{"a": 1}') == {"a": 1}
