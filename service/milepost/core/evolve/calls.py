"""What becomes of a tool call."""

from milepost.core.copying import replace
from milepost.core.events import (
    ToolCallChecked,
    ToolCallCompleted,
    ToolCallCounted,
    ToolCallDenied,
    ToolCallRequested,
    ToolCallScreened,
    ToolCallStarted,
    ToolResultCompressed,
)
from milepost.core.messages import ToolCall, told
from milepost.core.open_call import CallStatus, OpenCall
from milepost.core.state import State


def request(state: State, event: ToolCallRequested) -> State:
    """Hang a call on the reply that asks for it."""
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


def screen(state: State, event: ToolCallScreened) -> State:
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


def count(state: State, event: ToolCallCounted) -> State:
    """Keep how often such calls were made; the call stands where it stood."""
    open_call = state.calls[event.call_id]
    counts = {**open_call.counts, **event.counts}
    return mark(state, event.call_id, status=open_call.resting, counts=counts)


def check(state: State, event: ToolCallChecked) -> State:
    """What was found comes with an event of its own; what nobody knows is lost for good."""
    match event.found:
        case "found":
            return state
        case "absent":
            return mark(state, event.call_id, status=CallStatus.REPEATABLE)
        case "unknown":
            return mark(state, event.call_id, status=CallStatus.LOST, checked=True)


def start(state: State, event: ToolCallStarted) -> State:
    """Keep what the tool gets; to start it again is no further call."""
    open_call = state.calls[event.call_id]
    by_client = open_call.call.kind == "client"
    started = mark(
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


def complete(state: State, event: ToolCallCompleted) -> State:
    """Tell the model what the tool brought."""
    content = told(event.result)
    long = 0 if event.terminal else len(content)
    return answer(state, event.call_id, content, whole=content, terminal=event.terminal, long=long)


def compress(state: State, event: ToolResultCompressed) -> State:
    """Tell the model less than what the tool brought."""
    usage = state.usage + event.usage
    told_now = mark(state, event.call_id, status=CallStatus.DONE, content=event.content, long=0)
    return replace(told_now, usage=usage)


def answer(state: State, call_id: str, content: str, **more: object) -> State:
    """Close a call with what the model is told. A run that achieves something has not crashed."""
    answered = mark(state, call_id, status=CallStatus.DONE, content=content, **more)
    return replace(answered, crashes=0) if state.crashes else answered


def deny(state: State, event: ToolCallDenied) -> State:
    """A denial of the same call with the same arguments is remembered for the rest of the run."""
    name = state.calls[event.call_id].call.name
    content = f"Tool '{name}' denied by {event.by}: {event.reason}"
    denied = mark(state, event.call_id, status=CallStatus.DONE, content=content)
    if (asked := state.calls[event.call_id].digest) is None:
        return denied
    return replace(denied, denials={**state.denials, asked: event.reason})


def mark(state: State, call_id: str, **changes: object) -> State:
    """Return the state with one call changed: `changes` are fields of `OpenCall`."""
    marked = replace(state.calls[call_id], **changes)  # type: ignore[arg-type]  # checked by tests
    return replace(state, calls={**state.calls, call_id: marked})
