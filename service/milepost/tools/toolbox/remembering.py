"""Keeping things in mind beyond a conversation, and finding them again."""

from collections.abc import Sequence
from typing import Annotated, Protocol

from pydantic import Field

from milepost.core.errors import ToolError
from milepost.core.memories import CONTENT_CHARS_MAX, Finding, line
from milepost.tools.context import ToolContext
from milepost.tools.decorator import tool, tool_of
from milepost.tools.definition import Tool

NAMES = ("remember", "recall")
NOTHING = "Nothing is known about that."


class Notes(Protocol):
    """Where things are kept in mind."""

    async def keep(self, context: ToolContext, finding: Finding) -> str:
        """Keep it, once; say whose memory it is in. Raises `ToolError` where there is none."""

    async def look(self, context: ToolContext, query: str) -> Sequence[str]:
        """Return what is known about it, the best first, a line each."""


def memory_tools(notes: Notes) -> list[Tool]:
    """Return the tools that keep and find, in `notes`."""

    # The same said again is kept once, so that a call may be repeated.
    @tool(effect="idempotent")
    async def remember(
        fact: Annotated[
            str,
            Field(min_length=1, max_length=CONTENT_CHARS_MAX),
            "One thing worth knowing later, in a sentence that stands alone",
        ],
        context: ToolContext,
        *,
        lasting: Annotated[bool, "False for what matters only in the next days"] = True,
    ) -> str:
        """Keep something in mind for later conversations."""
        if not (text := line(fact)):
            raise ToolError(f"the fact {fact!r} says nothing; say what is to be kept in mind")
        owner = await notes.keep(context, Finding("fact" if lasting else "log", text))
        return f"Noted, in the memory of the {owner}: {text}"

    @tool(effect="read")
    async def recall(
        query: Annotated[
            str, Field(min_length=1, max_length=500), "Words that say what it is about"
        ],
        context: ToolContext,
    ) -> str:
        """Look up what is known from earlier conversations."""
        found = await notes.look(context, query)
        return "\n".join(f"- {each}" for each in found) or NOTHING

    return [tool_of(remember), tool_of(recall)]
