"""What a model says in a step, and how the step ends."""

from milepost.core.copying import replace
from milepost.core.events import LoopDetected, MessageAborted, MessageCompleted, StructuredRetried
from milepost.core.loops import TRAIL_MAX, Footprint
from milepost.core.messages import Message
from milepost.core.state import State, results


def reply(state: State, event: MessageCompleted) -> State:
    """Take a whole reply. A run whose model answers has not crashed."""
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


def abort(state: State, event: MessageAborted) -> State:
    """Forget the message: what of it was shown is no part of the conversation."""
    return replace(
        state,
        open_message=None,
        message_lost=False,
        failures=state.failures + 1 if event.error else state.failures,
        failure=event.error,
        usage=state.usage + event.usage,
    )


def correct(state: State, event: StructuredRetried) -> State:
    """The model is asked again within the step: to put an answer right costs no step."""
    return replace(
        state,
        messages=(*state.messages, Message("user", event.notice)),
        replied=False,
        corrections=event.attempt,
    )


def notice(state: State, event: LoopDetected) -> State:
    """The trail begins anew: what was told of once is not told of again with each call."""
    messages = state.messages
    if event.action == "warn":
        messages = (*messages, Message("user", event.notice))
    return replace(state, messages=messages, trail=())


def close(state: State) -> State:
    """Put the results behind the reply that asked for them, and the calls on the trail."""
    if not state.calls:
        return replace(state, step_open=False)
    made = (
        Footprint(each.call.name, each.call.arguments, each.whole or each.content)
        for each in state.calls.values()
    )
    return replace(
        state,
        messages=(*state.messages, *results(state.calls)),
        trail=(*state.trail, *made)[-TRAIL_MAX:],
        calls={},
        step_open=False,
    )
