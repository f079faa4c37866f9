"""How a span ended, as the event that closed it tells."""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from milepost.core.events import (
    Event,
    Failure,
    InputScreened,
    InputScreening,
    MemorySummarized,
    MemorySummarizing,
    MemoryTrimmed,
    MessageAborted,
    MessageCompleted,
    RunCancelled,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunIncomplete,
    RunRetrying,
    RunWaiting,
    Terminal,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallScreened,
    ToolCallScreening,
    ToolResultCompressed,
    ToolResultCompressing,
)
from milepost.core.frozen import dataclass
from milepost.core.spans import ERROR_TYPE, SpanStatus
from milepost.telemetry.attributes import (
    Attributes,
    outcome_attributes,
    output_content,
    reply_attributes,
    reply_content,
    result_content,
    screened_attributes,
    usage_attributes,
)
from milepost.telemetry.keys import HISTORY_SUMMARY, INPUT_SCREENING, screening_of, summary_of

CANCELLED_CODE = "cancelled"

StretchEnd = RunWaiting | RunRetrying | Terminal
CallEnd = ToolCallCompleted | ToolCallFailed | ToolCallInterrupted
MessageEnd = MessageCompleted | MessageAborted


@dataclass(frozen=True, slots=True)
class Ending:
    """A span's status, the text of its error, and what only its end could tell."""

    status: SpanStatus
    error: str | None = None
    attributes: Attributes = field(default_factory=dict)


CANCELLED = Ending("cancelled")
WORKER_LOST = Ending("error", "its worker died", {ERROR_TYPE: "worker_lost"})
HANDED_OVER = Ending("ok", attributes={"milepost.run.status": "retrying"})


def ended_by(event: Event, *, content: bool) -> tuple[str, Ending] | None:
    """Return the key of what ends with the event, if it is open, and how it ends."""
    told = _ENDS.get(type(event))
    return None if told is None else told(event, content)


def stretch_ending(event: StretchEnd, *, content: bool) -> Ending:
    """Return how a stretch of work on a run ended, which may be the run's own end."""
    match event:
        case RunWaiting(cause):
            return _stretch("waiting", cause)
        case RunRetrying(why):
            return _stretch("retrying", why)
        case RunCompleted(output=output, finish_reason=reason):
            return _stretch("completed", reason, output_content(output) if content else {})
        case RunIncomplete(reason=reason, output=output):
            return _stretch("incomplete", reason, output_content(output) if content else {})
        case RunFailed(error):
            return _ended("failed", failed(error))
        case RunCancelled():
            return _ended("cancelled", CANCELLED)
        case RunExpired(limit):
            expired = Failure("expired", f"the run reached its {limit}")
            return _ended("expired", failed(expired))


def failed(error: Failure) -> Ending:
    """Return the end of what came to nothing."""
    return Ending("error", error.message, {ERROR_TYPE: error.code})


def _message(event: MessageEnd, *, content: bool) -> Ending:
    match event:
        case MessageCompleted():
            said = reply_content(event) if content else {}
            return Ending("ok", attributes={**reply_attributes(event), **said})
        case MessageAborted(error=error):
            return CANCELLED if error is None else failed(error)


def _call(event: CallEnd, *, content: bool) -> Ending:
    match event:
        case ToolCallCompleted(result=result):
            told = result_content(result) if content else {}
            return Ending("ok", attributes={**outcome_attributes(event), **told})
        case ToolCallFailed(error=error):
            return CANCELLED if error.code == CANCELLED_CODE else failed(error)
        case ToolCallInterrupted():
            return WORKER_LOST


def _screening(event: InputScreened | ToolCallScreened) -> Ending:
    return Ending("ok", attributes=screened_attributes(event))


def _summary(event: ToolResultCompressed) -> Ending:
    spent = usage_attributes(event.usage)
    if event.fallback is None:
        return Ending("ok", attributes=spent)
    told = {**spent, ERROR_TYPE: "compression_failed"}
    return Ending("error", f"compression failed: {event.fallback}", told)


def _history(event: MemorySummarized | MemoryTrimmed) -> Ending:
    spent = usage_attributes(event.usage)
    if isinstance(event, MemorySummarized) or event.error is None:
        return Ending("ok", attributes=spent)
    told = {**spent, ERROR_TYPE: event.error.code}
    return Ending("error", f"nothing is told: {event.error.message}", told)


def _stretch(status: str, reason: str, said: Attributes | None = None) -> Ending:
    told = {"milepost.run.status": status, "milepost.run.reason": reason}
    return Ending("ok", attributes={**told, **(said or {})})


def _ended(status: str, ending: Ending) -> Ending:
    attributes = {"milepost.run.status": status, **ending.attributes}
    return Ending(ending.status, ending.error, attributes)


# Whatever begins once more was let go of by its first worker.
_ENDS: Mapping[type[Event], Callable[[Any, bool], tuple[str, Ending]]] = {
    MessageCompleted: lambda event, content: (event.message_id, _message(event, content=content)),
    MessageAborted: lambda event, content: (event.message_id, _message(event, content=content)),
    ToolCallCompleted: lambda event, content: (event.call_id, _call(event, content=content)),
    ToolCallFailed: lambda event, content: (event.call_id, _call(event, content=content)),
    ToolCallInterrupted: lambda event, content: (event.call_id, _call(event, content=content)),
    InputScreening: lambda *_: (INPUT_SCREENING, CANCELLED),
    InputScreened: lambda event, _: (INPUT_SCREENING, _screening(event)),
    ToolCallScreening: lambda event, _: (screening_of(event.call_id), CANCELLED),
    ToolCallScreened: lambda event, _: (screening_of(event.call_id), _screening(event)),
    ToolResultCompressing: lambda event, _: (summary_of(event.call_id), CANCELLED),
    ToolResultCompressed: lambda event, _: (summary_of(event.call_id), _summary(event)),
    MemorySummarizing: lambda *_: (HISTORY_SUMMARY, CANCELLED),
    MemorySummarized: lambda event, _: (HISTORY_SUMMARY, _history(event)),
    MemoryTrimmed: lambda event, _: (HISTORY_SUMMARY, _history(event)),
}
