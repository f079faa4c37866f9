"""Where a run stands: its events, folded."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from functools import reduce
from itertools import takewhile

import orjson

from milepost.core.agents import Bounds, StructuredOutput
from milepost.core.approvers import OPEN_ID
from milepost.core.copying import replace
from milepost.core.events import (
    ApprovalDecided,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalKind,
    ApprovalRequested,
    ApprovalWithdrawn,
    ArtifactCreated,
    BudgetExceeded,
    BudgetWarning,
    CacheHit,
    Channel,
    ChildRunEnded,
    ChildRunStarted,
    Custom,
    Event,
    Failure,
    ForkedCall,
    GuardrailTriggered,
    InputMessage,
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
    Parent,
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
    SteerApplied,
    SteerReceived,
    StepCompleted,
    StepStarted,
    Stretch,
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
from milepost.core.frozen import dataclass
from milepost.core.json import Json
from milepost.core.loops import TRAIL_MAX, Footprint
from milepost.core.messages import NOT_RUN, Message, ToolCall
from milepost.core.model import FinishReason
from milepost.core.repetition import ToolEffect
from milepost.core.usage import Usage
from milepost.core.written import written


class CallStatus(StrEnum):
    """How far a tool call has come."""

    REQUESTED = "requested"
    SCREENING = "screening"  # The guardrails look at it.
    COUNTING = "counting"  # It is counted how often such calls were made.
    ASKED = "asked"
    APPROVED = "approved"
    DENIED = "denied"
    STARTED = "started"
    AWAITED = "awaited"  # The client runs it, or another run.
    LOST = "lost"  # Its worker died while it ran.
    CHECKING = "checking"  # Lost; its tool is asked whether it has acted.
    REPEATABLE = "repeatable"  # Lost, and safe to make again.
    HAPPENED = "happened"  # Lost; a person says what came of it.
    UNKNOWN = "unknown"  # Lost; nobody can say whether it has acted.
    COMPRESSING = "compressing"  # Answered; a model makes the answer shorter.
    DONE = "done"


@dataclass(frozen=True)  # Without slots, as all that is copied with every event.
class OpenCall:
    """A call of the present step. `content` is what the model is told, once there is something.

    `long` is a result's length in characters as long as it may still be made shorter: errors,
    denials, terminal results and what was compressed already stay as they are. `whole` is what the
    tool itself brought. `screened`: the guardrails have looked at it, and `blocked` says what they
    have against it. `counts` is what was counted for the rules, and `resting` how far the call had
    come when somebody began to count, or to look at it. `given` is what the tool got, and `checked`
    says that the tool itself was asked what came of it. `asking` is what people are asked about it,
    `asked` are the arguments that they were shown, and `approvers` are those who were asked last,
    anybody if there are none.
    """

    call: ToolCall
    status: CallStatus = CallStatus.REQUESTED
    attempt: int = 0
    effect: ToolEffect = "once"
    approval_id: str | None = None
    digest: str | None = None
    approved_by: str | None = None
    comment: str | None = None
    denied_by: str = ""
    denial: str = ""
    content: str = ""
    whole: str = ""
    terminal: bool = False
    long: int = 0
    screened: bool = False
    blocked: str | None = None
    child_run_id: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    resting: CallStatus = CallStatus.REQUESTED
    given: Mapping[str, Json] | None = None
    checked: bool = False
    asking: ApprovalKind = "call"
    asked: Mapping[str, Json] | None = None
    approvers: tuple[str, ...] = ()
    brought: Json = None


@dataclass(frozen=True)  # Without slots, as all that is copied with every event.
class State:
    """A run, folded. `messages` begins with the input; `calls` are those of the present step.

    `trail` is what its calls have come to lately. `tool_calls` counts those that were begun, by it
    and by the runs below it that are over; `children` is what these have used. `open_children` are
    the runs that it started and that are not over.

    `trim` is what falls out of sight with this run, until something is told of it: `summary`.

    A fork begins with `inherited` messages and `steps_before` steps that were another run's, and
    asks before a call whose digest is `guarded`.

    `steers` is what was said since the run began and no model has read yet, `steered` the ids of
    all that was.
    """

    messages: tuple[Message, ...] = ()
    calls: Mapping[str, OpenCall] = field(default_factory=dict)
    deadline_ms: int | None = None
    attempt: int = 0
    crashes: int = 0  # In a row, without anything achieved in between.
    loaded: SessionLoaded | None = None
    trim: Stretch | None = None
    summarizing: MemorySummarizing | None = None
    summary: str = ""
    step: int = 0
    step_open: bool = False
    replied: bool = False
    finish_reason: FinishReason = "stop"
    messages_started: int = 0
    open_message: str | None = None
    message_lost: bool = False
    failures: int = 0
    failure: Failure | None = None
    denials: Mapping[str, str] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    response_format: StructuredOutput | None = None
    cache: bool = True
    parent: Parent | None = None
    bounds: Bounds | None = None
    channel: Channel | None = None
    children: Usage = field(default_factory=Usage)
    open_children: frozenset[str] = frozenset()
    screening: bool = False
    screened: bool = False
    blocked: str | None = None
    corrections: int = 0
    trail: tuple[Footprint, ...] = ()
    tool_calls: int = 0
    warned: frozenset[str] = frozenset()
    exceeded: bool = False
    waiting: bool = False
    cancelling: RunCancelling | None = None
    failing: Failure | None = None
    ended: bool = False
    inherited: int = 0
    steps_before: int = 0
    guarded: Mapping[str, str] = field(default_factory=dict)
    steers: tuple[SteerReceived, ...] = ()
    steered: frozenset[str] = frozenset()
    speakers: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The last thing that the model said, or nothing."""
        said = (turn.content for turn in reversed(self.messages) if turn.role == "assistant")
        return next(said, "")


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
            return _close_step(state)
        case MessageStarted(message_id):
            count = state.messages_started + 1
            return replace(
                state, open_message=message_id, message_lost=False, messages_started=count
            )
        case MessageCompleted():
            return _reply(state, event)
        case ToolCallRequested():
            return _request(state, event)
        case ToolCallStarted():
            return _start(state, event)
        case ToolCallCompleted():
            return _complete(state, event)
        case RunQueued():
            return replace(
                state,
                messages=_said(event.input),
                deadline_ms=event.deadline_ms,
                response_format=event.response_format,
                cache=event.cache,
                parent=event.parent,
                bounds=event.bounds,
                channel=event.channel,
                speakers=frozenset(event.speakers),
            )
        case RunForked():
            return _fork(state, event)
        case RunImported():
            return _import(state, event)
        case RunStarted():
            return replace(state, attempt=event.attempt)
        case RunResumed():
            return _resume(state, event)
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
            return _trim(state, event)
        case SteerReceived():
            return _hear(state, event)
        case SteerApplied():
            return _turn_to(state, event)
        case InputScreening():
            return replace(state, screening=True)
        case InputScreened():
            return _screen(state, event)
        case MessageAborted():
            return _abort(state, event)
        case StructuredRetried():
            return _correct(state, event)
        case LoopDetected():
            return _notice(state, event)
        case BudgetWarning():
            return replace(state, warned=state.warned | {event.limit})
        case BudgetExceeded():
            return replace(state, exceeded=True)
        case ToolCallScreening(call_id):
            resting = state.calls[call_id].status
            return _mark(state, call_id, status=CallStatus.SCREENING, resting=resting)
        case ToolCallScreened():
            return _screen_call(state, event)
        case ToolCallCounting(call_id):
            resting = state.calls[call_id].status
            return _mark(state, call_id, status=CallStatus.COUNTING, resting=resting)
        case ToolCallCounted():
            return _count(state, event)
        case ToolResultCompressing(call_id):
            return _mark(state, call_id, status=CallStatus.COMPRESSING)
        case ToolResultCompressed():
            return _compress(state, event)
        case ChildRunStarted(call_id, run_id):
            begun = replace(state, open_children=state.open_children | {run_id})
            return _mark(begun, call_id, status=CallStatus.AWAITED, child_run_id=run_id)
        case ChildRunEnded():
            return replace(
                state,
                children=state.children + event.usage + event.below,
                tool_calls=state.tool_calls + event.tool_calls,
                open_children=state.open_children - {event.run_id},
            )
        case ToolCallFailed(call_id, error):
            return _answer(state, call_id, f"Error ({error.code}): {error.message}")
        case ToolCallDenied():
            return _deny(state, event)
        case ToolCallInterrupted(call_id, then):
            return _mark(state, call_id, status=_WHEN_INTERRUPTED.get(then, CallStatus.LOST))
        case ToolCallChecked():
            return _check(state, event)
        case ApprovalRequested():
            return _mark(
                state,
                event.call_id,
                status=CallStatus.ASKED,
                approval_id=event.approval_id,
                digest=event.digest,
                asking=event.kind,
                asked=event.arguments,
                approvers=event.approvers,
            )
        case ApprovalEscalated():
            return _mark(state, event.call_id, approvers=event.approvers)
        case ApprovalDecided():
            return _decided(state, event)
        case ApprovalExpired():
            return _expire(state, event)
        case ApprovalWithdrawn(_, call_id, by, reason):
            why = reason or "the question was withdrawn"
            return _refuse(state, call_id, by or "withdrawal", why)
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


