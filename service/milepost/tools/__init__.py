"""Tools: functions that a model may call, checked at its boundary and run within bounds."""

from milepost.tools.coercions import coercions
from milepost.tools.context import ToolContext
from milepost.tools.decorator import tool, tool_of
from milepost.tools.definition import Tool
from milepost.tools.inject import Injected
from milepost.tools.invoke import Invoker
from milepost.tools.loader import load
from milepost.tools.preview import preview
from milepost.tools.registry import Registry
from milepost.tools.results import as_text
from milepost.tools.threads import ToolThreads

__all__ = [
    "Injected",
    "Invoker",
    "Registry",
    "Tool",
    "ToolContext",
    "ToolThreads",
    "as_text",
    "coercions",
    "load",
    "preview",
    "tool",
    "tool_of",
]
