"""The guardrail over what tools bring: a result that addresses the model never reaches it."""

from collections.abc import Sequence
from dataclasses import replace

from milepost.core.events import Event, GuardrailTriggered, ToolCallCompleted, ToolCallFailed
from milepost.core.state import told
from milepost.guardrails.screening import injection_in
from milepost.tools import Tool

GUARDRAIL = "screen_output"


def screened(tool: Tool | None, events: Sequence[Event]) -> list[Event]:
    """Return the events of a call, with what its tool brought replaced if it is not to be read."""
    if tool is None or not tool.screen_output:
        return [*events]
    return [shown for event in events for shown in _screened(tool.name, event)]


def _screened(tool: str, event: Event) -> tuple[Event, ...]:
    """An error is screened as well: it may hold words of a page that was not there."""
    match event:
        case ToolCallCompleted(call_id, result) if why := injection_in(told(result)):
            return _stepped_in(call_id, why), replace(event, result=_instead(tool, why))
        case ToolCallFailed(call_id, error) if why := injection_in(error.message):
            failure = replace(error, message=_instead(tool, why))
            return _stepped_in(call_id, why), replace(event, error=failure)
        case _:
            return (event,)


def _stepped_in(call_id: str, why: str) -> GuardrailTriggered:
    return GuardrailTriggered(GUARDRAIL, "blocked", f"the result {why}", call_id)


def _instead(tool: str, why: str) -> str:
    return f"[blocked: the result of {tool} {why}. It was withheld; go on without it, and say so]"
