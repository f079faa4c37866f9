"""A JSON Schema that OpenAI holds an answer to with `strict`.

The rules: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas: every
object names all its properties, requires each and takes no other; `anyOf` anywhere but at the top;
`$defs` and `$ref`, also recursive, with nothing beside a `$ref`; every part has a type; of the
constraints only those in `_KEPT`, and the formats in `_FORMATS`.

What fits the strict schema has the shape of the one it was made of. Constraints that strict cannot
say become words for the model, and so does which item of a tuple is which; whoever reads the answer
checks them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import cast

import orjson

from milepost.core.json import Json
from milepost.core.json_schema import without_combinators
from milepost.core.schema_words import described, reduced

DEPTH_MAX = 10
PROPERTIES_MAX = 5_000
ENUM_VALUES_MAX = 1_000
PARTS_MAX = 10_000
REFERENCES_MAX = 64
"""How many of them may be put in place within one another."""

Part = dict[str, Json]

_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)
_SAID = ("type", "title", "enum", "const")
_NUMERIC = ("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_KEPT: Mapping[str, tuple[str, ...]] = {
    "string": ("pattern", "format"),
    "integer": _NUMERIC,
    "number": _NUMERIC,
    "boolean": (),
    "null": (),
    "array": ("items", "minItems", "maxItems"),
    "object": ("properties", "required", "additionalProperties"),
}
# What these say of a value's shape cannot be left to words.
_BEYOND = frozenset(
    {
        "not", "if", "then", "else", "allOf", "anyOf", "oneOf", "$ref", "contains",
        "patternProperties", "propertyNames", "dependentSchemas", "dependentRequired",
        "unevaluatedProperties", "unevaluatedItems", "$dynamicRef",
    }
)  # fmt: skip
# What may stand beside a schema that is put together of others.
_BESIDE = frozenset(
    {
        "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
        "discriminator", "$comment",
    }
)  # fmt: skip
_LOOKAROUND = re.compile(r"\(\?[=!<]")


def strict_schema(schema: Mapping[str, Json]) -> Part | None:
    """Return `schema` as strict takes it, or None for what strict cannot say.

    An optional property becomes a required one where it has a default, may be null or is a list,
    which can be empty, as the vendor's own client does it. Anywhere else the model would have to
    make something up.
    """
    try:
        strict = _Strict(schema).root()
        _check_limits(strict)
    except _Inexpressible:
        return None
    return strict


def is_strict(schema: Mapping[str, Json]) -> bool:
    """Say whether strict takes `schema` as it is."""
    return strict_schema(schema) == schema


class _Inexpressible(Exception):  # noqa: N818 - a finding, which never leaves this module
    """Strict cannot say this."""


class _Strict:
    """The translation of one document."""

    def __init__(self, document: Mapping[str, Json]) -> None:
        self._document = document
        self._parts = 0

    def root(self) -> Part:
        whole = dict(self._document)
        if isinstance(reference := whole.get("$ref"), str):
            # A schema that contains itself begins like this.
            whole = {**self._target(reference), **whole}
            del whole["$ref"]
        plain, alternatives = without_combinators(whole)
        if alternatives or plain.get("type") != "object":
            raise _Inexpressible
        closed = self._object(plain, ())
        definitions = {
            key: {name: self._part(part, ()) for name, part in _parts_of(plain, key).items()}
            for key in ("$defs", "definitions")
            if key in plain
        }
        return {**closed, **cast("Part", definitions)}

    def _part(self, part: Json, within: tuple[str, ...]) -> Part:
        """Return the translation; `within` are the references that were put in place around it."""
        self._parts += 1
        if not isinstance(part, dict) or self._parts > PARTS_MAX:
            raise _Inexpressible
        match _beside(part):
            case beside, {"allOf": [dict() as only]}:
                return self._part({**only, **beside}, within)
            case beside, {"$ref": str(reference)}:
                return self._reference(reference, beside, within)
            case beside, {"anyOf": list(branches)} | {"oneOf": list(branches)}:
                told: Json = [self._part(branch, within) for branch in branches]
                return reduced({**beside, "anyOf": told}, ("title", "anyOf"))
            case _:
                return self._typed(part, within)

    def _typed(self, part: Part, within: tuple[str, ...]) -> Part:
        kinds = _kinds(part)
        if _BEYOND & part.keys():
            raise _Inexpressible
        if "object" in kinds:
            part = self._object(part, within)
        if "array" in kinds:
            part = self._array(part, within)
        kept = {keyword for kind in kinds for keyword in _KEPT[kind]}
        if part.get("format") not in _FORMATS:
            kept.discard("format")
        if _LOOKAROUND.search(str(part.get("pattern", ""))):
            kept.discard("pattern")
        return reduced(part, (*_SAID, *kept))

    def _object(self, part: Part, within: tuple[str, ...]) -> Part:
        if _BEYOND & part.keys() or part.get("additionalProperties", False) is not False:
            raise _Inexpressible
        properties = _parts_of(part, "properties")
        if not properties and "additionalProperties" not in part:
            raise _Inexpressible  # Any object at all; closed it would be none.
        required = _names_in(part)
        named = set(required)
        if any(name not in named and not _may_be_named(p) for name, p in properties.items()):
            raise _Inexpressible
        if not properties.keys() >= named:
            raise _Inexpressible
        told = {name: self._part(inner, within) for name, inner in properties.items()}
        names = required if len(required) == len(told) else list(told)
        closed = {**part, "properties": told, "required": names, "additionalProperties": False}
        return reduced(cast("Part", closed), (*_SAID, *_KEPT["object"]))

    def _array(self, part: Part, within: tuple[str, ...]) -> Part:
        """Return the list; one whose items differ by place is said as one of any of them."""
        places = _list_of(part, "prefixItems")
        items = part.get("items", False) if places else part.get("items")
        every = places if items is False else [*places, items]
        kinds = [
            *{orjson.dumps(kind, option=orjson.OPT_SORT_KEYS): kind for kind in every}.values()
        ]
        one: Json = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        rest = {key: value for key, value in part.items() if key != "prefixItems"}
        told = {**rest, "items": self._part(one, within)}
        words = ["its items differ by place"] if len(kinds) > 1 else []
        return described(told, str(told.get("description", "")), words)

    def _reference(self, reference: str, beside: Part, within: tuple[str, ...]) -> Part:
        """Keep a bare reference; put what is referred to in the place of one with company."""
        target = self._target(reference)
        if not beside or reference in within:
            return {"$ref": reference}
        if len(within) == REFERENCES_MAX:
            raise _Inexpressible  # They lead on and on.
        return self._part({**target, **beside}, (*within, reference))

    def _target(self, reference: str) -> Part:
        """Return what a reference to the document's definitions names."""
        target: Json = dict(self._document)
        beginning, *steps = reference.split("/")
        for step in steps if beginning == "#" and steps else [""]:
            name = step.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, dict) else None
        if not isinstance(target, dict):
            raise _Inexpressible
        return target


