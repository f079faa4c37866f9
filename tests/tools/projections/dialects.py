"""The vendors' rules for schemas, written down as schemas: an independent judge of projections."""

from collections.abc import Iterator
from typing import Any

import jsonschema

WORDS: dict[str, Any] = {"description": {"type": "string", "minLength": 1}}
NUMBER: dict[str, Any] = {"type": "number"}
SIZE: dict[str, Any] = {"type": "integer", "minimum": 0}


def _only(needed: list[str], /, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**WORDS, **properties},
        "required": needed,
        "additionalProperties": False,
    }


PART = {"$ref": "#/$defs/part"}
PARTS = {"type": "object", "additionalProperties": PART}
_BOUNDS = dict.fromkeys(
    ("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), NUMBER
)
_STRICT_FORMATS = [
    "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid",
]  # fmt: skip
_STRICT_OBJECT = {
    "type": {"const": "object"},
    "properties": PARTS,
    "required": {"type": "array"},
    "additionalProperties": {"const": False},
}

OPENAI_STRICT: dict[str, Any] = {
    **_only([*_STRICT_OBJECT], **_STRICT_OBJECT, **{"$defs": PARTS}),
    "$defs": {
        "part": {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"$ref": {"type": "string"}},
                    "required": ["$ref"],
                    "additionalProperties": False,
                },
                _only(["anyOf"], anyOf={"type": "array", "items": PART, "minItems": 1}),
                _only([*_STRICT_OBJECT], **_STRICT_OBJECT),
                _only(
                    ["type", "items"],
                    type={"const": "array"},
                    items=PART,
                    minItems=SIZE,
                    maxItems=SIZE,
                ),
                _only(
                    ["type"],
                    type={"const": "string"},
                    enum={"type": "array", "items": {"type": "string"}},
                    pattern={"type": "string"},
                    format={"enum": _STRICT_FORMATS},
                ),
                _only(
                    ["type"],
                    type={"enum": ["integer", "number"]},
                    enum={"type": "array", "items": NUMBER},
                    **_BOUNDS,
                ),
                _only(["type"], type={"const": "boolean"}, enum={"type": "array"}),
                _only(["type"], type={"const": "null"}),
            ]
        }
    },
}

_NULLABLE = {"nullable": {"type": "boolean"}}
_GEMINI_OBJECT = {
    "type": {"const": "OBJECT"},
    "properties": {
        "type": "object",
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]{0,63}$"},
        "additionalProperties": PART,
        "minProperties": 1,
    },
    "required": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "minProperties": SIZE,
    "maxProperties": SIZE,
}

GEMINI: dict[str, Any] = {
    **_only(["type", "properties"], **_GEMINI_OBJECT),
    "$defs": {
        "part": {
            "oneOf": [
                # Nothing may stand beside anyOf, not even a description.
                {
                    "type": "object",
                    "properties": {"anyOf": {"type": "array", "items": PART, "minItems": 2}},
                    "required": ["anyOf"],
                    "additionalProperties": False,
                },
                _only(["type"], **_GEMINI_OBJECT, **_NULLABLE),
                _only(
                    ["type", "items"],
                    type={"const": "ARRAY"},
                    items=PART,
                    minItems=SIZE,
                    maxItems=SIZE,
                    **_NULLABLE,
                ),
                _only(
                    ["type"],
                    type={"const": "STRING"},
                    format={"enum": ["enum", "date-time"]},
                    enum={"type": "array", "items": {"type": "string", "minLength": 1}},
                    minLength=SIZE,
                    maxLength=SIZE,
                    pattern={"type": "string"},
                    **_NULLABLE,
                ),
                _only(
                    ["type"],
                    type={"enum": ["INTEGER", "NUMBER"]},
                    minimum=NUMBER,
                    maximum=NUMBER,
                    **_NULLABLE,
                ),
                _only(["type"], type={"const": "BOOLEAN"}, **_NULLABLE),
                _only(["type"], type={"const": "NULL"}),
            ]
        }
    },
}


def faults(dialect: dict[str, Any], schema: Any) -> list[str]:
    """Return what in `schema` the `dialect` does not know."""
    judge = jsonschema.Draft202012Validator(dialect)
    told = [f"{error.json_path}: {error.message}" for error in judge.iter_errors(schema)]
    for part in parts(schema):
        properties = part.get("properties", {})
        foreign = set(part.get("required", [])) ^ set(properties)
        if dialect is OPENAI_STRICT and foreign:
            told.append(f"{sorted(foreign)} is not required, or not there")
        if dialect is GEMINI and set(part.get("required", [])) - set(properties):
            told.append(f"{sorted(foreign)} is required and not there")
        reference = part.get("$ref")
        if reference and reference.removeprefix("#/$defs/") not in schema.get("$defs", {}):
            told.append(f"{reference} dangles")
    return told


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield `schema` and all schemas in it."""
    if isinstance(schema, list):
        for item in schema:
            yield from parts(item)
    if not isinstance(schema, dict):
        return
    yield schema
    for key in ("properties", "$defs"):
        yield from parts([*schema.get(key, {}).values()])
    for key in ("items", "additionalProperties", "anyOf", "prefixItems"):
        yield from parts(schema.get(key))