def told(result: Json) -> str:
    """Return a tool's result as the model reads it: text as it is, anything else as JSON."""
    if isinstance(result, str):
        return result
    return "" if result is None else orjson.dumps(result).decode()


def transcript(state: State) -> tuple[Message, ...]:
    """Return all that was said in the run, the present step's results included, none left open.

    What no model was told any more stands behind the end of the run.
    """
    said = (*state.messages, *_results(state.calls)) if state.calls else state.messages
    return (*said, *map(_steer, state.steers)) if state.ended and state.steers else said


def vetted(state: State) -> tuple[Message, ...]:
    """Return the transcript up to what came too late for the guardrails to look at it."""
    looked_at = tuple(takewhile(lambda steer: steer.screened, state.steers))
    return transcript(replace(state, steers=looked_at))


def _results(calls: Mapping[str, OpenCall]) -> list[Message]:
    """Results stand in the order in which the model asked, whenever they came.

    A tool that brings nothing was run all the same: who heard otherwise would call it again.
    """
    return [
        Message("tool", call.content if call.status in _ANSWERED else NOT_RUN, call_id=call_id)
        for call_id, call in calls.items()
    ]


def _resume(state: State, event: RunResumed) -> State:
    """A new worker has the run: what the last one had in hand is lost."""
    calls = {
        call_id: replace(call, status=_after_a_loss(call)) for call_id, call in state.calls.items()
    }
    return replace(
        state,
        calls=calls,
        attempt=event.attempt,
        message_lost=state.open_message is not None,
        screening=False,
        summarizing=None,
        crashes=state.crashes + 1 if event.why == "crash" else state.crashes,
        waiting=False,
    )


