"""What a vendor's schemas cannot say, in words."""

import json
from collections.abc import Collection, Iterable, Mapping

from milepost.core.json import Json

_WORDS = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} properties",
    "maxProperties": "at most {} properties",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "greater than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "uniqueItems": "no item twice",
    "pattern": "must match {}",
    "enum": "one of {}",
}
# They tell a model nothing that it needs.
_SILENT = frozenset({"title", "$schema", "$id", "$comment", "$defs", "definitions", "description"})
_NO_DEFAULT = ("default", None)


def reduced(schema: Mapping[str, Json], kept: Collection[str]) -> dict[str, Json]:
    """Return `schema` with the keywords in `kept`, and the others in its description."""
    words = [
        _said(keyword, value)
        for keyword, value in schema.items()
        if keyword not in kept and keyword not in _SILENT and (keyword, value) != _NO_DEFAULT
    ]
    rest = {keyword: value for keyword, value in schema.items() if keyword in kept}
    return described(rest, str(schema.get("description", "")), words)


def described(
    schema: Mapping[str, Json], description: str, words: Iterable[str] = ()
) -> dict[str, Json]:
    """Return `schema` with a description to which `words` are added, in brackets."""
    added = "; ".join(words)
    text = f"{description} ({added})" if description and added else description or added
    return {**schema, "description": text} if text else {**schema}


def _said(keyword: str, value: Json) -> str:
    if keyword == "enum" and isinstance(value, list):
        shown = ", ".join(_json(choice) for choice in value)
    else:
        shown = value if isinstance(value, str) and keyword != "default" else _json(value)
    return _WORDS.get(keyword, f"{keyword}: {{}}").format(shown)


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
