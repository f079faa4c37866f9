"""Tools for OpenAI's chat completions, and for all who speak that wire.

The rules: https://platform.openai.com/docs/guides/function-calling and the API's own refusals: a
name of letters, digits, `_` and `-`, `parameters` a JSON Schema of an object, and `items` in every
array ("array schema missing items").
"""

from milepost.core.json import Json
from milepost.core.json_schema import with_items
from milepost.core.model import ToolSchema


def openai(schema: ToolSchema) -> dict[str, Json]:
    """Return the entry for `tools`."""
    return {
        "type": "function",
        "function": {
            "name": schema.name,
            "description": schema.description,
            "parameters": with_items(dict(schema.parameters)),
        },
    }