def _trim(state: State, event: MemorySummarized | MemoryTrimmed) -> State:
    """What fell out of sight is done with, whatever is told of it."""
    content = event.content if isinstance(event, MemorySummarized) else ""
    usage = state.usage + event.usage
    return replace(state, trim=None, summarizing=None, summary=content, usage=usage)


def _after_a_loss(call: OpenCall) -> CallStatus:
    """Making a result shorter has no effect on the world, nor has looking at a call, or counting.

    All that is simply done again.
    """
    if call.status in {CallStatus.SCREENING, CallStatus.COUNTING}:
        return call.resting
    return _AFTER_A_LOSS.get(call.status, call.status)


_AFTER_A_LOSS = {
    CallStatus.STARTED: CallStatus.LOST,
    CallStatus.CHECKING: CallStatus.LOST,
    CallStatus.COMPRESSING: CallStatus.DONE,
}
_ANSWERED = frozenset({CallStatus.COMPRESSING, CallStatus.DONE})
_WHEN_INTERRUPTED = {"repeat": CallStatus.REPEATABLE, "check": CallStatus.CHECKING}


def _fork(state: State, event: RunForked) -> State:
    """What was said before goes before the run's own input; what is said there is not new."""
    return replace(
        state,
        messages=(*event.conversation, *state.messages),
        inherited=len(event.conversation),
        calls={forked.call.id: _inherit(forked) for forked in event.calls},
        step=event.step,
        steps_before=event.step - (event.step_open and not event.replied),
        step_open=event.step_open,
        replied=event.replied,
        finish_reason=event.finish_reason,
        screened=not state.messages,
        guarded=event.guarded,
    )


def _import(state: State, event: RunImported) -> State:
    """What was said elsewhere was said; each reply took a step."""
    messages = (*state.messages, *event.conversation)
    steps = sum(message.role == "assistant" for message in messages)
    return replace(state, messages=messages, step=steps, screened=True)


def _inherit(forked: ForkedCall) -> OpenCall:
    """A call without a result is lost: what made it repeatable was the other run's own key."""
    call, content = forked.call, forked.content
    match forked.status:
        case "requested":
            return OpenCall(call)
        case "unknown":
            return OpenCall(call, CallStatus.LOST, attempt=1, approved_by=forked.by or None)
        case "denied":
            return OpenCall(call, CallStatus.DENIED, denied_by=forked.by, denial=content)
        case "done":
            done = OpenCall(call, CallStatus.DONE, content=content, whole=content)
            return replace(done, terminal=forked.terminal, long=forked.long)


