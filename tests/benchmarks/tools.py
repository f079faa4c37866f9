"""The tool that the benchmark's model asks for."""

from milepost.tools import tool


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
