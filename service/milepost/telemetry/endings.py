"""How a span ended, as the event that closed it tells."""

from dataclasses import dataclass, field

from milepost.core.events import (
    Failure,
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
    ToolResultCompressed,
)
from milepost.core.spans import SpanStatus
from milepost.telemetry.attributes import (
    ERROR_TYPE,
    Attributes,
    output_content,
    reply_attributes,
    reply_content,
    result_content,
    usage_attributes,
)

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


def message_ending(event: MessageEnd, *, content: bool) -> Ending:
    """Return how a model call ended."""
    match event:
        case MessageCompleted():
            said = reply_content(event) if content else {}
            return Ending("ok", attributes={**reply_attributes(event), **said})
        case MessageAborted(error=error):
            return CANCELLED if error is None else _failed(error)


def call_ending(event: CallEnd, *, content: bool) -> Ending:
    """Return how a tool call ended."""
    match event:
        case ToolCallCompleted(result=result):
            return Ending("ok", attributes=result_content(result) if content else {})
        case ToolCallFailed(error=error):
            return CANCELLED if error.code == CANCELLED_CODE else _failed(error)
        case ToolCallInterrupted():
            return WORKER_LOST


def summary_ending(event: ToolResultCompressed) -> Ending:
    """Return how a model call ended that was to make a result shorter."""
    spent = usage_attributes(event.usage)
    if event.fallback is None:
        return Ending("ok", attributes=spent)
    told = {**spent, ERROR_TYPE: "compression_failed"}
    return Ending("error", f"compression failed: {event.fallback}", told)


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
            return _ended("failed", _failed(error))
        case RunCancelled():
            return _ended("cancelled", CANCELLED)
        case RunExpired(limit):
            expired = Failure("expired", f"the run reached its {limit}")
            return _ended("expired", _failed(expired))


def _failed(error: Failure) -> Ending:
    return Ending("error", error.message, {ERROR_TYPE: error.code})


def _stretch(status: str, reason: str, said: Attributes | None = None) -> Ending:
    told = {"milepost.run.status": status, "milepost.run.reason": reason}
    return Ending("ok", attributes={**told, **(said or {})})


def _ended(status: str, ending: Ending) -> Ending:
    attributes = {"milepost.run.status": status, **ending.attributes}
    return Ending(ending.status, ending.error, attributes)
