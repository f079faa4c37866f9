"""Tools that do as they say."""

import asyncio
from collections.abc import Awaitable, Callable

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


def listening(stopped: asyncio.Event) -> Callable[[], Awaitable[None]]:
    """Return a tool that may be repeated and has no end, and says when it was stopped."""

    @tool(effect="read")
    async def listen() -> None:
        """Listen for as long as somebody wants to hear."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    return listen
