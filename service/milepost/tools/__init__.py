"""Tools: functions that a model may call, checked at its boundary and run within bounds."""

from milepost.tools.check import Checked, Issue
from milepost.tools.coercions import coercions
from milepost.tools.context import ToolContext
from milepost.tools.decorator import schema_of, tool, tool_of
from milepost.tools.definition import Tool
from milepost.tools.inject import Injected
from milepost.tools.invoke import Invoker
from milepost.tools.loader import load
from milepost.tools.preview import preview
from milepost.tools.projections import Vendor, prompt_block
from milepost.tools.registry import Registry
from milepost.tools.results import as_text
from milepost.tools.threads import ToolThreads
from milepost.tools.written import ToolParameter

__all__ = [
    "Checked",
    "Injected",
    "Invoker",
    "Issue",
    "Registry",
    "Tool",
    "ToolContext",
    "ToolParameter",
    "ToolThreads",
    "Vendor",
    "as_text",
    "coercions",
    "load",
    "preview",
    "prompt_block",
    "schema_of",
    "tool",
    "tool_of",
]
