"""A JSON Schema, changed all the way down."""

from collections.abc import Callable, Mapping

from milepost.core.json import Json

_COMBINATORS = ("anyOf", "oneOf", "allOf", "$ref")


def with_items(part: Json) -> Json:
    """Return `part` with every array saying something of its items."""
    if not isinstance(part, dict):
        return part
    whole = {key: mapped(key, value, with_items) for key, value in part.items()}
    kinds = part.get("type")
    is_array = kinds == "array" or (isinstance(kinds, list) and "array" in kinds)
    return {**whole, "items": {}} if is_array and "items" not in part else whole


def mapped(key: str, value: Json, change: Callable[[Json], Json]) -> Json:
    """Return what a schema says under `key`, with every schema in it changed."""
    match key, value:
        case (("items" | "additionalProperties"), dict()):
            return change(value)
        case (("anyOf" | "oneOf" | "allOf" | "prefixItems"), list()):
            return [change(part) for part in value]
        case (("properties" | "$defs" | "definitions"), dict()):
            return {name: change(part) for name, part in value.items()}
        case _:
            return value


def without_combinators(
    schema: Mapping[str, Json],
) -> tuple[dict[str, Json], dict[str, Json]]:
    """Return a root without the alternatives that vendors refuse there, and what was taken away."""
    taken = {key: value for key, value in schema.items() if key in _COMBINATORS}
    return {key: value for key, value in schema.items() if key not in taken}, taken
