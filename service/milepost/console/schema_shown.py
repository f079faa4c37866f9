"""A JSON Schema as HTML: what a value may be in a line, and the members of an object in a table."""

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from milepost.console.prose import line, prose

Schema = Mapping[str, Any]

_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "minLength": "at least {} long",
    "maxLength": "at most {} long",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "maxProperties": "at most {} members",
    "format": "{}",
    "pattern": "like {}",
    "default": "by default {}",
}
_JOINED = {"anyOf": " or ", "oneOf": " or ", "allOf": " and "}


def shown(schema: Schema) -> str:
    """Return all that a schema says: in a line what it is, its members below."""
    said = prose(schema["description"]) if "description" in schema else ""
    return f"{said}<p>{kind(schema)}{_bounds(schema)}</p>{members(schema)}"


def kind(schema: Any) -> str:
    """Return in a line what a value may be."""
    match schema:
        case {"$ref": str(reference)}:
            return _link(reference)
        case {"const": constant}:
            return _code(constant)
        case {"enum": [*values]}:
            return " or ".join(map(_code, values))
        case {"type": "array", "items": items}:
            return f"array of {kind(items)}"
        case {"type": "object", "additionalProperties": {} as values} if values:
            return f"object of {kind(values)}"
        case {"type": str(name)}:
            return escape(name)
        case {"type": [*names]}:
            return escape(" or ".join(names))
        case {}:
            return _choice(schema)
        case _:
            return "anything" if schema else "nothing"


def members(schema: Schema) -> str:
    """Return a table of the members that an object has, those of its parts included."""
    rows = "".join(_rows(schema))
    if not rows:
        return ""
    return f'<div class="wide"><table><tbody>{rows}</tbody></table></div>'


def row(name: str, schema: Schema, *, required: bool, said: str | None = None) -> str:
    """Return the row of a member, or of a parameter; `said` goes before the schema's own words."""
    told = said if said is not None else schema.get("description", "")
    must = ' <span class="must">required</span>' if required else ""
    # A schema of its own is shown where it stands; one without a name, here.
    below = "" if "$ref" in schema else members(_items(schema))
    return (
        f"<tr><th scope=row><code>{escape(name)}</code>{must}</th>"
        f"<td><div class=kind>{kind(schema)}{_bounds(schema)}</div>{prose(told)}{below}</td></tr>"
    )


def _rows(schema: Schema) -> Iterator[str]:
    required = schema.get("required", ())
    for name, member in schema.get("properties", {}).items():
        yield row(name, member, required=name in required)
    for pattern, member in schema.get("patternProperties", {}).items():
        yield row(pattern, member, required=False)
    for word in _JOINED:
        for part in schema.get(word, ()):
            yield from _rows(part)


def _items(schema: Schema) -> Schema:
    """Return what an array is made of, or the schema itself."""
    items = schema.get("items", schema)
    return items if isinstance(items, Mapping) and "$ref" not in items else {}


def _choice(schema: Schema) -> str:
    """Return the alternatives, or the parts, that a schema without a type is put together of."""
    for word, between in _JOINED.items():
        parts: Sequence[Schema] = schema.get(word, ())
        if parts and all("const" in part for part in parts):
            return "one of" + _meanings(parts)
        if parts:
            return between.join(kind(part) for part in parts)
    return "object" if "properties" in schema else "anything"


def _meanings(parts: Sequence[Schema]) -> str:
    told = "".join(
        f"<dt>{_code(part['const'])}</dt><dd>{line(part.get('description', ''))}</dd>"
        for part in parts
    )
    return f"<dl>{told}</dl>"


def _bounds(schema: Schema) -> str:
    said = [words.format(_code(schema[name])) for name, words in _BOUNDS.items() if name in schema]
    return f' <span class="bounds">({", ".join(said)})</span>' if said else ""


def _link(reference: str) -> str:
    name = escape(reference.rpartition("/")[2])
    return f'<a href="#schema-{name}">{name}</a>'


def _code(value: object) -> str:
    plain = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return f"<code>{escape(plain)}</code>"
