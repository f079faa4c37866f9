"""Tools as an MCP server lists them.

The rules: https://modelcontextprotocol.io/specification/2025-11-25/server/tools: `inputSchema` and
`outputSchema` are JSON Schemas (2020-12) of objects, and hints say what a tool does to the world.
"""

from collections.abc import Mapping

from milepost.core.json import Json
from milepost.core.model import ToolSchema
from milepost.core.repetition import ToolEffect, may_repeat

RESULT = "result"


def mcp(
    schema: ToolSchema, output: Mapping[str, Json] | None, effect: ToolEffect
) -> dict[str, Json]:
    """Return the entry of `tools/list`."""
    told: dict[str, Json] = {
        "name": schema.name,
        "description": schema.description,
        "inputSchema": dict(schema.parameters),
        "annotations": {
            "readOnlyHint": effect == "read",
            "destructiveHint": effect != "read",
            "idempotentHint": may_repeat(effect),
        },
    }
    if output is not None:
        told["outputSchema"] = _object(output)
    return told


def _object(output: Mapping[str, Json]) -> dict[str, Json]:
    """Return `output`; what is no object comes as the `result` of one, as MCP's own servers do."""
    if output.get("type") == "object":
        return dict(output)
    inner = {key: value for key, value in output.items() if key != "$defs"}
    definitions = {"$defs": output["$defs"]} if "$defs" in output else {}
    return {
        "type": "object",
        "properties": {RESULT: inner},
        "required": [RESULT],
        **definitions,
    }
