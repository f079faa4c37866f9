"""The guardrail over what tools bring: a result that addresses the model never reaches it."""

from collections.abc import Sequence
from dataclasses import replace

from milepost.core.events import Event, GuardrailTriggered, ToolCallCompleted
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
    if not isinstance(event, ToolCallCompleted) or not (why := injection_in(told(event.result))):
        return (event,)
    placeholder = (
        f"[blocked: the result of {tool} {why}. It was withheld; go on without it, and say so]"
    )
    stepped_in = GuardrailTriggered(GUARDRAIL, "blocked", f"the result {why}", event.call_id)
    return stepped_in, replace(event, result=placeholder)
