"""Where a run forks off another one: what of the other's log the new one goes on from.

Pure. Nothing that was done before the point is done again: results are taken from the log. What was
under way there is not: a question falls away and is put anew, and of a call that had begun nobody
knows here what came of it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from milepost.core.canonical import call_digest
from milepost.core.decide import ROUTED
from milepost.core.errors import ConflictError
from milepost.core.events import (
    ApprovalDecided,
    ApprovalWithdrawn,
    Event,
    ForkedCall,
    GuardrailTriggered,
    InputMessage,
    LoopDetected,
    MessageAborted,
    MessageCompleted,
    ModelFellBack,
    ReasoningCompleted,
    RunForked,
    RunResumed,
    RunStarted,
    StepCompleted,
    StepStarted,
    Terminal,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
)
from milepost.core.evolve import evolve, fold
from milepost.core.json import Json
from milepost.core.messages import Message, ToolCall, told
from milepost.core.open_call import CallStatus, OpenCall
from milepost.core.state import State, transcript
from milepost.core.written import written
from milepost.runtime.calls import TOO_MANY
from milepost.runtime.logged import Logged
from milepost.runtime.settle import GIVEN_UP, RUN_ENDED
from milepost.telemetry.context import TraceContext, span_id_of, trace_id_of

_BEGUN = (StepStarted, StepCompleted, MessageCompleted)


@dataclass(frozen=True, slots=True)
class Forking:
    """What a fork begins with: its own input, which nobody has read yet, and all before that."""

    input: tuple[InputMessage, ...]
    forked: RunForked


class CallsOpenError(ConflictError):
    """Something is to be said where calls are open, whose results must come first."""

    code = "calls_open"


class NothingToContinueError(ConflictError):
    """There is nothing at this point that a model could be asked."""

    code = "nothing_to_continue"


def forking(
    log: Sequence[Logged],
    run_id: str,
    at_seq: int,
    *,
    history: tuple[Message, ...] = (),
    added: tuple[InputMessage, ...] = (),
    trace_parent: str | None = None,
) -> Forking:
    """Return what a fork behind event `at_seq` of the log begins with, `added` to its input.

    `history` is what was said in the session before the run, and `trace_parent` where its trace
    hangs. Raises `CallsOpenError` and `NothingToContinueError`.
    """
    end = _end(log, at_seq, adds=bool(added))
    past = log[:end]
    state = fold(each.event for each in past)
    if added and not _takes_words(state):
        raise _calls_open(log, at_seq, run_id)
    if state.blocked is not None and not added:
        raise NothingToContinueError(
            f"the guardrails blocked the input of run {run_id}, and nothing is left at event"
            f" {at_seq} that a model could be asked; give the fork an input"
        )
    said = (*_unread(state), *added)
    state = replace(state, steers=())
    begun = any(isinstance(each.event, _BEGUN) for each in past)
    own = () if begun else state.messages[state.inherited :]
    before = state.messages[: len(state.messages) - len(own)]
    forked = RunForked(
        run_id=run_id,
        at_seq=at_seq,
        conversation=(*history, *before),
        step=state.step,
        guarded=_guarded(state, log, end, run_id),
        trace_parent=_place_in_trace(past, run_id, trace_parent),
    )
    forked = _between_steps(forked, state) if said else _within_step(forked, state)
    return Forking((*map(_given, own), *said), forked)


def _end(log: Sequence[Logged], at_seq: int, *, adds: bool) -> int:
    """Return how many of the log's events the fork goes on from.

    A message is there with all of its calls or not at all, what people say that a call has brought
    with what that came to, and a fork is one from its second event on. Where nothing is added, a
    run that has ended goes on as if it had not.
    """
    end = bisect_right(log, at_seq, key=lambda each: each.seq)
    end = max(end, sum(isinstance(each.event, RunForked) for each in log[:2]) + 1)
    begin, whole = _reply_around(log, end)
    if begin < end < whole:
        return begin
    end = _behind_what_is_brought(log, end)
    return end if adds else min(end, _ending(log))


def _behind_what_is_brought(log: Sequence[Logged], end: int) -> int:
    """Return the end; within what people say, it is behind what that came to past its rails."""
    said, brought = end - 1, end
    while said and isinstance(log[said].event, GuardrailTriggered):
        said -= 1
    while brought < len(log) and isinstance(log[brought].event, GuardrailTriggered):
        brought += 1
    if brought < len(log) and _is_brought(log[said].event, log[brought].event):
        return brought + 1
    return end


def _is_brought(said: Event, event: Event) -> bool:
    """Say whether the event is what came of a call of which people `said` that it had happened."""
    match said, event:
        case ApprovalDecided(call_id=call_id, decision="happened"), ToolCallCompleted():
            return event.call_id == call_id
        case _:
            return False


def _reply_around(log: Sequence[Logged], end: int) -> tuple[int, int]:
    """Return where the last reply before `end` stands: what it asked for came together with it."""
    begin = next((i for i in range(end - 1, -1, -1) if _is_reply(log[i].event)), None)
    if begin is None:
        return end, end
    whole = after = begin + 1
    while after < len(log) and (of_it := _is_of_reply(log[after].event)) is not None:
        after += 1
        whole = after if of_it else whole
    return begin, whole


def _is_reply(event: Event) -> bool:
    return isinstance(event, MessageCompleted)


def _is_of_reply(event: Event) -> bool | None:
    """Say whether the event is one of the calls that a reply asks for; None if it ends those."""
    match event:
        case ToolCallRequested():
            return True
        case ToolCallFailed(error=error) if error == TOO_MANY:
            return True
        case ModelFellBack() | GuardrailTriggered() | ReasoningCompleted():
            return False
        case _:
            return None


def _ending(log: Sequence[Logged]) -> int:
    """Return where the end of the run begins: what was closed together with it, and for it."""
    if not isinstance(log[-1].event, Terminal):
        return len(log)
    start = len(log) - 1
    while start and _closes(log[start - 1].event):
        start -= 1
    return start


def _closes(event: Event) -> bool:
    match event:
        case StepCompleted() | ApprovalWithdrawn() | LoopDetected(action="stop"):
            return True
        case ToolCallFailed(error=error):
            return error.code in {GIVEN_UP.code, ROUTED.code}
        case MessageAborted(reason=reason):
            return reason == RUN_ENDED
        case _:
            return False


def _takes_words(state: State) -> bool:
    """Say whether somebody may speak: a call is followed by its result, before all else."""
    return state.ended or all(call.status is CallStatus.DONE for call in state.calls.values())


def _unread(state: State) -> tuple[InputMessage, ...]:
    """Return what was said to the run and no model has read, if it may be said here."""
    if not _takes_words(state):
        return ()
    return tuple(InputMessage("user", said.content, said.images) for said in state.steers)


def _calls_open(log: Sequence[Logged], at_seq: int, run_id: str) -> CallsOpenError:
    near = min(_open_to_words(log), key=lambda seq: (abs(seq - at_seq), seq))
    return CallsOpenError(
        f"at event {at_seq} of run {run_id} calls are open, and nothing can be said before their"
        f" results; fork at event {near} instead, or without an input"
    )


def _open_to_words(log: Sequence[Logged]) -> Iterator[int]:
    """Yield the points at which something can be said."""
    state = State()
    for place, each in enumerate(log, start=1):
        state = evolve(state, each.event)
        if _takes_words(state) or _end(log, each.seq, adds=True) < place:
            yield each.seq


def _between_steps(forked: RunForked, state: State) -> RunForked:
    """Let the next step begin: all calls of the last one have come to something."""
    results = transcript(state)[len(state.messages) :]
    return replace(forked, conversation=(*forked.conversation, *results))


def _within_step(forked: RunForked, state: State) -> RunForked:
    """Go on in the step that is open, if one is."""
    asked = {call.id: call for call in state.messages[-1].calls} if state.messages else {}
    return replace(
        forked,
        step_open=state.step_open,
        replied=state.replied,
        finish_reason=state.finish_reason,
        calls=tuple(_forked(call, asked[call_id]) for call_id, call in state.calls.items()),
    )


def _forked(open_call: OpenCall, asked: ToolCall) -> ForkedCall:
    """Return the call as the fork finds it. No approval is taken along, nor what it was edited to.

    Nor is the other run's key: what only that key made safe to repeat is not safe here.
    """
    match open_call.status:
        case CallStatus.DONE | CallStatus.COMPRESSING:
            content, long = open_call.content, open_call.long
            return ForkedCall(asked, "done", content, terminal=open_call.terminal, long=long)
        case CallStatus.HAPPENED:
            content = told(open_call.brought)
            return ForkedCall(asked, "done", content, long=len(content))
        case CallStatus.DENIED:
            return ForkedCall(asked, "denied", open_call.denial, open_call.denied_by)
        case _ if _may_have_acted(open_call):
            call = replace(asked, arguments=_arguments(open_call))
            return ForkedCall(call, "unknown", by=open_call.approved_by or "")
        case _:
            return ForkedCall(asked, "requested")


def _may_have_acted(open_call: OpenCall) -> bool:
    return open_call.attempt > 0 and open_call.effect != "read"


def _arguments(open_call: OpenCall) -> Mapping[str, Json]:
    return open_call.call.arguments if open_call.given is None else open_call.given


def _guarded(state: State, log: Sequence[Logged], end: int, run_id: str) -> dict[str, str]:
    """Return the calls that are not made again without a question, by their digests.

    They are those that the run has made since, and those that it had begun by then.
    """
    guarded = dict(state.guarded)
    begun = {
        each.event.call_id: each.seq
        for each in log[:end]
        if isinstance(each.event, ToolCallStarted)
    }
    for call_id, lost in state.calls.items():
        if call_id in begun and lost.status is not CallStatus.DONE and _may_have_acted(lost):
            why = f"run {run_id} has begun this very call at its event {begun[call_id]}"
            guarded |= dict.fromkeys(_digests(lost.call, _arguments(lost)), why)
    for each in log[end:]:
        event = each.event
        if isinstance(event, ToolCallStarted) and event.effect != "read":
            call = state.calls[event.call_id].call
            given = call.arguments if event.arguments is None else event.arguments
            why = f"run {run_id} has made this very call at its event {each.seq}"
            guarded = {**dict.fromkeys(_digests(call, given), why), **guarded}
        state = evolve(state, event)
    return guarded


def _digests(call: ToolCall, given: Mapping[str, Json]) -> tuple[str, ...]:
    """Return what tells a call: all that its tool got, and without what was a default by then.

    By now it may have another one, and would make the same call all the same.
    """
    wrote = written(given, given, call.arguments)
    return call_digest(call.name, given), call_digest(call.name, wrote)


def _place_in_trace(past: Sequence[Logged], run_id: str, trace_parent: str | None) -> str | None:
    """Return the span of the other run that was open at the point, if it was begun by then."""
    claims = (
        each.seq for each in reversed(past) if isinstance(each.event, RunStarted | RunResumed)
    )
    if (seq := next(claims, None)) is None:
        return None
    above = TraceContext.parse(trace_parent)
    trace_id = above.trace_id if above else trace_id_of(run_id)
    return TraceContext(trace_id, span_id_of(run_id, seq)).header()


def _given(message: Message) -> InputMessage:
    return InputMessage(message.role, message.content, message.images)
