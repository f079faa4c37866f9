"""The guardrail over what tools bring: a result that addresses the model never reaches it."""

from collections.abc import Sequence
from dataclasses import replace

from milepost.core.events import (
    Custom,
    Event,
    GuardrailTriggered,
    ToolCallCompleted,
    ToolCallFailed,
)
from milepost.core.messages import told
from milepost.guardrails.held_back import HeldBack
from milepost.guardrails.injection import Injection
from milepost.guardrails.screening import injection_in
from milepost.guardrails.text_rail import TextRail
from milepost.runtime.progress_screen import HeldWriter
from milepost.tools import Tool
from milepost.tools.streaming import Writer

GUARDRAIL = "screen_output"


def screened(tool: Tool | None, events: Sequence[Event]) -> list[Event]:
    """Return the events of a call, with what its tool brought replaced if it is not to be read."""
    if tool is None or not tool.screen_output:
        return [*events]
    return [shown for event in events for shown in _screened(tool.name, event)]


def past_screen(tool: Tool | None, writer: Writer) -> Writer:
    """Return the writer that shows what a tool says of its result while it runs."""
    if tool is None or not tool.screen_output:
        return writer
    return HeldWriter(writer, HeldBack([TextRail(GUARDRAIL, Injection(), "block")]))


def _screened(tool: str, event: Event) -> tuple[Event, ...]:
    """An error is screened as well: it may hold words of a page that was not there."""
    match event:
        case ToolCallCompleted(call_id, result) if why := injection_in(told(result)):
            return _stepped_in(call_id, why), replace(event, result=_instead(tool, why))
        case ToolCallFailed(call_id, error) if why := injection_in(error.message):
            failure = replace(error, message=_instead(tool, why))
            return _stepped_in(call_id, why), replace(event, error=failure)
        case Custom(call_id, _, value) if why := injection_in(told(value)):
            return (_stepped_in(call_id, why),)
        case _:
            return (event,)


def _stepped_in(call_id: str, why: str) -> GuardrailTriggered:
    return GuardrailTriggered(GUARDRAIL, "blocked", f"the result {why}", call_id)


def _instead(tool: str, why: str) -> str:
    return f"[blocked: the result of {tool} {why}. It was withheld; go on without it, and say so]"
