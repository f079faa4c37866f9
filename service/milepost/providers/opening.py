"""The beginning of a reply: as long as it says nothing, another attempt may take its place."""

from collections.abc import AsyncIterator

from milepost.core.model import CallDelta, Delta, Finished, ReasoningDelta, TextDelta


async def opening(deltas: AsyncIterator[Delta]) -> list[Delta]:
    """Return the deltas up to the first that says something; all of them if none does.

    Some vendors tell what the prompt took before they refuse: nobody has seen anything by then.
    """
    opened: list[Delta] = []
    async for delta in deltas:
        opened.append(delta)
        if isinstance(delta, TextDelta | ReasoningDelta | CallDelta | Finished):
            break
    return opened
