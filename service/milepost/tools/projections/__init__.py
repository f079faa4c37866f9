"""A tool as each vendor wants it declared. All are made from its one schema.

What a vendor's schemas cannot say is said in words, in the description: the model reads it, and
validation judges the arguments by the tool's own schema all the same.
"""

from collections.abc import Mapping
from typing import Literal

from milepost.core.json import Json
from milepost.core.model import ToolSchema
from milepost.core.repetition import ToolEffect
from milepost.core.tool_block import prompt_block
from milepost.tools.projections.anthropic import anthropic
from milepost.tools.projections.gemini import gemini
from milepost.tools.projections.mcp import mcp
from milepost.tools.projections.openai import openai
from milepost.tools.projections.openai_strict import openai_strict

Vendor = Literal["openai", "openai_strict", "anthropic", "gemini", "mcp"]

__all__ = ["Vendor", "project", "prompt_block"]


def project(
    vendor: Vendor,
    schema: ToolSchema,
    output: Mapping[str, Json] | None,
    effect: ToolEffect,
) -> dict[str, Json]:
    """Return the tool as `vendor` wants it declared; `output` and `effect` are told to MCP alone.

    Raises ToolValidationError, naming the parameter, for what the vendor cannot express.
    """
    match vendor:
        case "openai":
            return openai(schema)
        case "openai_strict":
            return openai_strict(schema)
        case "anthropic":
            return anthropic(schema)
        case "gemini":
            return gemini(schema)
        case "mcp":
            return mcp(schema, output, effect)
