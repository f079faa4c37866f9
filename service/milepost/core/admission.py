"""What becomes of one tool call: admitted, asked about, refused, recovered or made shorter."""

from collections.abc import Mapping

from milepost.core.agents import Compression
from milepost.core.canonical import call_digest
from milepost.core.effects import AskApproval, CallTool, CompressResult, Effect, Record, ScreenCall
from milepost.core.events import (
    Failure,
    PolicyDecided,
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
            return _admit_approved(open_call, rules.judge(open_call.call))
        case CallStatus.REPEATABLE:
            return _run_again(open_call, rules.judge(open_call.call))
        case CallStatus.DENIED:
            return _deny(open_call.call, open_call.denied_by, open_call.denial)
        case CallStatus.LOST:
            return _recover(open_call)
        case CallStatus.DONE:
            return _compress(open_call, rules.compression)
        case (
            CallStatus.SCREENING
            | CallStatus.ASKED
            | CallStatus.STARTED
            | CallStatus.AWAITED
            | CallStatus.COMPRESSING
        ):
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


def _admit(open_call: OpenCall, rules: Rules, state: State) -> Effect:
    """Permission and policy come first: only what may be made is looked at by the guardrails."""
    call = open_call.call
    ruling = rules.judge(call)
    if isinstance(ruling, Run | Ask) and rules.screens_calls and not open_call.screened:
        return ScreenCall(call, ruling.arguments)
    if open_call.blocked is not None:
        return Record((ToolCallFailed(call.id, Failure("guardrail_blocked", open_call.blocked)),))
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