def _said(given: Iterable[InputMessage]) -> tuple[Message, ...]:
    return tuple(Message(turn.role, turn.content, images=turn.images) for turn in given)


def _screen(state: State, event: InputScreened) -> State:
    """What was blocked is no part of the conversation: neither this run's nor a later one's."""
    inherited, said = state.messages[: state.inherited], state.messages[state.inherited :]
    if event.blocked:
        said = ()
    elif event.input is not None:
        said = _said(event.input)
    return replace(
        state,
        messages=(*inherited, *said),
        screening=False,
        screened=True,
        blocked=event.blocked,
        usage=state.usage + event.usage,
    )


def _hear(state: State, event: SteerReceived) -> State:
    """Keep what is said for later: behind open calls nothing may stand but their results."""
    steers = state.steers if event.blocked is not None else (*state.steers, event)
    return replace(state, steers=steers, steered=state.steered | {event.message_id})


def _turn_to(state: State, event: SteerApplied) -> State:
    """Whoever is told something new has all of the agent's steps for it, and is in no circle."""
    told_now = tuple(each for each in state.steers if each.message_id in event.message_ids)
    left = tuple(each for each in state.steers if each.message_id not in event.message_ids)
    return replace(
        state,
        messages=(*state.messages, *map(_steer, told_now)),
        steers=left,
        speakers=state.speakers | {each.key or OPEN_ID for each in told_now},
        steps_before=state.step - state.step_open,
        trail=(),
    )


def _steer(said: SteerReceived) -> Message:
    return Message("user", said.content, images=said.images)


def _correct(state: State, event: StructuredRetried) -> State:
    """The model is asked again within the step: to put an answer right costs no step."""
    return replace(
        state,
        messages=(*state.messages, Message("user", event.notice)),
        replied=False,
        corrections=event.attempt,
    )


def _notice(state: State, event: LoopDetected) -> State:
    """The trail begins anew: what was told of once is not told of again with each call."""
    messages = state.messages
    if event.action == "warn":
        messages = (*messages, Message("user", event.notice))
    return replace(state, messages=messages, trail=())


def _reply(state: State, event: MessageCompleted) -> State:
    said = Message("assistant", event.content, sealed=event.sealed)
    return replace(
        state,
        messages=(*state.messages, said),
        replied=True,
        finish_reason=event.finish_reason,
        open_message=None,
        message_lost=False,
        failures=0,
        failure=None,
        crashes=0,
        usage=state.usage + event.usage,
    )


def _abort(state: State, event: MessageAborted) -> State:
    return replace(
        state,
        open_message=None,
        message_lost=False,
        failures=state.failures + 1 if event.error else state.failures,
        failure=event.error,
        usage=state.usage + event.usage,
    )


def _request(state: State, event: ToolCallRequested) -> State:
    call = ToolCall(
        event.call_id,
        event.name,
        event.arguments,
        event.provider_call_id,
        event.malformed,
        event.kind,
    )
    reply = state.messages[-1]
    asked = replace(reply, calls=(*reply.calls, call))
    return replace(
        state,
        messages=(*state.messages[:-1], asked),
        calls={**state.calls, call.id: OpenCall(call)},
    )


def _screen_call(state: State, event: ToolCallScreened) -> State:
    """A call that the guardrails changed is not the one that anybody has approved."""
    open_call = replace(state.calls[event.call_id], screened=True, blocked=event.blocked)
    if event.arguments is None:
        seen = replace(open_call, status=open_call.resting)
    else:
        seen = replace(
            open_call,
            status=CallStatus.REQUESTED,
            call=replace(open_call.call, arguments=event.arguments),
            digest=None,
            approved_by=None,
            comment=None,
        )
    calls = {**state.calls, event.call_id: seen}
    return replace(state, calls=calls, usage=state.usage + event.usage)


def _count(state: State, event: ToolCallCounted) -> State:
    open_call = state.calls[event.call_id]
    counts = {**open_call.counts, **event.counts}
    return _mark(state, event.call_id, status=open_call.resting, counts=counts)


def _check(state: State, event: ToolCallChecked) -> State:
    """What was found comes with an event of its own; what nobody knows is lost for good."""
    match event.found:
        case "found":
            return state
        case "absent":
            return _mark(state, event.call_id, status=CallStatus.REPEATABLE)
        case "unknown":
            return _mark(state, event.call_id, status=CallStatus.LOST, checked=True)


