"""Tools for OpenAI with `strict`, where the model cannot but keep to the schema.

The rules: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas: every
object names all its properties, requires each, and takes no other; what is optional is nullable;
`anyOf` anywhere but at the top; `$defs` and `$ref`, also recursive, with nothing beside a `$ref`;
of the constraints only those in `_KEPT`, and the formats in `_FORMATS`; limits as below.

A null stands for what was left out, which validation takes it for, unless the tool itself is
strict. A tuple is shown as an array of any of its items' types.
"""

from collections.abc import Iterator, Mapping
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
    nullable,
    simplified,
)

DEPTH_MAX = 10
PROPERTIES_MAX = 5_000
ENUM_VALUES_MAX = 1_000

_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)
_KEPT = {
    "string": ("type", "enum", "pattern", "format"),
    "integer": (
        "type", "enum", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    ),
    "array": ("type", "minItems", "maxItems", "items"),
    "object": ("type", "properties", "required", "additionalProperties"),
}  # fmt: skip
_LOOKAROUND = ("(?=", "(?!", "(?<")


def openai_strict(schema: ToolSchema) -> dict[str, Json]:
    """Return the entry for `tools`; ToolValidationError, in words, for what strict cannot say."""
    root, taken = without_combinators(schema.parameters)
    words = str(reduced(taken, ()).get("description", ""))
    try:
        parameters = _Strict(schema.parameters).root(root)
        _check_limits(parameters)
    except Inexpressible as finding:
        raise finding.to_error(schema.name, "OpenAI with strict") from None
    function = described({}, schema.description, [words] if words else [])
    return {
        "type": "function",
        "function": {
            "name": schema.name, **function, "strict": True, "parameters": parameters,
        },
    }  # fmt: skip


class _Strict:
    """The translation of one document."""

    def __init__(self, document: Mapping[str, Json]) -> None:
        self._document = document

    def root(self, root: Part) -> Part:
        """Return the schema of the arguments."""
        definitions = {
            name: self._part(part, name)
            for key in ("$defs", "definitions")
            for name, part in cast("Part", root.get(key, {})).items()
        }
        closed = self._object({**root, "properties": root.get("properties", {})}, "")
        return {**closed, "$defs": cast("Json", definitions)} if definitions else closed

    def _part(self, part: Json, where: str) -> Part:
        part = simplified(part, self._document, where)
        if "$ref" in part:
            return self._reference(part, where)
        if "anyOf" in part:
            branches = [self._part(branch, where) for branch in cast("list[Json]", part["anyOf"])]
            flat = [inner for branch in branches for inner in _alternatives(branch)]
            return reduced({**part, "anyOf": cast("Json", flat)}, ("anyOf",))
        match part.get("type"):
            case "object":
                return self._object(part, where)
            case "array":
                return self._array(part, where)
            case "null" | "boolean" as kind:
                return reduced(part, ("type",) if kind == "null" else ("type", "enum"))
            case "string":
                return reduced(part, _kept_of_string(part))
            case "integer" | "number":
                return reduced(part, _KEPT["integer"])
            case _:
                return reduced({**part, "anyOf": SCALARS}, ("anyOf",))

    def _reference(self, part: Part, where: str) -> Part:
        """Keep a bare reference; put what is referred to in the place of one with company."""
        reference = str(part["$ref"])
        if len(part) == 1:
            return {"$ref": reference.replace("#/definitions/", "#/$defs/", 1)}
        beside = {key: value for key, value in part.items() if key != "$ref"}
        target = cast("Part", resolve(self._document, reference))
        return self._part({**target, **beside}, where)

    def _object(self, part: Part, where: str) -> Part:
        properties = cast("Part", part.get("properties") or {})
        rest = part.get("additionalProperties", not properties)
        if where and not properties and rest is not False:
            raise Inexpressible(
                where,
                "takes any keys, which strict schemas cannot say; name them with a TypedDict or a "
                "model, or declare the tool without strict",
            )
        required = cast("list[str]", part.get("required", []))
        told = {}
        for name, inner in properties.items():
            path = f"{where}.{name}" if where else name
            whole = self._part(inner, path)
            told[name] = whole if name in required else nullable(whole)
        closed: Part = {
            **part,
            "properties": cast("Json", told),
            "required": [*told],
            "additionalProperties": False,
        }
        return reduced(closed, _KEPT["object"])

    def _array(self, part: Part, where: str) -> Part:
        items, words = items_of(part)
        whole = {key: value for key, value in part.items() if key != "prefixItems"}
        told = reduced({**whole, "items": self._part(items, f"{where}[]")}, _KEPT["array"])
        return described(told, str(told.get("description", "")), words)


def _alternatives(part: Part) -> list[Json]:
    """Return those of an `anyOf` that says nothing else, or `part`."""
    return cast("list[Json]", part["anyOf"]) if part.keys() == {"anyOf"} else [part]


def _kept_of_string(part: Part) -> tuple[str, ...]:
    kept = [*_KEPT["string"]]
    if part.get("format") not in _FORMATS:
        kept.remove("format")
    if any(mark in str(part.get("pattern", "")) for mark in _LOOKAROUND):
        kept.remove("pattern")
    return tuple(kept)


def _check_limits(parameters: Part) -> None:
    parts = [*_parts(parameters, 0)]
    depth = max(depth for _, depth in parts)
    properties = sum(len(cast("Part", part.get("properties", {}))) for part, _ in parts)
    values = sum(len(cast("list[Json]", part.get("enum", []))) for part, _ in parts)
    for found, limit, what in (
        (depth, DEPTH_MAX, "levels of nesting"),
        (properties, PROPERTIES_MAX, "properties"),
        (values, ENUM_VALUES_MAX, "values in its enums"),
    ):
        if found > limit:
            raise Inexpressible("*", f"has {found} {what}; strict takes {limit}")


def _parts(part: Json, depth: int) -> Iterator[tuple[Part, int]]:
    """Yield every schema in `part`, with the number of objects around it and itself."""
    if not isinstance(part, dict):
        return
    depth += part.get("type") == "object"
    yield part, depth
    for key in ("properties", "$defs"):
        for inner in cast("Part", part.get(key, {})).values():
            yield from _parts(inner, depth)
    for inner in (*cast("list[Json]", part.get("anyOf", [])), part.get("items")):
        yield from _parts(inner, depth)