def _beside(part: Part) -> tuple[Part, Part]:
    """Return what only annotates `part`, and the one thing that it is put together of, if it is."""
    beside = {key: value for key, value in part.items() if key in _BESIDE - {"discriminator"}}
    rest = {key: value for key, value in part.items() if key not in _BESIDE}
    return beside, rest if len(rest) == 1 else {}


def _parts_of(part: Part, key: str) -> dict[str, Json]:
    parts = part.get(key, {})
    if not isinstance(parts, dict):
        raise _Inexpressible
    return parts


def _list_of(part: Part, key: str) -> list[Json]:
    values = part.get(key, [])
    if not isinstance(values, list):
        raise _Inexpressible
    return values


def _names_in(part: Part) -> list[str]:
    required = _list_of(part, "required")
    names = [name for name in required if isinstance(name, str)]
    if len(names) < len(required):
        raise _Inexpressible
    return names


def _kinds(part: Part) -> list[str]:
    """Return the types that `part` names, which strict insists on."""
    named = part.get("type")
    told = named if isinstance(named, list) else [named]
    kinds = [kind for kind in told if isinstance(kind, str) and kind in _KEPT]
    if not kinds or len(kinds) < len(told):
        raise _Inexpressible
    return kinds


def _may_be_named(part: Json) -> bool:
    """Say whether an optional property has a value that says no more than leaving it out."""
    if not isinstance(part, dict):
        return False
    kinds = part.get("type")
    branches = part.get("anyOf")
    return (
        "default" in part
        or kinds == "null"
        or (kinds == "array" and not part.get("minItems"))
        or (isinstance(kinds, list) and "null" in kinds)
        or (isinstance(branches, list) and any(_may_be_named(branch) for branch in branches))
    )


def _check_limits(schema: Part) -> None:
    parts = [*_every_part(schema, 0)]
    depth = max(depth for _, depth in parts)
    properties = sum(len(_parts_of(part, "properties")) for part, _ in parts)
    values = sum(len(_list_of(part, "enum")) for part, _ in parts)
    if depth > DEPTH_MAX or properties > PROPERTIES_MAX or values > ENUM_VALUES_MAX:
        raise _Inexpressible


def _every_part(part: Json, depth: int) -> Iterator[tuple[Part, int]]:
    """Yield every schema in `part`, with the number of objects around it and itself."""
    if not isinstance(part, dict):
        return
    depth += part.get("type") == "object"
    yield part, depth
    for key in ("properties", "$defs", "definitions"):
        for inner in _parts_of(part, key).values():
            yield from _every_part(inner, depth)
    for inner in (*_list_of(part, "anyOf"), part.get("items")):
        yield from _every_part(inner, depth)
