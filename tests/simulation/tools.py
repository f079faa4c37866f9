"""A tool of each kind: what it does to the world, and whether somebody has to say yes."""

from milepost.tools import Absent, Found, Registry, ToolContext, Unknown, tool, tool_of
from tests.simulation.surroundings import here


@tool(effect="read")
async def look(number: int, context: ToolContext) -> str:
    """Look at something."""
    return await here().act(context, number)


@tool(effect="idempotent")
async def put(number: int, context: ToolContext) -> str:
    """Put something where nothing else goes."""
    return await here().act(context, number)


@tool
async def pay(number: int, context: ToolContext) -> str:
    """Pay, which nobody can take back."""
    return await here().act(context, number)


async def found(key: str) -> Found | Absent | Unknown:
    """Look whether an entry was made."""
    return await here().look_up(key)


@tool(effect="checkable", lookup=found)
async def enter(number: int, context: ToolContext) -> str:
    """Make an entry that can be looked up."""
    return await here().act(context, number)


@tool(requires_approval=True)
async def wire(number: int, context: ToolContext) -> str:
    """Pay, if somebody says yes."""
    return await here().act(context, number)


@tool(requires_approval=True, effect="idempotent")
async def sign(number: int, context: ToolContext) -> str:
    """Sign, if somebody says yes."""
    return await here().act(context, number)


REGISTRY = Registry(map(tool_of, (look, put, pay, enter, wire, sign)))
