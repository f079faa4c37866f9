"""A JSON Schema as Gemini takes one, for arguments and for answers.

It knows a part of JSON Schema (`responseJsonSchema` in https://ai.google.dev/api/generate-content)
and passes over the rest in silence, so the rest is said in words. A reference stands alone.
"""

from collections.abc import Mapping
from typing import cast

from milepost.core.json import Json
from milepost.core.json_schema import mapped
from milepost.core.schema_words import reduced

_KNOWN = frozenset(
    {
        "$anchor", "$defs", "$id", "$ref", "additionalProperties", "anyOf", "enum", "format",
        "items", "maxItems", "maximum", "minItems", "minimum", "oneOf", "prefixItems",
        "properties", "propertyOrdering", "required", "title", "type",
    }
)  # fmt: skip
_OLD_PLACE, _PLACE = "#/definitions/", "#/$defs/"


def gemini_schema(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return `schema` with nothing in it that Gemini would not read."""
    return cast("dict[str, Json]", _part(dict(schema)))


def _part(part: Json) -> Json:
    if not isinstance(part, dict):
        return part
    whole = _respelt({key: mapped(key, value, _part) for key, value in part.items()})
    known = reduced(whole, _KNOWN if _has_plain_enum(whole) else _KNOWN - {"enum"})
    return _with_reference_alone(known)


def _respelt(part: dict[str, Json]) -> dict[str, Json]:
    """Return `part` with the words that Gemini has for some that it does not know."""
    if "definitions" in part:
        part["$defs"] = {**_dict(part.pop("definitions")), **_dict(part.get("$defs"))}
    if "const" in part:
        part["enum"] = [part.pop("const")]
    match part:
        case {"$ref": str(place)} if place.startswith(_OLD_PLACE):
            part["$ref"] = _PLACE + place.removeprefix(_OLD_PLACE)
        case {"allOf": [only]} if "anyOf" not in part:
            part["anyOf"] = [only]
            del part["allOf"]
        case _:
            pass  # All of it is in words that Gemini knows, or in none that it has.
    return part


def _has_plain_enum(part: Mapping[str, Json]) -> bool:
    choices = part.get("enum")
    return isinstance(choices, list) and all(
        isinstance(choice, str | int | float) and not isinstance(choice, bool) for choice in choices
    )


def _with_reference_alone(part: dict[str, Json]) -> dict[str, Json]:
    beside = {key: value for key, value in part.items() if not key.startswith("$")}
    if "$ref" not in part or not beside:
        return part
    return {"anyOf": [{"$ref": part["$ref"]}], **beside, **_definitions(part)}


def _definitions(part: Mapping[str, Json]) -> dict[str, Json]:
    return {"$defs": part["$defs"]} if "$defs" in part else {}


def _dict(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}
