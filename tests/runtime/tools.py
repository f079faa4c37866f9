"""Tools that do as they say."""

from milepost.tools import tool


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def fail(why: str) -> str:
    """Fail."""
    raise RuntimeError(why)


@tool(effect="read")
def look_up() -> str:
    """Look it up."""
    return "seen"


@tool
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"
