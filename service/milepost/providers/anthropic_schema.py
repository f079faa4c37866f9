"""A JSON Schema that the Messages API holds an answer to.

The rules: https://platform.claude.com/docs/en/build-with-claude/structured-outputs: every object
names its properties and takes no other; `anyOf`, `enum` and `const` of plain values, `$ref` to the
document's own definitions, none of them recursive; of the constraints only `minItems` of 0 or 1,
and the formats in `_FORMATS`. It also says how much of what a schema may hold: see `_check_limits`.

Constraints that cannot be said become words for the model; whoever reads the answer checks them.
"""

from collections.abc import Iterator, Mapping
from typing import cast

from milepost.core.json import DEPTH_MAX, Json
from milepost.core.schema_words import reduced

OPTIONAL_MAX = 24
UNIONS_MAX = 16
PARTS_MAX = 2_000

Part = dict[str, Json]

_FORMATS = frozenset(
    {
        "date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid",
    }
)  # fmt: skip
_DEFINITIONS = ("$defs", "definitions")
# What these say of a value's shape cannot be left to words.
_BEYOND = frozenset(
    {
        "allOf", "not", "if", "then", "else", "contains", "prefixItems", "patternProperties",
        "propertyNames", "dependentSchemas", "dependentRequired", "unevaluatedProperties",
        "unevaluatedItems", "$dynamicRef",
    }
)  # fmt: skip


def answer_schema(schema: Mapping[str, Json]) -> Part | None:
    """Return `schema` as the vendor takes it, or None for what it cannot be held to."""
    try:
        told = _Translation(schema).root()
        _check_limits(told)
    except _Inexpressible:
        return None
    return told


class _Inexpressible(Exception):  # noqa: N818 - a finding, which never leaves this module
    """The vendor cannot hold an answer to this."""


class _Translation:
    """The translation of one document."""

    def __init__(self, document: Mapping[str, Json]) -> None:
        self._document = document
        self._parts = 0
        self._ending: set[str] = set()

    def root(self) -> Part:
        plain = {key: part for key, part in self._document.items() if key not in _DEFINITIONS}
        self._require_end(plain)
        definitions: Part = {
            key: {name: self._part(part) for name, part in _parts_of(self._document, key).items()}
            for key in _DEFINITIONS
            if key in self._document
        }
        return {**self._part(plain), **definitions}

    def _part(self, part: Json) -> Part:
        self._parts += 1
        if not isinstance(part, dict) or self._parts > PARTS_MAX:
            raise _Inexpressible
        match part:
            case {"allOf": [dict() as only], **beside}:
                return self._part({**only, **beside})
            case _ if _BEYOND & part.keys():
                raise _Inexpressible
            case {"$ref": str(reference)}:
                return _referring(reference, part)
            case {"anyOf": list(branches), **beside} | {"oneOf": list(branches), **beside}:
                told: Json = [self._part(branch) for branch in branches]
                return reduced({**beside, "anyOf": told}, ("anyOf",))
            case {"enum": list(values)} if all(map(_is_plain, values)):
                return reduced(part, ("enum",))
            case {"const": value} if _is_plain(value):
                return reduced(part, ("const",))
            case _:
                return self._typed(part)

    def _typed(self, part: Part) -> Part:
        match part.get("type"):
            case list(kinds):
                rest = {key: value for key, value in part.items() if key != "type"}
                return self._part({"anyOf": [{**rest, "type": kind} for kind in kinds]})
            case "object":
                return self._object(part)
            case "array":
                items: Json = self._part(part.get("items"))
                kept = ("minItems",) if part.get("minItems") in (0, 1) else ()
                return reduced({**part, "items": items}, ("type", "items", *kept))
            case "string":
                kept = ("format",) if str(part.get("format")) in _FORMATS else ()
                return reduced(part, ("type", *kept))
            case "integer" | "number" | "boolean" | "null":
                return reduced(part, ("type",))
            case _:
                raise _Inexpressible

    def _object(self, part: Part) -> Part:
        properties = _parts_of(part, "properties")
        more = part.get("additionalProperties", bool(properties) or None)
        if not isinstance(more, bool) or not (properties or more is False):
            raise _Inexpressible  # It takes names that nobody knows before.
        if any(name not in properties for name in _required(part)):
            raise _Inexpressible
        told: Json = {name: self._part(inner) for name, inner in properties.items()}
        closed: Part = {**part, "properties": told, "additionalProperties": False}
        return reduced(closed, ("type", "properties", "required", "additionalProperties"))

    def _require_end(self, part: Json, within: tuple[str, ...] = ()) -> None:
        """Refuse a schema that contains itself, and references to what is not there.

        One whose references lead on and on is as good as endless.
        """
        for reference in _references(part):
            if reference in within or len(within) == DEPTH_MAX:
                raise _Inexpressible
            if reference not in self._ending:
                self._require_end(self._target(reference), (*within, reference))
                self._ending.add(reference)

    def _target(self, reference: str) -> Json:
        """Return one of the document's own definitions."""
        match reference.split("/"):
            case ["#", ("$defs" | "definitions") as key, name]:
                target = _parts_of(self._document, key).get(name)
            case _:
                target = None
        if target is None:
            raise _Inexpressible
        return target


def _references(part: Json) -> Iterator[str]:
    match part:
        case list():
            for item in part:
                yield from _references(item)
        case dict():
            if isinstance(reference := part.get("$ref"), str):
                yield reference
            yield from _references([*part.values()])
        case _:
            pass


def _referring(reference: str, part: Part) -> Part:
    """Nothing may stand beside a reference, so what does goes around it."""
    beside = reduced({key: value for key, value in part.items() if key != "$ref"}, ())
    return {"anyOf": [{"$ref": reference}], **beside} if beside else {"$ref": reference}


def _is_plain(value: Json) -> bool:
    return not isinstance(value, (dict, list))


def _parts_of(part: Mapping[str, Json], key: str) -> Part:
    parts = part.get(key, {})
    if not isinstance(parts, dict):
        raise _Inexpressible
    return parts


def _required(part: Part) -> list[str]:
    names = part.get("required", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _Inexpressible
    return cast("list[str]", names)


def _check_limits(schema: Part) -> None:
    parts = [*_every_part(schema)]
    optional = sum(
        name not in _required(part) for part in parts for name in _parts_of(part, "properties")
    )
    unions = sum(len(cast("list[Json]", part.get("anyOf", []))) > 1 for part in parts)
    if optional > OPTIONAL_MAX or unions > UNIONS_MAX:
        raise _Inexpressible


def _every_part(part: Json) -> Iterator[Part]:
    if not isinstance(part, dict):
        return
    yield part
    for key in ("properties", *_DEFINITIONS):
        for inner in _parts_of(part, key).values():
            yield from _every_part(inner)
    for inner in (*cast("list[Json]", part.get("anyOf", [])), part.get("items")):
        yield from _every_part(inner)
