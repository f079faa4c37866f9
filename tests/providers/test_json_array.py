"""The items of a JSON array, wherever its chunks are cut."""

from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.errors import ProviderError
from milepost.providers.json_array import JsonArrayItems
from milepost.providers.sse import SSE_LINE_BYTES_MAX

ITEMS: list[Any] = [
    {"text": 'a "quoted" word, a \\ and a } in it'},
    {"in": {"deep": [1, [2], "]"]}},
    [],
    {},
    {"end": "\\\\"},
]
STREAM = b"[" + b"\r\n,".join(orjson.dumps(item) for item in ITEMS) + b"]\n"


def read(*chunks: bytes) -> list[Any]:
    array = JsonArrayItems()
    items = [item for chunk in chunks for item in array.feed(chunk)] + array.end()
    return [orjson.loads(item) for item in items]


@given(st.lists(st.integers(0, len(STREAM)), max_size=30).map(sorted))
def test_it_does_not_matter_where_the_stream_is_cut(cuts: list[int]) -> None:
    borders = [0, *cuts, len(STREAM)]

    assert read(*(STREAM[start:end] for start, end in pairwise(borders))) == ITEMS


@given(st.lists(st.dictionaries(st.text(), st.text() | st.lists(st.text()), max_size=3)))
def test_every_array_is_cut_into_its_items_byte_by_byte(items: list[Any]) -> None:
    stream = orjson.dumps(items, option=orjson.OPT_INDENT_2)

    assert read(*(stream[n : n + 1] for n in range(len(stream)))) == items


def test_an_item_comes_as_soon_as_it_is_whole() -> None:
    array = JsonArrayItems()

    assert array.feed(b'[{"a": 1}') == [b'{"a": 1}']
    assert array.feed(b', {"b"') == []
    assert array.feed(b": 2}") == [b'{"b": 2}']


@pytest.mark.parametrize(
    ("stream", "items"),
    [
        (b"[]", []),
        (b"[", []),
        (b'[{"a": ', []),
        (b'["[{", 1, {"a": 1}]', [{"a": 1}]),
        (b'[{"a": 1}] {"b": 2}', [{"a": 1}]),
        (b']]]}}[{"a": 1}', []),
    ],
)
def test_what_is_no_whole_item_of_the_array_is_skipped(stream: bytes, items: list[Any]) -> None:
    assert read(stream) == items


def test_an_item_without_end_is_an_error() -> None:
    array = JsonArrayItems()
    array.feed(b'[{"a": "')
    array.feed(b"x" * (SSE_LINE_BYTES_MAX // 2))

    with pytest.raises(ProviderError, match=f"an item of more than {SSE_LINE_BYTES_MAX} bytes"):
        array.feed(b"x" * (SSE_LINE_BYTES_MAX // 2))


def test_what_stands_between_items_is_not_kept() -> None:
    array = JsonArrayItems()
    array.feed(b"[" + b" " * SSE_LINE_BYTES_MAX)
    array.feed(b'"' + b"x" * SSE_LINE_BYTES_MAX)

    assert array.feed(b'\\" {", {"a": 1}') == [b'{"a": 1}']
