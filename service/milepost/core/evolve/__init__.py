"""What an event changes: where a run stands is its events, folded."""

from collections.abc import Iterable
from functools import reduce

from milepost.core.copying import replace
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
from milepost.core.evolve import approvals, calls, runs, said, steps
from milepost.core.open_call import CallStatus
from milepost.core.state import State

_WHEN_INTERRUPTED = {"repeat": CallStatus.REPEATABLE, "check": CallStatus.CHECKING}


def fold(events: Iterable[Event]) -> State:
    """Return the state that `events` lead to."""
    return reduce(evolve, events, State())


def evolve(state: State, event: Event) -> State:  # noqa: C901, PLR0911, PLR0912, PLR0915 - an arm each
    """Return the state after `event`. Total: every event is legal, because it already happened."""
    match event:
        # What every step has: to get to the last arm takes a microsecond.
        case StepStarted(index):
            return replace(state, step=index, step_open=True, replied=False, calls={})
        case StepCompleted():
            return steps.close(state)
        case MessageStarted(message_id):
            count = state.messages_started + 1
            return replace(
                state, open_message=message_id, message_lost=False, messages_started=count
            )
        case MessageCompleted():
            return steps.reply(state, event)
        case ToolCallRequested():
            return calls.request(state, event)
        case ToolCallStarted():
            return calls.start(state, event)
        case ToolCallCompleted():
            return calls.complete(state, event)
        case RunQueued():
            return runs.queue(state, event)
        case RunForked():
            return runs.fork(state, event)
        case RunImported():
            return runs.take_over(state, event)
        case RunStarted():
            return replace(state, attempt=event.attempt)
        case RunResumed():
            return runs.resume(state, event)
        case RunRetried():
            return replace(state, crashes=0)
        case RunWaiting():
            return replace(state, waiting=True)
        case RunCancelling():
            return replace(state, cancelling=event)
        case RunFailing(error):
            return replace(state, failing=error)
        case RunCompleted() | RunIncomplete() | RunFailed() | RunCancelled() | RunExpired():
            return replace(state, ended=True, waiting=False)
        case SessionLoaded():
            return replace(state, loaded=event, trim=event.trimmed)
        case MemorySummarizing():
            return replace(state, summarizing=event)
        case MemorySummarized() | MemoryTrimmed():
            return said.trim(state, event)
        case SteerReceived():
            return said.hear(state, event)
        case SteerApplied():
            return said.turn_to(state, event)
        case InputScreening():
            return replace(state, screening=True)
        case InputScreened():
            return said.screen(state, event)
        case MessageAborted():
            return steps.abort(state, event)
        case SideCallAborted():
            return replace(state, usage=state.usage + event.usage)
        case StructuredRetried():
            return steps.correct(state, event)
        case LoopDetected():
            return steps.notice(state, event)
        case BudgetWarning():
            return replace(state, warned=state.warned | {event.limit})
        case BudgetExceeded():
            return replace(state, exceeded=True)
        case ToolCallScreening(call_id):
            resting = state.calls[call_id].status
            return calls.mark(state, call_id, status=CallStatus.SCREENING, resting=resting)
        case ToolCallScreened():
            return calls.screen(state, event)
        case ToolCallCounting(call_id):
            resting = state.calls[call_id].status
            return calls.mark(state, call_id, status=CallStatus.COUNTING, resting=resting)
        case ToolCallCounted():
            return calls.count(state, event)
        case ToolResultCompressing(call_id):
            return calls.mark(state, call_id, status=CallStatus.COMPRESSING)
        case ToolResultCompressed():
            return calls.compress(state, event)
        case ChildRunStarted(call_id, run_id):
            begun = replace(state, open_children=state.open_children | {run_id})
            return calls.mark(begun, call_id, status=CallStatus.AWAITED, child_run_id=run_id)
        case ChildRunEnded():
            return replace(
                state,
                children=state.children + event.usage + event.below,
                tool_calls=state.tool_calls + event.tool_calls,
                open_children=state.open_children - {event.run_id},
            )
        case ToolCallFailed(call_id, error):
            return calls.answer(state, call_id, f"Error ({error.code}): {error.message}")
        case ToolCallDenied():
            return calls.deny(state, event)
        case ToolCallInterrupted(call_id, then):
            return calls.mark(state, call_id, status=_WHEN_INTERRUPTED.get(then, CallStatus.LOST))
        case ToolCallChecked():
            return calls.check(state, event)
        case ApprovalRequested():
            return approvals.ask(state, event)
        case ApprovalEscalated():
            return calls.mark(state, event.call_id, approvers=event.approvers)
        case ApprovalDecided():
            return approvals.decide(state, event)
        case ApprovalExpired():
            return approvals.expire(state, event)
        case ApprovalWithdrawn(_, call_id, by, reason):
            why = reason or "the question was withdrawn"
            return approvals.refuse(state, call_id, by or "withdrawal", why)
        case (
            RunRetrying()
            | ReasoningCompleted()
            | ModelRetried()
            | ModelFellBack()
            | CacheHit()
            | PolicyDecided()
            | ArtifactCreated()
            | Custom()
            | GuardrailTriggered()
            | MemoryExtracted()
        ):
            return state