def _start(state: State, event: ToolCallStarted) -> State:
    open_call = state.calls[event.call_id]
    by_client = open_call.call.kind == "client"
    started = _mark(
        state,
        event.call_id,
        status=CallStatus.AWAITED if by_client else CallStatus.STARTED,
        attempt=event.attempt,
        effect=event.effect,
        given=event.arguments,
        checked=False,
        asking="call",
    )
    return replace(started, tool_calls=state.tool_calls + (open_call.attempt == 0))


def _complete(state: State, event: ToolCallCompleted) -> State:
    content = told(event.result)
    long = 0 if event.terminal else len(content)
    return _answer(state, event.call_id, content, whole=content, terminal=event.terminal, long=long)


def _compress(state: State, event: ToolResultCompressed) -> State:
    usage = state.usage + event.usage
    told_now = _mark(state, event.call_id, status=CallStatus.DONE, content=event.content, long=0)
    return replace(told_now, usage=usage)


def _answer(state: State, call_id: str, content: str, **more: object) -> State:
    answered = _mark(state, call_id, status=CallStatus.DONE, content=content, **more)
    return replace(answered, crashes=0) if state.crashes else answered


def _deny(state: State, event: ToolCallDenied) -> State:
    """A denial of the same call with the same arguments is remembered for the rest of the run."""
    name = state.calls[event.call_id].call.name
    content = f"Tool '{name}' denied by {event.by}: {event.reason}"
    denied = _mark(state, event.call_id, status=CallStatus.DONE, content=content)
    if (asked := state.calls[event.call_id].digest) is None:
        return denied
    return replace(denied, denials={**state.denials, asked: event.reason})


def _decided(state: State, event: ApprovalDecided) -> State:
    match event.decision:
        case "approve" | "not_happened":
            return _approve(state, event)
        case "deny":
            return _refuse(state, event.call_id, event.by, event.comment or "no reason was given")
        case "happened":
            return _mark(state, event.call_id, status=CallStatus.HAPPENED, brought=event.result)
        case "stop":
            said = f"; they say: {event.comment}" if event.comment else ""
            why = f"nobody knows what came of a call, and {event.by} stopped the run{said}"
            stopped = replace(state, failing=Failure("outcome_unknown", why))
            return _mark(stopped, event.call_id, status=CallStatus.UNKNOWN)


def _approve(state: State, event: ApprovalDecided) -> State:
    """Let the call be made, or once more: what did not happen may.

    What the guardrails have seen is not what an edit made of it.
    """
    open_call = state.calls[event.call_id]
    call, asked, screened = open_call.call, open_call.asked, open_call.screened
    if event.arguments is not None:
        wrote = written(event.arguments, asked or {}, call.arguments)
        call, asked, screened = replace(call, arguments=wrote), event.arguments, False
    again = event.decision == "not_happened"
    return _mark(
        state,
        event.call_id,
        status=CallStatus.REPEATABLE if again else CallStatus.APPROVED,
        call=call,
        asked=asked,
        screened=screened,
        digest=event.digest or open_call.digest,
        approved_by=event.by,
        comment=event.comment,
    )


def _expire(state: State, event: ApprovalExpired) -> State:
    silent = "nobody answered in time"
    if event.then == "fail":
        state = replace(state, failing=Failure("approval_expired", silent))
    return _refuse(state, event.call_id, "expiry", silent)


def _refuse(state: State, call_id: str, by: str, reason: str) -> State:
    """A no to a call that was cut off leaves nobody knowing what came of it."""
    if state.calls[call_id].status is CallStatus.DONE:
        return state  # Its run has ended, and said so before it took the question back.
    unknown = state.calls[call_id].asking == "outcome"
    status = CallStatus.UNKNOWN if unknown else CallStatus.DENIED
    return _mark(state, call_id, status=status, denied_by=by, denial=reason)


def _close_step(state: State) -> State:
    if not state.calls:
        return replace(state, step_open=False)
    made = (
        Footprint(each.call.name, each.call.arguments, each.whole or each.content)
        for each in state.calls.values()
    )
    return replace(
        state,
        messages=(*state.messages, *_results(state.calls)),
        trail=(*state.trail, *made)[-TRAIL_MAX:],
        calls={},
        step_open=False,
    )


def _mark(state: State, call_id: str, **changes: object) -> State:
    marked = replace(state.calls[call_id], **changes)  # type: ignore[arg-type]  # checked by tests
    return replace(state, calls={**state.calls, call_id: marked})
