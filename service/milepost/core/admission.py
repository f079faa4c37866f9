"""What becomes of one tool call: admitted, asked about, refused, recovered or made shorter."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile

from milepost.core import bounds
from milepost.core.canonical import call_digest
from milepost.core.effects import (
    AskApproval,
    CallTool,
    CheckCall,
    CompressResult,
    CountCall,
    Effect,
    Record,
    ScreenCall,
)
from milepost.core.events import (
    Failure,
    PolicyDecided,
    RunFailing,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallStarted,
    ToolResultCompressing,
)
from milepost.core.json import Json
from milepost.core.messages import ToolCall
from milepost.core.open_call import CallStatus, OpenCall
from milepost.core.policy import PLAIN
from milepost.core.repetition import OnUnknown, ToolEffect, may_repeat
from milepost.core.rulings import Ask, Count, Refuse, Reject, Rules, Ruling, Run
from milepost.core.state import State

UNKNOWN_OUTCOME = Failure(
    "outcome_unknown",
    "The worker that ran this tool was lost before it could say what came of it, so the tool may"
    " or may not have acted. Do not assume either,"
    " and do not repeat it before you have verified what happened.",
)


def decide_call(open_call: OpenCall, state: State, rules: Rules) -> Effect | None:
    match open_call.status:
        case CallStatus.REQUESTED:
            return _admit(open_call, rules, state)
        case CallStatus.APPROVED:
            ruling = _judge_settled(open_call, open_call.asked, rules)
            return _look(open_call, ruling, rules) or _admit_approved(open_call, ruling)
        case CallStatus.REPEATABLE:
            ruling = _judge_settled(open_call, _given(open_call), rules)
            return _look(open_call, ruling, rules) or _run_again(open_call, ruling)
        case CallStatus.DENIED:
            return _deny(open_call.call, open_call.denied_by, open_call.denial)
        case CallStatus.LOST:
            return _recover(open_call, rules)
        case CallStatus.HAPPENED:
            # In logs of older workers alone: others write it down beside the decision.
            return Record((ToolCallCompleted(open_call.call.id, open_call.brought, 0),))
        case CallStatus.UNKNOWN:
            return Record((ToolCallFailed(open_call.call.id, UNKNOWN_OUTCOME),))
        case CallStatus.DONE:
            return _compress(open_call, state, rules)
        case (
            CallStatus.SCREENING
            | CallStatus.COUNTING
            | CallStatus.CHECKING
            | CallStatus.ASKED
            | CallStatus.STARTED
            | CallStatus.AWAITED
            | CallStatus.COMPRESSING
        ):
            return None


def look_at(
    open_call: OpenCall,
    arguments: Mapping[str, Json],
    rules: Rules,
    given: Mapping[str, Json] | None = None,
) -> Effect | None:
    """Have the guardrails look at a call, or tell the model what they have against it.

    None where they have nothing, and where there are none.
    """
    call = open_call.call
    if rules.screens_calls and not open_call.screened:
        return ScreenCall(call, arguments, given)
    if open_call.blocked is not None:
        return Record((ToolCallFailed(call.id, Failure("guardrail_blocked", open_call.blocked)),))
    return None


def _judge_settled(open_call: OpenCall, settled: Mapping[str, Json] | None, rules: Rules) -> Ruling:
    """Judge a call whose arguments were settled, by a yes or by the attempt before.

    They hold, whatever defaults a tool has that was deployed anew in between.
    """
    call, counts = open_call.call, open_call.counts
    ruling = rules.judge(call, counts)
    if settled is None:
        return ruling
    if isinstance(ruling, Run | Ask):
        digest = open_call.digest or call_digest(call.name, settled)
        if digest in _digests(call, ruling):
            return ruling
    return rules.judge(replace(call, arguments=settled), counts)


def _look(open_call: OpenCall, ruling: Ruling, rules: Rules) -> Effect | None:
    """Only what may be made is looked at, be it as the model or as an approver wants it."""
    match ruling:
        case Run(arguments, given=given) | Ask(arguments, given=given):
            return look_at(open_call, arguments, rules, given)
        case _:
            return None


def _compress(open_call: OpenCall, state: State, rules: Rules) -> Effect | None:
    """Have a result made shorter that is longer than the agent wants to pay for.

    One for which the run's own bounds leave no call stays: the run ends before anybody reads it.
    """
    compression = rules.compression
    if compression is None or open_call.long <= compression.threshold_chars:
        return None
    calls = state.calls.values()
    before = takewhile(lambda call: call is not open_call, calls)
    begun = sum(call.status is CallStatus.COMPRESSING for call in calls) + sum(
        call.status is CallStatus.DONE and call.long > compression.threshold_chars
        for call in before
    )
    if bounds.exceeded(state, rules.limits, begun=begun):
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


def _admit(open_call: OpenCall, rules: Rules, state: State) -> Effect:
    """Permission and policy come first: only what may be made is looked at by the guardrails."""
    call = open_call.call
    ruling = _guarded(rules.judge(call, open_call.counts), call, state)
    if look := _look(open_call, ruling, rules):
        return look
    match ruling:
        case Run(arguments, effect, coerced):
            return _call(open_call, arguments, effect, coerced)
        case Ask(arguments, _, reason, _, terms):
            asked = call_digest(call.name, arguments)
            if denial := state.denials.get(asked):
                return _deny(call, "an earlier answer in this run", denial)
            return AskApproval(call, arguments, asked, reason, terms)
        case Count(_, wanted):
            return CountCall(call, wanted)
        case Refuse(by, reason):
            judged = PolicyDecided(call.id, "deny", reason)
            return Record((judged, ToolCallDenied(call.id, by, reason)))
        case Reject(error):
            return Record((ToolCallFailed(call.id, error),))


def _guarded(ruling: Ruling, call: ToolCall, state: State) -> Ruling:
    """A fork asks before it does what the run that it was forked from has done since.

    What a grant lets run is asked of those who could have answered it without one.
    """
    if not state.guarded or not isinstance(ruling, Run | Ask) or ruling.effect == "read":
        return ruling
    found = (state.guarded.get(digest) for digest in _digests(call, ruling))
    if (why := next(filter(None, found), None)) is None:
        return ruling
    match ruling:
        case Run(arguments, effect, coerced):
            return Ask(arguments, effect, why, coerced, ruling.terms)
        case Ask(reason=reason):
            return replace(ruling, reason=f"{reason}; {why}")


def _admit_approved(open_call: OpenCall, ruling: Ruling) -> Effect:
    """Judge again what was approved: a deny still wins, and only the approved arguments run."""
    call = open_call.call
    match ruling:
        case Count(_, wanted):
            return CountCall(call, wanted)
        case Run(arguments, effect, coerced) | Ask(arguments, effect, _, coerced):
            if open_call.digest not in _digests(call, ruling):
                return _deny(call, "approval", "the arguments are not those that were approved")
            return _call(open_call, arguments, effect, coerced)
        case Refuse(by, reason):
            return _deny(call, by, reason)
        case Reject(error):
            return Record((ToolCallFailed(call.id, error),))


def _digests(call: ToolCall, ruling: Run | Ask) -> tuple[str, ...]:
    """Return what a yes to this very call binds: with the defaults of what it leaves out, or not.

    Without them for who said yes before the tool had them.
    """
    full = call_digest(call.name, ruling.arguments)
    if ruling.given is None or ruling.given == ruling.arguments:
        return (full,)
    return full, call_digest(call.name, ruling.given)


def _run_again(open_call: OpenCall, ruling: Ruling) -> Effect:
    """A lost call that is safe to repeat keeps its approval, if it had one."""
    if open_call.digest is not None:
        return _admit_approved(open_call, ruling)
    match ruling:
        case Run(arguments, effect, coerced):
            return _call(open_call, arguments, effect, coerced)
        case Ask(arguments, _, reason, _, terms):
            asked = call_digest(open_call.call.name, arguments)
            return AskApproval(open_call.call, arguments, asked, reason, terms)
        case Count(_, wanted):
            return CountCall(open_call.call, wanted)
        case Refuse(by, reason):
            return _deny(open_call.call, by, reason)
        case Reject(error):
            return Record((ToolCallFailed(open_call.call.id, error),))


def _recover(open_call: OpenCall, rules: Rules) -> Effect:
    """A call that may have acted is repeated only where its declared effect makes that safe."""
    call_id = open_call.call.id
    if may_repeat(open_call.effect):
        return Record((ToolCallInterrupted(call_id, "repeat"),))
    if open_call.effect == "checkable" and not open_call.checked:
        return CheckCall(open_call.call, _given(open_call))
    match rules.on_unknown(open_call.call) or _usually(open_call):
        case "ask":
            return _ask_what_came_of_it(open_call, rules)
        case "fail":
            failing = RunFailing(replace(UNKNOWN_OUTCOME, message=_unknown(open_call.call)))
            return Record((ToolCallInterrupted(call_id, "fail"), failing))
        case "tell_model":
            unknown = ToolCallFailed(call_id, UNKNOWN_OUTCOME)
            return Record((ToolCallInterrupted(call_id, "tell_model"), unknown))


def _usually(open_call: OpenCall) -> OnUnknown:
    """Whoever had to say yes to a call is asked what came of it."""
    return "tell_model" if open_call.approved_by is None else "ask"


def _ask_what_came_of_it(open_call: OpenCall, rules: Rules) -> AskApproval:
    """Ask those who could have approved the call; one answer is enough.

    Where rules name nobody any more, or no tool is there to judge the call by, those who were asked
    about it.
    """
    call, given = open_call.call, _given(open_call)
    ruling = rules.judge(call, open_call.counts)
    terms = PLAIN if isinstance(ruling, Count | Reject) else ruling.terms
    terms = replace(terms, required=1, approvers=terms.approvers or open_call.approvers)
    opening = (ToolCallInterrupted(call.id, "ask"),)
    asked = call_digest(call.name, given)
    return AskApproval(call, given, asked, _unknown(call), terms, "outcome", opening)


def _unknown(call: ToolCall) -> str:
    return f"the worker that ran {call.name} was lost, and nobody knows whether it has acted"


def _given(open_call: OpenCall) -> Mapping[str, Json]:
    """Return what the tool got."""
    return open_call.call.arguments if open_call.given is None else open_call.given


def _deny(call: ToolCall, by: str, reason: str) -> Effect:
    return Record((ToolCallDenied(call.id, by, reason),))
