"""JSON Schema in fewer forms: one way to say each thing, which every vendor's dialect knows."""

from collections.abc import Mapping
from typing import cast

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.tools.coerce import resolve
from milepost.tools.signature import INVALID_TOOL
from milepost.tools.unions import kind_of

Part = dict[str, Json]

# Stands for any value where a vendor wants a type.
SCALARS: list[Json] = [
    {"type": "string"}, {"type": "number"}, {"type": "boolean"}, {"type": "null"},
]  # fmt: skip

_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
# What belongs to one type, when a schema names several.
_OF_KIND = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
    "object": (
        "properties", "required", "additionalProperties", "minProperties", "maxProperties",
    ),
}  # fmt: skip


class Inexpressible(Exception):  # noqa: N818 - a finding; it becomes a ToolValidationError
    """A vendor cannot say this; `where` is the parameter's path."""

    def __init__(self, where: str, issue: str) -> None:
        super().__init__(issue)
        self.where = where
        self.issue = issue

    def to_error(self, tool: str, vendor: str) -> ToolValidationError:
        """Return the error that names tool, parameter and vendor."""
        return ToolValidationError(
            f"tool {tool!r} cannot be declared to {vendor}: parameter {self.where!r} {self.issue}",
            code=INVALID_TOOL,
        )


def simplified(part: Json, document: Mapping[str, Json], where: str) -> Part:
    """Return `part` with a `$ref`, an `anyOf`, one `type`, or none of them for any value.

    `const` becomes an `enum`, `oneOf` an `anyOf`, `allOf` is merged, and several types, or an enum
    of several, become alternatives.
    """
    if not isinstance(part, dict):
        return {}
    part = _merged(part, document, where)
    if "const" in part:
        part["enum"] = [part.pop("const")]
    if "oneOf" in part:
        part["anyOf"] = part.pop("oneOf")
    if "anyOf" in part or "$ref" in part:
        return part
    kinds = _kinds(part)
    return _of_kinds(part, kinds) if kinds else part


def nullable(part: Part) -> Part:
    """Return `part`, or null, with the description where it was."""
    branches = part.get("anyOf")
    if part.get("type") == "null" or (isinstance(branches, list) and {"type": "null"} in branches):
        return part
    inner = {key: value for key, value in part.items() if key != "description"}
    alternatives = branches if isinstance(branches, list) else [inner]
    outer = {"description": part["description"]} if "description" in part else {}
    return {"anyOf": [*alternatives, {"type": "null"}], **outer}


def items_of(array: Part) -> tuple[Json, list[str]]:
    """Return one schema for all items of `array`, and in words where a tuple has which."""
    prefix = _list(array.get("prefixItems"))
    if not prefix:
        return array.get("items", {}), []
    distinct = [item for n, item in enumerate(prefix) if item not in prefix[:n]]
    listed = ", ".join(kind_of(item) for item in prefix)
    items: Json = distinct[0] if len(distinct) == 1 else {"anyOf": distinct}
    return items, [f"its items in this order: {listed}"]


def _merged(part: Part, document: Mapping[str, Json], where: str) -> Part:
    """Return `part` and all of its `allOf` in one."""
    whole = {key: value for key, value in part.items() if key != "allOf"}
    for other in _list(part.get("allOf")):
        added = _merged(other, document, where) if isinstance(other, dict) else {}
        if "$ref" in added:
            target = resolve(document, str(added.pop("$ref")))
            added = {**_merged(cast("Part", target), document, where), **added}
        if clash := [key for key in added if key in whole and whole[key] != added[key]]:
            raise Inexpressible(where, f"must satisfy several schemas that differ in {clash[0]}")
        whole |= added
    return whole


def _of_kinds(part: Part, kinds: list[str]) -> Part:
    owned = {key for keys in _OF_KIND.values() for key in keys} | {"enum", "type"}
    outer = {key: value for key, value in part.items() if key not in owned}
    branches: list[Json] = [_of_kind(part, kind) for kind in kinds]
    if len(branches) == 1:
        return {**cast("Part", branches[0]), **outer}
    return {"anyOf": branches, **outer}


def _of_kind(part: Part, kind: str) -> Part:
    owned = _OF_KIND.get("number" if kind == "integer" else kind, ())
    branch: Part = {"type": kind, **{key: part[key] for key in owned if key in part}}
    if "enum" in part and kind != "null":
        fitting = {"integer", "number"} if kind == "number" else {kind}
        branch["enum"] = [v for v in _list(part["enum"]) if _KINDS.get(type(v)) in fitting]
    return branch


def _kinds(part: Part) -> list[str]:
    """Return the types of `part`, also where it does not name them, as in schemas by hand."""
    match part:
        case {"type": str(kind)}:
            return [kind]
        case {"type": list(kinds)}:
            return [str(kind) for kind in kinds]
        case {"enum": list(values)}:
            return [*dict.fromkeys(_KINDS.get(type(value), "object") for value in values)]
        case _:
            spoken_of = (kind for kind, keys in _OF_KIND.items() if part.keys() & set(keys))
            return [*spoken_of][:1]


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
