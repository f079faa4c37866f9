"""Where a log's events come from: the loop decides on some, and the world brings the others."""

from typing import Literal

from milepost.core.bounds import OWN
from milepost.core.events import (
    ApprovalDecided,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalWithdrawn,
    ArtifactCreated,
    BudgetExceeded,
    BudgetWarning,
    CacheHit,
    ChildRunEnded,
    ChildRunStarted,
    Custom,
    Event,
    Failure,
    GuardrailTriggered,
    InputScreened,
    InputScreening,
    LoopDetected,
    MemoryExtracted,
    MemorySummarized,
    MemorySummarizing,
    MemoryTrimmed,
    MessageAborted,
    MessageCompleted,
    MessageStarted,
    ModelFellBack,
    ModelRetried,
    PolicyDecided,
    ReasoningCompleted,
    RunCancelled,
    RunCancelling,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunFailing,
    RunForked,
    RunImported,
    RunIncomplete,
    RunQueued,
    RunResumed,
    RunRetried,
    RunRetrying,
    RunStarted,
    RunWaiting,
    SessionLoaded,
    SideCallAborted,
    SteerApplied,
    SteerReceived,
    StepCompleted,
    StepStarted,
    StructuredRetried,
    ToolCallChecked,
    ToolCallCompleted,
    ToolCallCounted,
    ToolCallCounting,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallRequested,
    ToolCallScreened,
    ToolCallScreening,
    ToolCallStarted,
    ToolResultCompressed,
    ToolResultCompressing,
)
from milepost.core.open_call import CallStatus
from milepost.core.state import State
from milepost.runtime.calls import TOO_MANY
from milepost.runtime.settle import GIVEN_UP

Origin = Literal["world", "loop", "either"]

HANDOVERS = (RunQueued, RunForked, RunStarted, RunResumed, RunRetrying)
"""Behind these nobody has decided on anything yet."""

ASIDES = (MemoryExtracted,)
"""These stand between events that are decided on together, right before the last one."""


def origin_of(event: Event, state: State) -> Origin:
    """Return who may have written the event in this state.

    `either`: the loop, if it decides on just that, and else the world.
    """
    match event:
        case (
            InputScreening()
            | SteerApplied()
            | StepStarted()
            | StepCompleted()
            | MessageStarted()
            | ModelRetried()
            | StructuredRetried()
            | LoopDetected()
            | PolicyDecided()
            | ToolCallScreening()
            | ToolCallCounting()
            | ToolCallStarted()
            | ToolCallDenied()
            | ToolCallInterrupted()
            | ToolResultCompressing()
            | MemorySummarizing()
            | MemoryTrimmed(error=None)
            | ApprovalRequested()
            | RunWaiting()
            | RunCompleted()
            | RunIncomplete()
            | RunFailed()
        ):
            return "loop"
        case BudgetWarning(budget) | BudgetExceeded(budget):
            return "loop" if budget == OWN else "world"
        case RunExpired(limit):
            return "either" if limit == "deadline" else "loop"
        case ToolCallFailed(call_id, error):
            return _of_failure(error, state.calls[call_id].status)
        case MessageAborted() | ApprovalWithdrawn() | RunCancelled() | RunFailing():
            return "either"
        case (
            RunQueued()
            | RunForked()
            | RunImported()
            | RunStarted()
            | RunResumed()
            | RunRetrying()
            | RunRetried()
            | RunCancelling()
            | SessionLoaded()
            | MemorySummarized()
            | MemoryTrimmed()
            | MemoryExtracted()
            | InputScreened()
            | SteerReceived()
            | MessageCompleted()
            | ReasoningCompleted()
            | ModelFellBack()
            | SideCallAborted()
            | CacheHit()
            | ToolCallRequested()
            | ToolCallCompleted()
            | ToolCallScreened()
            | ToolCallCounted()
            | ToolCallChecked()
            | ToolResultCompressed()
            | ArtifactCreated()
            | Custom()
            | GuardrailTriggered()
            | ChildRunStarted()
            | ChildRunEnded()
            | ApprovalDecided()
            | ApprovalExpired()
            | ApprovalEscalated()
        ):
            return "world"


def _of_failure(error: Failure, status: CallStatus) -> Origin:
    """Tools fail, and clients' and children's calls; what has not begun was rejected or skipped."""
    if error.code == TOO_MANY.code:
        return "world"
    if status in {CallStatus.STARTED, CallStatus.AWAITED} or error.code == GIVEN_UP.code:
        return "either"
    return "loop"
