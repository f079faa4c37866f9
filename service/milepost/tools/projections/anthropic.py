"""Tools for Anthropic's messages API.

The rules: https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use (a name,
a description, and an `input_schema` that is JSON Schema 2020-12 of an object) and the API's own
refusals: no `oneOf`, `allOf` or `anyOf` at the top, and no property whose name is not of letters,
digits, `_`, `.` and `-`, at most 64 of them.
"""

import re
from collections.abc import Iterator
from typing import cast

from milepost.core.json import Json
from milepost.core.json_schema import without_combinators
from milepost.core.model import ToolSchema
from milepost.core.schema_words import described, reduced
from milepost.tools.projections.parts import Inexpressible

_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def anthropic(schema: ToolSchema) -> dict[str, Json]:
    """Return the entry for `tools`; ToolValidationError for a name that Anthropic refuses."""
    root, taken = without_combinators(schema.parameters)
    for name in _names(cast("Json", root)):
        if not _PROPERTY.fullmatch(name):
            issue = "is named otherwise than with at most 64 of a-z, A-Z, 0-9, _, . and -"
            raise Inexpressible(name, issue).to_error(schema.name, "Anthropic")
    words = str(reduced(taken, ()).get("description", ""))
    return {
        "name": schema.name,
        **described({}, schema.description, [words] if words else []),
        "input_schema": root,
    }


def _names(part: Json) -> Iterator[str]:
    """Yield the names of all properties, wherever they are."""
    if isinstance(part, list):
        for item in part:
            yield from _names(item)
    if not isinstance(part, dict):
        return
    properties = part.get("properties")
    if isinstance(properties, dict):
        yield from properties
        yield from _names([*properties.values()])
    for key in ("items", "additionalProperties", "anyOf", "oneOf", "allOf", "prefixItems"):
        yield from _names(part.get(key))
    for key in ("$defs", "definitions"):
        definitions = part.get(key)
        yield from _names([*definitions.values()] if isinstance(definitions, dict) else [])
