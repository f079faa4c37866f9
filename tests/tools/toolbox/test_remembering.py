"""The tools that keep things in mind, over whatever keeps them."""

from collections.abc import AsyncIterator, Sequence

import pytest

from milepost.core.errors import ConfigurationError, ToolError
from milepost.core.memories import CONTENT_CHARS_MAX, Finding
from milepost.tools import ToolContext
from milepost.tools.egress import Egress, open_egress
from milepost.tools.toolbox.choosing import toolbox
from milepost.tools.toolbox.remembering import NAMES, NOTHING, memory_tools


class Pad:
    """A list of what was kept."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []

    async def keep(self, _: ToolContext, finding: Finding) -> str:
        """Keep it for the user."""
        self.kept.append(finding)
        return "user"

    async def look(self, _: ToolContext, query: str) -> Sequence[str]:
        """Return what has the query in it."""
        return [each.content for each in self.kept if query in each.content]


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    """A way out to the public web alone."""
    async with open_egress() as egress:
        yield egress


async def test_what_is_kept_is_one_line_and_found_again(context: ToolContext) -> None:
    pad = Pad()
    remember, recall = (tool.function for tool in memory_tools(pad))

    told = await remember("Tea\n\nis at four.", context)

    assert told == "Noted, in the memory of the user: Tea is at four."
    assert pad.kept == [Finding("fact", "Tea is at four.")]
    assert await recall("Tea", context) == "- Tea is at four."
    assert await recall("coffee", context) == NOTHING


@pytest.mark.parametrize("nothing", [" ", "\n\t", "\u200b\u202e"])
async def test_what_says_nothing_is_not_kept(context: ToolContext, nothing: str) -> None:
    pad = Pad()

    with pytest.raises(ToolError, match="says nothing"):
        await memory_tools(pad)[0].function(nothing, context)

    assert pad.kept == []


async def test_what_does_not_last_is_the_day_s(context: ToolContext) -> None:
    pad = Pad()

    await memory_tools(pad)[0].function("Ann has a cold.", context, lasting=False)

    assert pad.kept == [Finding("log", "Ann has a cold.")]


def test_keeping_may_be_repeated_and_finding_changes_nothing() -> None:
    remember, recall = memory_tools(Pad())

    assert (remember.effect, recall.effect) == ("idempotent", "read")
    offered = str(remember.schema)
    assert f"'maxLength': {CONTENT_CHARS_MAX}" in offered
    assert "'context'" not in offered


def test_they_are_in_the_box_where_something_keeps_what_they_are_told(egress: Egress) -> None:
    assert [tool.name for tool in toolbox(NAMES, egress, notes=Pad())] == [*NAMES]
    with pytest.raises(ConfigurationError, match="the toolbox has no 'remember'"):
        toolbox(NAMES, egress)
