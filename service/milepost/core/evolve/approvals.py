"""What people say of a tool call."""

from milepost.core.copying import replace
from milepost.core.events import ApprovalDecided, ApprovalExpired, ApprovalRequested, Failure
from milepost.core.evolve.calls import mark
from milepost.core.open_call import CallStatus
from milepost.core.state import State
from milepost.core.written import written


def ask(state: State, event: ApprovalRequested) -> State:
    """Keep what people are asked about a call, and whom."""
    return mark(
        state,
        event.call_id,
        status=CallStatus.ASKED,
        approval_id=event.approval_id,
        digest=event.digest,
        asking=event.kind,
        asked=event.arguments,
        approvers=event.approvers,
    )


def decide(state: State, event: ApprovalDecided) -> State:
    """Do with a call as a person says."""
    match event.decision:
        case "approve" | "not_happened":
            return _approve(state, event)
        case "deny":
            return refuse(state, event.call_id, event.by, event.comment or "no reason was given")
        case "happened":
            return mark(state, event.call_id, status=CallStatus.HAPPENED, brought=event.result)
        case "stop":
            said = f"; they say: {event.comment}" if event.comment else ""
            why = f"nobody knows what came of a call, and {event.by} stopped the run{said}"
            stopped = replace(state, failing=Failure("outcome_unknown", why))
            return mark(stopped, event.call_id, status=CallStatus.UNKNOWN)


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
    return mark(
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


def expire(state: State, event: ApprovalExpired) -> State:
    """Take silence for a no, and for the run's end where its policy says so."""
    silent = "nobody answered in time"
    if event.then == "fail":
        state = replace(state, failing=Failure("approval_expired", silent))
    return refuse(state, event.call_id, "expiry", silent)


def refuse(state: State, call_id: str, by: str, reason: str) -> State:
    """A no to a call that was cut off leaves nobody knowing what came of it."""
    if state.calls[call_id].status is CallStatus.DONE:
        return state  # Its run has ended, and said so before it took the question back.
    unknown = state.calls[call_id].asking == "outcome"
    status = CallStatus.UNKNOWN if unknown else CallStatus.DENIED
    return mark(state, call_id, status=status, denied_by=by, denial=reason)
