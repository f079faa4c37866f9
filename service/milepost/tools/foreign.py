"""JSON Schemas that others wrote, in the words that are judged here.

What is left out is judged on the other side, which must check its own input anyway: a schema that
is read as wider than it is costs the model a refusal, one that is not read costs the whole tool.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from milepost.core.json import DEPTH_MAX, Json
from milepost.tools.ready import UNJUDGED

Rename = Callable[[str], str]

# What goes wrong in reading a schema that is none.
UNREADABLE = (AttributeError, KeyError, RecursionError, TypeError, ValueError)

# Remarks that no model needs, or that only a generator of code does.
_REMARKS = frozenset(
    {
        "$schema", "$id", "$anchor", "$comment", "discriminator", "xml", "externalDocs", "example",
        "examples", "deprecated", "readOnly", "writeOnly", "nullable",
    }
)  # fmt: skip
# Some expressions take time without end to match, and nobody here has read these.
_DROPPED = _REMARKS | UNJUDGED | {"pattern"}
_NAMED = frozenset({"properties", "$defs", "definitions"})
_LISTED = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})


def understood(schema: Mapping[str, Any], rename: Rename = str, depth: int = 0) -> dict[str, Json]:
    """Return `schema` without what is not judged; `rename` says what each `$ref` is called now.

    Raises `ValueError` for one that is nested too deep.
    """
    if depth > DEPTH_MAX:
        raise ValueError(f"a schema is nested deeper than {DEPTH_MAX} levels")
    kept: dict[str, Json] = {}
    for key, value in schema.items():
        if key not in _DROPPED and not key.startswith("x-"):
            kept[key] = _part(key, value, rename, depth + 1)
    if isinstance(kept.get("items"), list):
        kept["prefixItems"] = kept.pop("items")
    if "patternProperties" in schema:
        kept["additionalProperties"] = True  # What those patterns named is among the rest now.
    _modernize(schema, kept)
    _overlook(kept)
    return kept


def _part(key: str, value: Any, rename: Rename, depth: int) -> Json:
    if key == "$ref":
        return rename(str(value))
    if key in _NAMED and isinstance(value, Mapping):
        return {name: _schema(part, rename, depth) for name, part in value.items()}
    if key in {*_LISTED, "items"} and isinstance(value, list):
        return [_schema(part, rename, depth) for part in value]
    if key in {"items", "additionalProperties"}:
        return _schema(value, rename, depth)
    return cast("Json", value)


def _schema(part: Any, rename: Rename, depth: int) -> Json:
    return understood(part, rename, depth) if isinstance(part, Mapping) else cast("Json", part)


def _modernize(schema: Mapping[str, Any], kept: dict[str, Json]) -> None:
    """Say in 2020-12's words what OpenAPI 3.0 says in its own."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if not isinstance(schema.get(exclusive), bool):
            continue
        if kept.pop(exclusive) and bound in kept:
            kept[exclusive] = kept.pop(bound)
    if schema.get("nullable") is not True:
        return
    if isinstance(kept.get("type"), str):
        kept["type"] = [kept["type"], "null"]
    elif "$ref" in kept:
        kept["anyOf"] = [{"$ref": kept.pop("$ref")}, {"type": "null"}]
    if isinstance(kept.get("enum"), list):
        kept["enum"] = [*cast("list[Json]", kept["enum"]), None]


def _overlook(kept: dict[str, Json]) -> None:
    """Drop slips that many documents have and that change nothing."""
    if not isinstance(kept.get("description", ""), str):
        del kept["description"]  # YAML reads `description:` as null.
    match kept.get("required"):
        case bool():
            del kept["required"]  # Said of a property itself, as in drafts before the fourth.
        case list() as names if all(isinstance(name, str) for name in names):
            kept["required"] = list(dict.fromkeys(map(str, names)))
        case _:
            pass
