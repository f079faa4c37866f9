"""The defaults of a function, for what a call of it leaves out: they are a part of the call.

What servers and clients make of what is left out is theirs to say, whatever their schemas declare:
in a request that changes something, it may mean to leave that as it is.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, cast

import orjson

from milepost.core.json import Json
from milepost.tools.coerce import Schema, resolve
from milepost.tools.misfit import Misfit
from milepost.tools.signature import Signature

CHARS_MAX = 1_000_000
"""How much may be put into one call: a list of what is nearly empty could become far longer."""


class _Room:
    """How many characters of defaults a call still has room for, and which it may have.

    `taken` are those that it has, as often as it has them.
    """

    def __init__(self, only: Collection[int] | None) -> None:
        self._left = CHARS_MAX
        self._only = only
        self.taken: list[int] = []

    def has(self, default: "_Default") -> bool:
        """Say whether the call may have that default."""
        return self._only is None or id(default) in self._only

    def take(self, default: "_Default") -> Json:
        """Return a default that belongs to the call alone."""
        self._left -= default.chars
        if self._left < 0:
            raise Misfit("leaves out too much that has defaults; say less in one call")
        self.taken.append(id(default))
        return deepcopy(default.value)


@dataclass(frozen=True, slots=True)
class Filled:
    """Arguments with the defaults of what they left out, and which those are."""

    arguments: dict[str, Json]
    taken: Sequence[int]


@dataclass(frozen=True, slots=True)
class _Default:
    """A default, and how long it is as JSON."""

    value: Json
    chars: int


_Fill = Callable[[Json, _Room], Json]


class Defaults:
    """What a function's schema says of values that are left out; null says nothing.

    They are looked for wherever a schema says what a value is: in objects and lists, behind
    references, and in what may be null instead. Of several alternatives nobody knows which is
    meant, so that nothing is put into those, nor into a default.
    """

    def __init__(self, document: Schema) -> None:
        self._document = document
        self._referred: dict[str, _Fill] = {}
        whole = cast("Json", document)
        fill = self._compile(whole) if _declares_any(whole) else None
        self.declares_any = fill is not None
        self._fill = fill or _as_it_is

    def fill(self, arguments: dict[str, Json], only: Collection[int] | None = None) -> Filled:
        """Return arguments that fit with the defaults of what they leave out, in another dict.

        `only` are the defaults that may be among them, all if None.
        Raises `Misfit` if those are more than `CHARS_MAX` characters.
        """
        room = _Room(only)
        return Filled(cast("dict[str, Json]", self._fill(arguments, room)), room.taken)

    def _compile(self, schema: Json) -> _Fill | None:
        if not isinstance(schema, Mapping):
            return None
        fills = [fill for fill in self._fills(schema) if fill]
        return _chain(fills) if fills else None

    def _fills(self, schema: Schema) -> Iterator[_Fill | None]:
        if "$ref" in schema:
            yield self._behind(str(schema["$ref"]))
        for part in _list(schema.get("allOf")):
            yield self._compile(part)
        for keyword in ("anyOf", "oneOf"):
            values = [part for part in _list(schema.get(keyword)) if part != {"type": "null"}]
            if len(values) == 1:
                yield self._compile(values[0])
        yield self._object(schema)
        yield self._array(schema)

    def _behind(self, reference: str) -> _Fill:
        """Compile what is referred to when it is first needed: a schema may contain itself."""

        def fill(value: Json, room: _Room) -> Json:
            if reference not in self._referred:
                part = resolve(self._document, reference)
                self._referred[reference] = self._compile(part) or _as_it_is
            return self._referred[reference](value, room)

        return fill

    def _object(self, schema: Schema) -> _Fill | None:
        properties = cast("Mapping[str, Json]", schema.get("properties", {}))
        defaults = {name: said for name, part in properties.items() if (said := _default(part))}
        inner = {name: found for name, part in properties.items() if (found := self._compile(part))}
        rest = self._compile(schema.get("additionalProperties"))
        if not (defaults or inner or rest):
            return None

        def fill(value: Json, room: _Room) -> Json:
            if not isinstance(value, dict):
                return value
            filled: dict[str, Json] = {}
            for name, given in value.items():
                part = inner.get(name) if name in properties else rest
                filled[name] = part(given, room) if part else given
            left_out = (each for each in defaults.items() if each[0] not in value)
            more = {name: room.take(default) for name, default in left_out if room.has(default)}
            return {**filled, **more}

        return fill

    def _array(self, schema: Schema) -> _Fill | None:
        prefix = [self._compile(part) for part in _list(schema.get("prefixItems"))]
        rest = self._compile(schema.get("items"))
        if rest is None and not any(prefix):
            return None

        def fill(value: Json, room: _Room) -> Json:
            if not isinstance(value, list):
                return value
            fills = chain(prefix, repeat(rest))
            return [part(item, room) if part else item for item, part in zip(value, fills)]  # noqa: B905 - the fills have no end

        return fill


def defaults_of(signature: Signature) -> Schema:
    """Return what a function's schema would say of its defaults, were it made from the function."""
    said = ((each.name, _said(each.default)) for each in signature.offered if not each.required)
    return {"properties": {name: {"default": default} for name, default in said}}


def _said(default: Any) -> Json:
    """Return a value of Python's in JSON, null where that says something else."""
    try:
        said: Json = orjson.loads(orjson.dumps(default))
        return said if bool(said == default) else None
    except Exception:
        return None  # It has no form in JSON, or cannot be compared with one.


def _declares_any(schema: Json) -> bool:
    """Say whether a part of a schema, however deep, has a default."""
    ahead = [schema]
    while ahead:
        part = ahead.pop()
        if _default(part):
            return True
        if isinstance(part, dict | list):
            ahead.extend(part.values() if isinstance(part, dict) else part)
    return False


def _default(schema: Json) -> _Default | None:
    """Return the default that a schema declares, if it does and JSON can say it."""
    value = schema.get("default") if isinstance(schema, Mapping) else None
    try:
        written = orjson.dumps(value)
    except TypeError:
        return None  # An integer beyond 64 bits: no model could have sent it either.
    # Infinity is written as null.
    said = value is not None and orjson.loads(written) == value
    return _Default(value, len(written)) if said else None


def _as_it_is(value: Json, _: _Room) -> Json:
    return value


def _chain(fills: list[_Fill]) -> _Fill:
    if len(fills) == 1:
        return fills[0]

    def fill(value: Json, room: _Room) -> Json:
        for each in fills:
            value = each(value, room)
        return value

    return fill


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
