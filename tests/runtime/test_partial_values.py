"""What can be read of a structured answer while it is being written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.json import Json, clean
from milepost.runtime.partial_values import PARTIAL_CHARS_MAX, partial_value

LEAVES = st.none() | st.booleans() | st.integers(-999, 999) | st.text(max_size=8)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{", {}),
        ('{"city": "Ly', {"city": "Ly"}),
        ('{"city": "Lyon", "days', {"city": "Lyon"}),
        ('{"days": [{"high": 2', {"days": [{"high": 2}]}),
        (' \n["a", tr', ["a"]),
        ('```json\n{"a": "b', {"a": "b"}),
        ('```\n{"a": 1}\n```', {"a": 1}),
        ('{"a": 1} That is it.', {"a": 1}),
        ('{"n": 123456789012345678901', {"n": "123456789012345678901"}),
    ],
)
def test_a_value_is_read_as_far_as_it_is_written(text: str, value: Json) -> None:
    assert partial_value(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "  ", "``", "```js", "```json\n", "Here: {}", "42", '"text', "{'a': 1", "[NaN", "{,"],
)
def test_what_does_not_begin_as_json_does_has_no_value(text: str) -> None:
    assert partial_value(text) is None


def test_nesting_without_end_has_no_value() -> None:
    assert partial_value("[" * 10_000) is None


def test_a_text_beyond_the_bound_is_not_looked_at() -> None:
    text = '{"a": "' + "x" * PARTIAL_CHARS_MAX

    assert partial_value(text[:PARTIAL_CHARS_MAX]) is not None
    assert partial_value(text) is None


@given(VALUES.filter(lambda value: isinstance(value, list | dict)))
def test_whatever_is_cut_off_can_be_read_and_the_whole_is_the_value(value: Json) -> None:
    text = json.dumps(value, ensure_ascii=False)

    read = [partial_value(text[:end]) for end in range(1, len(text) + 1)]

    assert all(type(each) is type(value) for each in read)
    assert read[-1] == clean(json.loads(text))
