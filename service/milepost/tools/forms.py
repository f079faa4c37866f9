"""What the value of a JSON Schema's keyword must be, where it is no bound on a value."""

from collections.abc import Callable, Iterator, Mapping

from milepost.core.json import Json

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_SHOWN_CHARS_MAX = 80


def malformed(schema: Mapping[str, Json]) -> Iterator[str]:
    """Yield a verb phrase for every keyword in `schema` itself that says nothing as it stands."""
    for keyword, said in schema.items():
        form = _FORMS.get(keyword)
        if form is not None and not form[1](said):
            yield f"has the {keyword} {_shown(said)}; it must be {form[0]}"


def _is_schema(said: Json) -> bool:
    return isinstance(said, (Mapping, bool))


def _are_schemas(said: Json) -> bool:
    return isinstance(said, list) and bool(said) and all(map(_is_schema, said))


def _are_named_schemas(said: Json) -> bool:
    return isinstance(said, Mapping) and all(map(_is_schema, said.values()))


def _are_names(said: Json) -> bool:
    if not isinstance(said, list) or not all(isinstance(name, str) for name in said):
        return False
    return len(set(map(str, said))) == len(said)


def _is_type(said: Json) -> bool:
    if isinstance(said, str):
        return said in TYPES
    return isinstance(said, list) and bool(said) and _are_names(said) and {*said} <= {*TYPES}


def _is_text(said: Json) -> bool:
    return isinstance(said, str)


def _shown(said: Json) -> str:
    text = repr(said)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[: _SHOWN_CHARS_MAX - 1]}…"


_SCHEMA = ("a schema: an object, true or false", _is_schema)
_SCHEMAS = ("a list of one schema or more", _are_schemas)
_NAMED = ("an object whose values are schemas", _are_named_schemas)
_FORMS: Mapping[str, tuple[str, Callable[[Json], bool]]] = {
    "type": (f"one of {', '.join(TYPES)}, or a list of different ones", _is_type),
    "properties": _NAMED,
    "$defs": _NAMED,
    "definitions": _NAMED,
    "items": _SCHEMA,
    "additionalProperties": _SCHEMA,
    "anyOf": _SCHEMAS,
    "oneOf": _SCHEMAS,
    "allOf": _SCHEMAS,
    "prefixItems": _SCHEMAS,
    "required": ("a list of different names", _are_names),
    "enum": ("a list of one value or more", lambda said: isinstance(said, list) and bool(said)),
    "uniqueItems": ("true or false", lambda said: isinstance(said, bool)),
    "$ref": ("text such as #/$defs/name", _is_text),
    "description": ("text", _is_text),
}
