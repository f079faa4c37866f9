"""What a tool returned, as JSON of a bounded size."""

import base64
import dataclasses
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import islice
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from milepost.core.errors import ToolError
from milepost.core.json import DEPTH_MAX, Json, UnencodableError, clean, clean_text
from milepost.tools.context import Progress, unheard
from milepost.tools.lookup import Found
from milepost.tools.references import Revealed, Sieve
from milepost.tools.typed_results import ToolResult, members

RESULT_CHARS_MAX = 100_000

# About what a number, a key's quotes or a bracket takes; the bound needs no more exactness.
_SMALL_CHARS = 4


def to_result(value: object, revealed: Revealed | None = None) -> Json:
    """Return `value` as JSON; beyond `RESULT_CHARS_MAX` characters as text that says it was cut.

    What was `revealed` to the tool is hidden, before anything is cut. Raises ToolError, of which
    the tool is the subject, for what has no JSON form.
    """
    if value is None or type(value) is str:
        return clean(_cut(revealed.hide(value) if revealed else value)) if value else value
    if type(value) is Found:
        # Which has all the room.
        return {"kind": Found.kind, "result": to_result(value.result, revealed)}
    conversion = _Conversion(revealed)
    try:
        converted = clean(conversion.convert(value))
    except (ValueError, TypeError, RecursionError, PydanticSerializationError) as error:
        reason = str(error) or type(error).__name__
        raise ToolError(f"it returned what cannot be sent as JSON: {reason}") from error
    if revealed:
        converted = revealed.hide_in(converted)
    if not conversion.exhausted:
        return converted
    return _text(converted)[:RESULT_CHARS_MAX] + _marker(f"more than {RESULT_CHARS_MAX}")


def as_text(result: Json) -> str:
    """Return `result` as a model reads it: text as it is, nothing for null, JSON for the rest."""
    match result:
        case None:
            return ""
        case str():
            return result
        case _:
            return _text(result)


class Pieces:
    """The pieces of a generator, joined. All are taken, up to `RESULT_CHARS_MAX` are kept.

    Each is told to `progress` as it comes. What was `revealed` to the tool is not kept.
    """

    def __init__(self, progress: Progress = unheard, revealed: Revealed | None = None) -> None:
        self._progress = progress
        self._sieve = Sieve(revealed) if revealed else None
        self._kept: list[str] = []
        self._chars = 0

    def add(self, piece: object) -> None:
        """Take the next piece, as text."""
        text = str(piece)
        self._progress(text)
        self._keep(self._sieve.sift(text) if self._sieve else text)

    def join(self) -> str:
        """Return all that was kept, and whether that is all."""
        if self._sieve:
            self._keep(self._sieve.rest())
        text = clean_text("".join(self._kept))
        return text if self._chars <= RESULT_CHARS_MAX else text + _marker(self._chars)

    def _keep(self, text: str) -> None:
        if (room := RESULT_CHARS_MAX - self._chars) > 0:
            self._kept.append(text[:room])
        self._chars += len(text)


class _Conversion:
    """Walks a value until it is converted or the room is used up, however large it is."""

    def __init__(self, revealed: Revealed | None) -> None:
        self._room = RESULT_CHARS_MAX
        self._revealed = revealed
        self._fallback: Callable[[Any], str] | None = None

    @property
    def exhausted(self) -> bool:
        return self._room < 0

    def convert(self, value: Any, depth: int = 0) -> object:
        if depth > DEPTH_MAX:
            raise UnencodableError(f"it is nested deeper than {DEPTH_MAX} levels, or in itself")
        match value:
            case Enum():
                return self.convert(value.value, depth)
            case str():
                return self._take(str.__str__(value))
            case None | bool():
                self._room -= _SMALL_CHARS
                return value
            case int() | float():
                self._room -= _SMALL_CHARS
                return _plain(value)
            case bytes() | bytearray() | memoryview():
                return self._bytes(memoryview(value))
            case Mapping():
                return self._mapping(value, depth)
            case list() | tuple() | deque() | range() | Iterator():
                return self._items(value, depth)
            case set() | frozenset():
                return self._items(_ordered(value, self._room), depth)
            case _:
                return self._object(value, depth)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> object:
        converted = {}
        for key, item in value.items():
            if self.exhausted:
                break
            name = str(key.value if isinstance(key, Enum) else key)
            converted[self._take(name)] = self.convert(item, depth + 1)
        return converted

    def _items(self, value: Iterable[Any], depth: int) -> object:
        converted = []
        for item in value:
            if self.exhausted:
                break
            self._room -= 1
            converted.append(self.convert(item, depth + 1))
        return converted

    def _bytes(self, value: memoryview) -> object:
        if self._revealed:
            value = memoryview(self._revealed.hide_in_bytes(value.tobytes()))
        flat = value if value.ndim == 1 else memoryview(value.tobytes())
        # In base64 they are more characters than bytes: what is beyond the room need not be copied.
        head = bytes(flat[: max(self._room, 0) + 1])
        return {"base64": self._take(base64.b64encode(head).decode()), "bytes": value.nbytes}

    def _object(self, value: object, depth: int) -> object:
        """Convert models, dataclasses, and what pydantic knows: dates, decimals, paths and more."""
        if isinstance(value, BaseModel):
            _refuse_lazy(value)
            return self._mapping(value.model_dump(mode="json"), depth)
        if isinstance(value, ToolResult):
            return self._typed(value, depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = (field.name for field in dataclasses.fields(value))
            return self._mapping({name: getattr(value, name) for name in names}, depth)
        return self._count(to_jsonable_python(value, fallback=self._fallback))

    def _typed(self, value: ToolResult, depth: int) -> object:
        """Convert what tells its kind; what in it has no JSON form is shown as text."""
        before, self._fallback = self._fallback, str
        try:
            return self._mapping(dict(members(value)), depth)
        finally:
            self._fallback = before

    def _count(self, converted: object) -> object:
        self._room -= len(converted) if isinstance(converted, str) else _SMALL_CHARS
        return converted

    def _take(self, text: str) -> str:
        if self._revealed:  # before it is cut, or the beginning of one might be left
            text = self._revealed.hide(text)
        kept = text[: max(self._room, 0)]
        self._room -= len(text) + 2
        return kept


def _plain(number: int | float) -> int | float:
    """Return a number as Python's own: no encoder knows others, such as those of numpy."""
    if type(number) in {int, float}:
        return number
    return int(number) if isinstance(number, int) else float(number)


def _refuse_lazy(model: BaseModel) -> None:
    """Refuse a field that is made only as it is looked at: a dump would know no bound."""
    for name, value in model.__dict__.items():
        if isinstance(value, BaseModel):
            _refuse_lazy(value)
        elif isinstance(value, Iterator):
            raise TypeError(f"{type(model).__name__}.{name} is an iterator; make it a list")


def _ordered(values: Iterable[Any], count_max: int) -> list[Any]:
    """Return a set's members in an order that is the same next time; of too many, only some."""
    some = islice(values, max(count_max, 0) + 1)
    return sorted(some, key=lambda value: (type(value).__name__, repr(value)))


def _cut(text: str) -> str:
    if len(text) <= RESULT_CHARS_MAX:
        return text
    return text[:RESULT_CHARS_MAX] + _marker(len(text))


def _marker(chars: int | str) -> str:
    return f"\n[cut: the result has {chars} characters, the first {RESULT_CHARS_MAX} are shown]"


def _text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
