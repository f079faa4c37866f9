"""What a tool returned, as JSON."""

import itertools
import math
from collections import OrderedDict, deque, namedtuple
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import orjson
import pytest
from pydantic import BaseModel

from milepost.core.errors import ToolError
from milepost.core.json import Json
from milepost.tools import as_text
from milepost.tools.results import RESULT_CHARS_MAX, Pieces, to_result


class Colour(StrEnum):
    """A colour."""

    RED = "red"


class Pair(Enum):
    """Two values in one."""

    BOTH = (1, b"\xff")


@dataclass
class Point:
    """A place."""

    kind: ClassVar[str] = "point"
    x: Decimal
    colour: Colour = Colour.RED


class Model(BaseModel):
    """A day."""

    day: date
    points: list[Point] = []


class Rows(BaseModel):
    """Numbers, read only as they are looked at."""

    numbers: Iterable[int]


class Table(BaseModel):
    """Rows inside of something."""

    rows: Rows


class Celsius(float):
    """A float that orjson does not know, such as those of numpy."""


class Count(int):
    """An integer of somebody's own."""


class Name(str):
    """A text of somebody's own."""

    __slots__ = ()


Named = namedtuple("Named", ["a", "b"])


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (None, None),
        ("text", "text"),
        ("", ""),
        (True, True),
        (3, 3),
        (2.5, 2.5),
        (Celsius(2.5), 2.5),
        (Count(3), 3),
        ([Name("a"), {Name("b"): Celsius(1)}], ["a", {"b": 1.0}]),
        (2**64, str(2**64)),
        ({"a": [1, (2, 3)]}, {"a": [1, [2, 3]]}),
        ({1: "a", Colour.RED: "b", None: "c"}, {"1": "a", "red": "b", "None": "c"}),
        (OrderedDict(a=deque([1])), {"a": [1]}),
        (range(3), [0, 1, 2]),
        ({"b", "a", "c"}, ["a", "b", "c"]),
        (frozenset({2, 1}), [1, 2]),
        (Named(1, "b"), [1, "b"]),
        (Colour.RED, "red"),
        (Pair.BOTH, [1, {"base64": "/w==", "bytes": 1}]),
        (Point(Decimal("1.50")), {"x": "1.50", "colour": "red"}),
        (
            Model(day=date(2026, 1, 2), points=[Point(Decimal(1))]),
            {"day": "2026-01-02", "points": [{"x": "1", "colour": "red"}]},
        ),
        (datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "2026-01-02T03:04:00Z"),
        (timedelta(seconds=90), "PT1M30S"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Path("/tmp/a"), "/tmp/a"),
        (b"abc", {"base64": "YWJj", "bytes": 3}),
        (bytearray(b"\xff\xfe"), {"base64": "//4=", "bytes": 2}),
        ("a\x00\udfff", "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_a_value_has_its_json(value: object, result: Json) -> None:
    converted = to_result(value)

    assert converted == result
    assert orjson.loads(orjson.dumps(converted)) == result


@pytest.mark.parametrize(
    "value",
    [math.nan, [math.inf], object(), {"a": {object()}}, lambda: None, 10**5000, Point, Pair],
    ids=["nan", "inf", "object", "set", "function", "digits", "class", "enum"],
)
def test_a_value_without_json_is_a_tool_error(value: object) -> None:
    with pytest.raises(ToolError, match="it returned what cannot be sent as JSON"):
        to_result(value)


def test_a_value_that_contains_itself_is_a_tool_error() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(ToolError, match="nested deeper than 64 levels, or in itself"):
        to_result(endless)


def test_a_text_as_long_as_the_limit_is_whole() -> None:
    text = "x" * RESULT_CHARS_MAX

    assert to_result(text) == text


def test_a_longer_text_is_cut_and_says_so() -> None:
    result = to_result("x" * 50_000_000)

    assert isinstance(result, str)
    assert result.startswith("x" * RESULT_CHARS_MAX + "\n[cut: the result has 50000000 characters")
    assert len(result) < RESULT_CHARS_MAX + 100


@pytest.mark.parametrize(
    "value",
    [
        ["word"] * 1_000_000,
        {"text": "x" * 5_000_000},
        {str(number): number for number in range(100_000)},
        [b"x" * 1_000_000],
    ],
    ids=["items", "text", "keys", "bytes"],
)
def test_a_larger_value_is_cut_as_text_and_says_so(value: object) -> None:
    result = to_result(value)

    assert isinstance(result, str)
    assert result.endswith(
        f"[cut: the result has more than {RESULT_CHARS_MAX} characters, "
        f"the first {RESULT_CHARS_MAX} are shown]"
    )
    assert len(result) < RESULT_CHARS_MAX + 200


def test_an_iterator_inside_a_result_is_read() -> None:
    assert to_result({"rows": (number for number in range(3))}) == {"rows": [0, 1, 2]}


def test_an_iterator_without_end_is_read_as_far_as_there_is_room() -> None:
    numbers = itertools.count()

    result = to_result({"rows": [numbers]})

    assert isinstance(result, str)
    assert result.endswith("are shown]")
    assert next(numbers) < RESULT_CHARS_MAX


@pytest.mark.parametrize("nested", [False, True])
def test_a_model_with_a_field_that_is_an_iterator_is_a_tool_error(nested: bool) -> None:
    rows = Rows(numbers=itertools.count())

    with pytest.raises(ToolError, match=r"Rows\.numbers is an iterator; make it a list"):
        to_result(Table(rows=rows) if nested else rows)


def test_of_a_set_beyond_the_limit_no_more_is_sorted_than_there_is_room_for() -> None:
    shown = 0

    class Member:
        def __repr__(self) -> str:
            nonlocal shown
            shown += 1
            return "member"

    with pytest.raises(ToolError):
        to_result({Member() for _ in range(2 * RESULT_CHARS_MAX)})

    assert shown <= RESULT_CHARS_MAX + 1


def test_a_memoryview_of_any_shape_is_its_bytes() -> None:
    assert to_result(memoryview(b"abcdef").cast("B", (2, 3))) == {"base64": "YWJjZGVm", "bytes": 6}


def test_pieces_are_joined_up_to_the_limit_and_all_are_taken() -> None:
    pieces = Pieces()
    for _ in range(3):
        pieces.add("x" * (RESULT_CHARS_MAX // 2))

    text = pieces.join()

    assert text.startswith("x" * RESULT_CHARS_MAX + "\n[cut: the result has 150000 characters")


@pytest.mark.parametrize(
    ("result", "text"),
    [(None, ""), ("as it is", "as it is"), ({"a": [1, "ø"]}, '{"a":[1,"ø"]}'), (True, "true")],
)
def test_a_model_reads_a_result_as_text(result: Json, text: str) -> None:
    assert as_text(result) == text
