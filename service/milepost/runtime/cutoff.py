"""What is told of a call that was cancelled though nobody who may asked for it."""

from milepost.core.effects import (
    CallModel,
    CallTool,
    CheckCall,
    CompressResult,
    CountCall,
    ScreenCall,
    ScreenInput,
    SummarizeHistory,
)
from milepost.core.events import (
    Event,
    Failure,
    InputScreened,
    MemoryTrimmed,
    MessageAborted,
    ToolCallChecked,
    ToolCallFailed,
    ToolCallScreened,
    ToolResultCompressed,
)
from milepost.core.usage import Usage
from milepost.runtime.settle import Call

_WHY = "it was cancelled from within"


def cut_off(effect: Call, usage: Usage) -> Event:
    """Return the event that ends the call: a message may be tried again, a result stays whole.

    `usage` is what a message took. What was asked of models beside it has an event of its own.
    """
    match effect:
        case ScreenInput():
            return InputScreened(blocked=_WHY)
        case SummarizeHistory(asked):
            failure = Failure("provider_error", _WHY)
            return MemoryTrimmed(
                asked.id, asked.first, asked.last, asked.messages, asked.model, failure
            )
        case ScreenCall(call):
            return ToolCallScreened(call.id, blocked=_WHY)
        case CallModel(message_id):
            failure = Failure("provider_error", _WHY, retryable=True)
            return MessageAborted(message_id, _WHY, failure, usage)
        case CallTool(call):
            return ToolCallFailed(call.id, Failure("tool_failed", f"{call.name} failed: {_WHY}"))
        case CountCall(call):
            return ToolCallFailed(call.id, Failure("tool_failed", f"{call.name} failed: {_WHY}"))
        case CheckCall(call):
            return ToolCallChecked(call.id, "unknown")
        case CompressResult(call, content, opening):
            return ToolResultCompressed(
                call.id, content, opening.chars, opening.model, Usage(), fallback=_WHY
            )
