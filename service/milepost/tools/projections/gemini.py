"""Tools for Gemini: function declarations in its subset of OpenAPI 3.0.

The rules: https://ai.google.dev/api/caching#Schema: types in capitals, `nullable` instead of a type
null, no `$ref`, no open objects, no tuples, `items` in every array, `enum` for strings alone and
none of them empty, `date-time` the only format of a string, and nothing beside an `anyOf`.
A function of nothing has no `parameters` at all. No output schema is told.

A type that contains itself cannot be declared.
"""

import re
from collections.abc import Mapping
from typing import cast

from milepost.core.json import Json
from milepost.core.json_schema import without_combinators
from milepost.core.model import ToolSchema
from milepost.core.schema_words import described, reduced
from milepost.tools.coerce import resolve
from milepost.tools.projections.parts import (
    SCALARS,
    Inexpressible,
    Part,
    items_of,
    simplified,
)

PARTS_MAX = 2_000

_PROPERTY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_KEPT = {
    "string": ("type", "format", "enum", "minLength", "maxLength", "pattern"),
    "integer": ("type", "minimum", "maximum"),
    "number": ("type", "minimum", "maximum"),
    "array": ("type", "items", "minItems", "maxItems"),
    "object": ("type", "properties", "required", "minProperties", "maxProperties"),
}


def gemini(schema: ToolSchema) -> dict[str, Json]:
    """Return the entry for `functionDeclarations`; ToolValidationError for what Gemini lacks."""
    root, taken = without_combinators(schema.parameters)
    words = str(reduced(taken, ()).get("description", ""))
    declared: Part = {
        "name": schema.name,
        **described({}, schema.description, [words] if words else []),
    }
    if not root.get("properties"):
        return declared
    try:
        return {**declared, "parameters": _Gemini(schema.parameters).object(root, "", ())}
    except Inexpressible as finding:
        raise finding.to_error(schema.name, "Gemini") from None


class _Gemini:
    """The translation of one document, whose references are replaced by what they refer to."""

    def __init__(self, document: Mapping[str, Json]) -> None:
        self._document = document
        self._parts = 0

    def part(self, part: Json, where: str, trail: tuple[str, ...]) -> Part:
        """Return the schema of one value; `trail` holds the references that led to it."""
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise Inexpressible(where, f"makes more than {PARTS_MAX} schemas without references")
        part = simplified(part, self._document, where)
        if "$ref" in part:
            return self._reference(part, where, trail)
        if "anyOf" in part:
            return self._any_of(part, where, trail)
        match part.get("type"):
            case "object":
                return self.object(part, where, trail)
            case "array":
                return self._array(part, where, trail)
            case "string":
                return _string(part)
            case str() as kind:
                return _typed(part, _KEPT.get(kind, ("type",)))
            case _:
                return self._any_of({**part, "anyOf": SCALARS}, where, trail)

    def object(self, part: Part, where: str, trail: tuple[str, ...]) -> Part:
        """Return the schema of an object; what it takes beside its properties is said in words."""
        told = {}
        for name, inner in cast("Part", part.get("properties") or {}).items():
            path = f"{where}.{name}" if where else name
            if not _PROPERTY.fullmatch(name):
                raise Inexpressible(path, "is named otherwise than with letters, digits and _")
            told[name] = self.part(inner, path, trail)
        rest = part.get("additionalProperties")
        words = ["any keys"] if where and not told else []
        if isinstance(rest, dict):
            # Said in words alone: it must be something that could be said at all.
            self.part(rest, f"{where}.*", trail)
            words = [f"any keys, each with {_kind(rest)}"]
        whole = {key: v for key, v in part.items() if key != "additionalProperties"}
        if told:
            whole["properties"] = cast("Json", told)
        else:
            whole.pop("properties", None)
        if not whole.get("required"):
            whole.pop("required", None)
        typed = _typed(whole, _KEPT["object"])
        return described(typed, str(typed.get("description", "")), words)

    def _array(self, part: Part, where: str, trail: tuple[str, ...]) -> Part:
        items, words = items_of(part)
        whole = {key: value for key, value in part.items() if key != "prefixItems"}
        told = _typed({**whole, "items": self.part(items, f"{where}[]", trail)}, _KEPT["array"])
        return described(told, str(told.get("description", "")), words)

    def _reference(self, part: Part, where: str, trail: tuple[str, ...]) -> Part:
        reference = str(part["$ref"])
        if reference in trail:
            raise Inexpressible(
                where,
                f"contains itself ({reference.rpartition('/')[2]}), and Gemini has no references; "
                "bound its depth with a type for each level",
            )
        beside = {key: value for key, value in part.items() if key != "$ref"}
        target = cast("Part", resolve(self._document, reference))
        return self.part({**target, **beside}, where, (*trail, reference))

    def _any_of(self, part: Part, where: str, trail: tuple[str, ...]) -> Part:
        """Return the alternatives with the description in each: Gemini takes nothing beside them.

        One that allows null is its type, nullable.
        """
        outer = str(reduced({**part, "anyOf": []}, ("anyOf",)).get("description", ""))
        branches = [simplified(b, self._document, where) for b in cast("list[Json]", part["anyOf"])]
        solid = [branch for branch in branches if branch.get("type") != "null"]
        if not solid:
            return described({"type": "NULL"}, outer)
        told = [self.part(branch, where, trail) for branch in solid]
        flat = [inner for branch in told for inner in _alternatives(branch)]
        if len(solid) < len(branches):
            flat = [{**branch, "nullable": True} for branch in flat]
        for branch in flat:
            own = str(branch.pop("description", ""))
            branch.update(described({}, outer, [own] if own and outer else []) if outer else
                          described({}, own))  # fmt: skip
        return flat[0] if len(flat) == 1 else {"anyOf": cast("Json", flat)}


def _string(part: Part) -> Part:
    kept = [*_KEPT["string"]]
    if part.get("format") != "date-time":
        kept.remove("format")
    choices = cast("list[Json]", part.get("enum", []))
    if "enum" not in part:
        return _typed(part, kept)
    if "" in choices:
        kept.remove("enum")
        return _typed(part, kept)
    return _typed({**part, "format": "enum"}, [*_KEPT["string"]])


def _typed(part: Part, kept: "tuple[str, ...] | list[str]") -> Part:
    return {**reduced(part, kept), "type": str(part["type"]).upper()}


def _alternatives(part: Part) -> list[Part]:
    return cast("list[Part]", part["anyOf"]) if "anyOf" in part else [part]


def _kind(part: Part) -> str:
    if "$ref" in part:
        return str(part["$ref"]).rpartition("/")[2]
    kinds = [str(branch.get("type", "any value")) for branch in _alternatives(part)]
    return " or ".join(kinds)
