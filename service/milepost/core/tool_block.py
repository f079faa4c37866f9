"""Tools in the text of a prompt, for models that have no place of their own for them."""

import json
from collections.abc import Iterable

from milepost.core.model import ToolSchema


def prompt_block(schemas: Iterable[ToolSchema]) -> str:
    """Return the block that tells a model of `schemas`, a line each; empty where there are none."""
    lines = [json.dumps(schema.to_dict(), ensure_ascii=False) for schema in schemas]
    return "\n".join(["Available tools (JSON schema):", *lines]) if lines else ""
