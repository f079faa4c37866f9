"""The `data` lines of a byte stream, wherever its chunks are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.errors import ProviderError
from milepost.providers.sse import SSE_LINE_BYTES_MAX, SseLines

STREAM = (
    b': keep-alive\r\nevent: x\r\ndata: {"a":1}\r\n\r\ndata:{"b":2}\n\nrubbish\n\ndata: [DONE]\n\n'
)
PAYLOADS = [b'{"a":1}', b'{"b":2}', b"[DONE]"]


def read(*chunks: bytes) -> list[bytes]:
    lines = SseLines()
    return [payload for chunk in chunks for payload in lines.feed(chunk)] + lines.end()


def test_comments_other_fields_rubbish_and_both_line_ends_are_understood() -> None:
    assert read(STREAM) == PAYLOADS


@given(st.lists(st.integers(0, len(STREAM)), max_size=20).map(sorted))
def test_it_does_not_matter_where_the_stream_is_cut(cuts: list[int]) -> None:
    borders = [0, *cuts, len(STREAM)]
    chunks = [STREAM[start:end] for start, end in pairwise(borders)]

    assert read(*chunks) == PAYLOADS


def test_a_last_line_without_a_line_end_counts() -> None:
    assert read(b"data: 1\n\nda", b"ta: 2") == [b"1", b"2"]


def test_an_empty_data_line_is_nothing() -> None:
    assert read(b"data:\n\ndata: \n\n") == []


def test_a_line_without_end_is_refused_at_its_bound() -> None:
    ten_megabytes = [b"x" * 65_536] * 160

    with pytest.raises(ProviderError, match=f"more than {SSE_LINE_BYTES_MAX} bytes"):
        read(*ten_megabytes)


def test_the_bound_is_on_each_line_not_on_their_sum() -> None:
    line = b"data: " + b"x" * 65_536

    assert len(read(*[line + b"\n"] * 40)) == 40
