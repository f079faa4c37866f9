"""A tool that emits events from a process of its own."""

from milepost.tools import ToolContext, tool


@tool(isolation="process")
def count_apart(count: int, context: ToolContext) -> str:
    """Count, in a process of its own."""
    for number in range(count):
        context.emit("counted", {"number": number})
    return "counted"
