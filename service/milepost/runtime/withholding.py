"""What came in for a run that ends where its guardrails are not: no worker will look at it."""

from collections.abc import Sequence
from dataclasses import replace

from milepost.core.errors import NotFoundError
from milepost.core.events import ApprovalDecided, Event, ToolCallCompleted, ToolCallFailed
from milepost.core.guardrails import RailSpec, looks_at
from milepost.core.state import State
from milepost.runtime.definitions import Definitions
from milepost.runtime.journal import Ports
from milepost.store.runs import RunRow

_BRINGING = ToolCallCompleted | ToolCallFailed | ApprovalDecided
_UNSEEN = "[withheld: the run was ended before its guardrails had looked at this]"


async def without_unseen(
    ports: Ports, row: RunRow, state: State, came: Sequence[Event]
) -> list[Event]:
    """Return what came in without what its agent's guardrails would have had to look at.

    What was brought is withheld from the log, and so from later runs.
    """
    if not any(isinstance(event, _BRINGING) for event in came):
        return [*came]
    try:
        agent = await Definitions(ports.store).get(row.tenant, row.agent_id, row.agent_version)
    except NotFoundError:
        return [*came]  # Nobody knows of any: its definition is not here.
    rails = agent.guardrails.tool_results if agent.guardrails else ()
    return [_vetted(event, rails, state) for event in came]


def _vetted(event: Event, rails: Sequence[RailSpec], state: State) -> Event:
    if not isinstance(event, _BRINGING):
        return event
    tool = state.calls[event.call_id].call.name
    if not any(looks_at(rail.tools, tool) for rail in rails):
        return event
    match event:
        case ToolCallFailed(error=error):
            return replace(event, error=replace(error, message=_UNSEEN))
        case ApprovalDecided(decision=decision) if decision != "happened":
            return event  # It brings nothing.
        case _:
            return replace(event, result=_UNSEEN)
