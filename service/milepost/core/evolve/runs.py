"""How a run begins: of its own, in the middle of another one, or anew with another worker."""

from milepost.core.copying import replace
from milepost.core.events import ForkedCall, RunForked, RunImported, RunQueued, RunResumed
from milepost.core.evolve.said import said_by
from milepost.core.open_call import CallStatus, OpenCall
from milepost.core.state import State

_AFTER_A_LOSS = {
    CallStatus.STARTED: CallStatus.LOST,
    CallStatus.CHECKING: CallStatus.LOST,
    CallStatus.COMPRESSING: CallStatus.DONE,
}


def queue(state: State, event: RunQueued) -> State:
    """Take what was asked for."""
    return replace(
        state,
        messages=said_by(event.input),
        deadline_ms=event.deadline_ms,
        response_format=event.response_format,
        cache=event.cache,
        parent=event.parent,
        bounds=event.bounds,
        channel=event.channel,
        speakers=frozenset(event.speakers),
    )


def fork(state: State, event: RunForked) -> State:
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


def take_over(state: State, event: RunImported) -> State:
    """What was said elsewhere was said; each reply took a step."""
    messages = (*state.messages, *event.conversation)
    steps = sum(message.role == "assistant" for message in messages)
    return replace(state, messages=messages, step=steps, screened=True)


def resume(state: State, event: RunResumed) -> State:
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


def _after_a_loss(call: OpenCall) -> CallStatus:
    """Making a result shorter has no effect on the world, nor has looking at a call, or counting.

    All that is simply done again.
    """
    if call.status in {CallStatus.SCREENING, CallStatus.COUNTING}:
        return call.resting
    return _AFTER_A_LOSS.get(call.status, call.status)
