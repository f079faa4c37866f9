"""The agent loop: given where a run stands, what must happen next.

Pure. A run resumes after a crash by folding its log and calling `decide` again; nothing else is
remembered anywhere.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from milepost.core import ids
from milepost.core.agents import Compression
from milepost.core.canonical import call_digest
from milepost.core.effects import (
    AskApproval,
    CallModel,
    CallTool,
    Cancel,
    CompressResult,
    Effect,
    End,
    Park,
    Record,
)
from milepost.core.events import (
    ApprovalWithdrawn,
    Event,
    Failure,
    MessageAborted,
    ModelRetried,
    Output,
    PolicyDecided,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunIncomplete,
    StepCompleted,
    StepStarted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallStarted,
    ToolResultCompressing,
)
from milepost.core.json import Json
from milepost.core.messages import ToolCall
from milepost.core.repetition import ToolEffect, may_repeat
from milepost.core.rulings import Ask, Refuse, Reject, Rules, Ruling, Run
from milepost.core.state import CallStatus, OpenCall, State
from milepost.core.usage import UNKNOWN

CRASHES_MAX = 3
RETRY_AFTER_S_MAX = 60.0

UNKNOWN_OUTCOME = Failure(
    "outcome_unknown",
    "The worker that ran this tool was lost before it could say what came of it, so the tool may"
    " or may not have acted. Do not assume either,"
    " and do not repeat it before you have verified what happened.",
)
SKIPPED = Failure("skipped", "Skipped: the result of another call has ended the run.")


def decide(state: State, rules: Rules, now_ms: int) -> tuple[Effect, ...]:
    """Return the next effects; none means that the next move is a tool's, a model's or a person's.

    Effects whose opening events are already in the log are not returned again, so the shell may
    call this after every append.
    """
    if state.ended:
        return ()
    if state.cancelling:
        return (Cancel(),)
    if state.deadline_ms is not None and now_ms >= state.deadline_ms:
        return (End(RunExpired("deadline", state.usage)),)
    if state.message_lost and state.open_message:
        lost = MessageAborted(state.open_message, "its worker died", usage=UNKNOWN)
        return (Record((lost,)),)
    if state.crashes >= CRASHES_MAX:
        return () if state.waiting else (Park("operator", ()),)
    if state.calls:
        return _decide_calls(state, rules)
    if state.open_message:
        return ()
    if state.step_open and state.replied:
        return (_end(state),)
    return _decide_message(state, rules)


def _decide_calls(state: State, rules: Rules) -> tuple[Effect, ...]:
    calls = state.calls.values()
    if any(call.terminal for call in calls):
        return _decide_terminal(state, rules)
    decisions = (_decide_call(call, state, rules) for call in calls)
    if effects := tuple(effect for effect in decisions if effect):
        return effects
    if all(call.status is CallStatus.DONE for call in calls):
        return (Record((StepCompleted(state.step),)),)
    return _park(state)


def _decide_terminal(state: State, rules: Rules) -> tuple[Effect, ...]:
    """End with the first terminal result, once what has begun has come to its end.

    What has not begun is skipped: a vendor refuses a conversation with a call left unanswered.
    """
    calls = state.calls.values()
    if skipped := [event for call in calls if call.status in _UNBEGUN for event in _skip(call)]:
        return (Record(tuple(skipped)),)
    begun = (call for call in calls if call.status is not CallStatus.DONE)
    if effects := tuple(effect for call in begun if (effect := _decide_call(call, state, rules))):
        return effects
    if any(call.status in _IN_HAND for call in calls):
        return ()
    answer = next(call.content for call in calls if call.terminal)
    closing = (StepCompleted(state.step),)
    return (End(RunCompleted(Output(answer), state.usage, "terminal"), closing),)


def _skip(open_call: OpenCall) -> tuple[Event, ...]:
    call_id = open_call.call.id
    failed = ToolCallFailed(call_id, SKIPPED)
    if open_call.status is CallStatus.ASKED and open_call.approval_id:
        return (ApprovalWithdrawn(open_call.approval_id, call_id), failed)
    return (failed,)


_IN_HAND = frozenset({CallStatus.STARTED, CallStatus.COMPRESSING})
_UNBEGUN = frozenset(
    {
        CallStatus.REQUESTED, CallStatus.ASKED, CallStatus.APPROVED, CallStatus.DENIED,
        CallStatus.AWAITED,
    }
)  # fmt: skip


def _park(state: State) -> tuple[Effect, ...]:
    """Wait for people and clients only when nothing else in the step can proceed."""
    calls = state.calls.values()
    if state.waiting or any(call.status in _IN_HAND for call in calls):
        return ()
    asked = [call.approval_id or "" for call in calls if call.status is CallStatus.ASKED]
    awaited = [call.call.id for call in calls if call.status is CallStatus.AWAITED]
    return (Park("approval" if asked else "client_tool", (*asked, *awaited)),)


def _decide_call(open_call: OpenCall, state: State, rules: Rules) -> Effect | None:
    match open_call.status:
        case CallStatus.REQUESTED:
            return _admit(open_call, rules.judge(open_call.call), state)
        case CallStatus.APPROVED:
            return _admit_approved(open_call, rules.judge(open_call.call))
        case CallStatus.REPEATABLE:
            return _run_again(open_call, rules.judge(open_call.call))
        case CallStatus.DENIED:
            return _deny(open_call.call, open_call.denied_by, open_call.denial)
        case CallStatus.LOST:
            return _recover(open_call)
        case CallStatus.DONE:
            return _compress(open_call, rules.compression)
        case CallStatus.ASKED | CallStatus.STARTED | CallStatus.AWAITED | CallStatus.COMPRESSING:
            return None


def _compress(open_call: OpenCall, compression: Compression | None) -> Effect | None:
    """Have a result made shorter that is longer than the agent wants to pay for."""
    if compression is None or open_call.long <= compression.threshold_chars:
        return None
    opening = ToolResultCompressing(open_call.call.id, compression.model, open_call.long)
    return CompressResult(open_call.call, open_call.content, opening)


def _call(
    open_call: OpenCall, arguments: Mapping[str, Json], effect: ToolEffect, coerced: tuple[str, ...]
) -> Effect:
    """Have the tool run: by us, or by the client, who then sends what came of it."""
    call, attempt = open_call.call, open_call.attempt + 1
    if call.kind != "client":
        by, comment = open_call.approved_by, open_call.comment
        return CallTool(call, arguments, effect, attempt, coerced, by, comment)
    changed = dict(arguments) if dict(arguments) != dict(call.arguments) else None
    return Record((ToolCallStarted(call.id, attempt, effect, changed, coerced),))


def _admit(open_call: OpenCall, ruling: Ruling, state: State) -> Effect:
    call = open_call.call
    match ruling:
        case Run(arguments, effect, coerced):
            return _call(open_call, arguments, effect, coerced)
        case Ask(arguments, _, reason):
            asked = call_digest(call.name, arguments)
            if denial := state.denials.get(asked):
                return _deny(call, "an earlier answer in this run", denial)
            return AskApproval(call, arguments, asked, reason)
        case Refuse(by, reason):
            judged = PolicyDecided(call.id, "deny", reason)
            return Record((judged, ToolCallDenied(call.id, by, reason)))
        case Reject(error):
            return Record((ToolCallFailed(call.id, error),))


def _admit_approved(open_call: OpenCall, ruling: Ruling) -> Effect:
    """Judge again what was approved: a deny still wins, and only the approved arguments run."""
    call = open_call.call
    match ruling:
        case Run(arguments, effect, coerced) | Ask(arguments, effect, _, coerced):
            if call_digest(call.name, arguments) != open_call.digest:
                return _deny(call, "approval", "the arguments are not those that were approved")
            return _call(open_call, arguments, effect, coerced)
        case Refuse(by, reason):
            return _deny(call, by, reason)
        case Reject(error):
            return Record((ToolCallFailed(call.id, error),))


def _run_again(open_call: OpenCall, ruling: Ruling) -> Effect:
    """A lost call that is safe to repeat keeps its approval, if it had one."""
    if open_call.digest is not None:
        return _admit_approved(open_call, ruling)
    match ruling:
        case Run(arguments, effect, coerced):
            return _call(open_call, arguments, effect, coerced)
        case Ask(arguments, _, reason):
            asked = call_digest(open_call.call.name, arguments)
            return AskApproval(open_call.call, arguments, asked, reason)
        case Refuse(by, reason):
            return _deny(open_call.call, by, reason)
        case Reject(error):
            return Record((ToolCallFailed(open_call.call.id, error),))


def _recover(open_call: OpenCall) -> Effect:
    """A call that may have acted is repeated only where its declared effect makes that safe."""
    call_id = open_call.call.id
    if may_repeat(open_call.effect):
        return Record((ToolCallInterrupted(call_id, "repeat"),))
    unknown = ToolCallFailed(call_id, UNKNOWN_OUTCOME)
    return Record((ToolCallInterrupted(call_id, "tell_model"), unknown))


def _deny(call: ToolCall, by: str, reason: str) -> Effect:
    return Record((ToolCallDenied(call.id, by, reason),))


def _decide_message(state: State, rules: Rules) -> tuple[Effect, ...]:
    if state.failure:
        return _decide_retry(state, state.failure, rules)
    if not state.step_open and state.step >= rules.limits.max_steps:
        return (End(RunIncomplete("max_steps", Output(state.text), state.usage)),)
    opening: Iterable[Event] = () if state.step_open else (StepStarted(state.step + 1),)
    return (CallModel(ids.message_id(state.messages_started + 1), tuple(opening)),)


def _decide_retry(state: State, failure: Failure, rules: Rules) -> tuple[Effect, ...]:
    limits = rules.limits
    if not failure.retryable or state.failures > limits.model_retries:
        return (End(RunFailed(replace(failure, retry_after_s=None), state.usage)),)
    if failure.retry_after_s and failure.retry_after_s > RETRY_AFTER_S_MAX:
        # A run that waits keeps its worker's slot: whoever created it is told when to come back.
        return (End(RunFailed(failure, state.usage)),)
    wait_s = limits.retry_backoff_s * state.failures
    if failure.code == "provider_rate_limited":
        wait_s += limits.rate_limit_cooldown_s * state.failures
    wait_s = max(wait_s, failure.retry_after_s or 0)
    message_id = ids.message_id(state.messages_started + 1)
    retried = ModelRetried(message_id, state.failures + 1, round(wait_s * 1000), failure)
    return (CallModel(message_id, (retried,), wait_s),)


def _end(state: State) -> End:
    """The model asked for nothing more: the run ends with what it said."""
    closing = (StepCompleted(state.step),)
    output = Output(state.text)
    if state.finish_reason == "length":
        return End(RunIncomplete("output_tokens", output, state.usage), closing)
    if state.finish_reason == "content_filter":
        return End(RunIncomplete("content_filter", output, state.usage), closing)
    return End(RunCompleted(output, state.usage, state.finish_reason), closing)
