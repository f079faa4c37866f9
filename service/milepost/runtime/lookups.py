"""Asking a tool what came of a call that was cut off."""

from milepost.core.effects import CheckCall
from milepost.core.events import Event, ToolCallChecked, ToolCallCompleted
from milepost.runtime import notices
from milepost.runtime.calls import Invoke
from milepost.runtime.clock import Clock
from milepost.tools import Tool, ToolContext
from milepost.tools.inquiry import asked


async def look_up(
    effect: CheckCall, context: ToolContext, tool: Tool | None, invoke: Invoke, clock: Clock,
    timeout_s: float,
) -> list[Event]:  # fmt: skip
    """Return what the tool knows of the call, with the result where it has acted.

    A lookup that fails, runs out of time or is gone says nothing.
    """
    call_id, started_ms = effect.call.id, clock()
    if tool is None or tool.inquiry is None:
        return [ToolCallChecked(call_id, "unknown")]
    given = asked(tool.inquiry.schema.parameters, context.idempotency_key, effect.arguments)
    outcome = await invoke(tool.inquiry, given, context, timeout_s=timeout_s)
    if outcome.cause is not None:
        notices.lookup_failed(outcome.cause, context.run_id, call_id, tool.name)
    match outcome.content:
        case {"kind": "found", "result": result}:
            took_ms = clock() - started_ms
            told = ToolCallCompleted(call_id, result, took_ms, terminal=tool.terminal)
            return [ToolCallChecked(call_id, "found"), told]
        case {"kind": "absent"}:
            return [ToolCallChecked(call_id, "absent")]
        case _:
            return [ToolCallChecked(call_id, "unknown")]
