"""What is said to a run, and what of it falls out of its sight."""

from collections.abc import Iterable

from milepost.core.approvers import OPEN_ID
from milepost.core.copying import replace
from milepost.core.events import (
    InputMessage,
    InputScreened,
    MemorySummarized,
    MemoryTrimmed,
    SteerApplied,
    SteerReceived,
)
from milepost.core.messages import Message
from milepost.core.state import State, as_message


def said_by(given: Iterable[InputMessage]) -> tuple[Message, ...]:
    """Return what a client gave as messages."""
    return tuple(Message(turn.role, turn.content, images=turn.images) for turn in given)


def screen(state: State, event: InputScreened) -> State:
    """What was blocked is no part of the conversation: neither this run's nor a later one's."""
    inherited, said = state.messages[: state.inherited], state.messages[state.inherited :]
    if event.blocked:
        said = ()
    elif event.input is not None:
        said = said_by(event.input)
    return replace(
        state,
        messages=(*inherited, *said),
        screening=False,
        screened=True,
        blocked=event.blocked,
        usage=state.usage + event.usage,
    )


def hear(state: State, event: SteerReceived) -> State:
    """Keep what is said for later: behind open calls nothing may stand but their results."""
    steers = state.steers if event.blocked is not None else (*state.steers, event)
    return replace(state, steers=steers, steered=state.steered | {event.message_id})


def turn_to(state: State, event: SteerApplied) -> State:
    """Whoever is told something new has all of the agent's steps for it, and is in no circle."""
    told_now = tuple(each for each in state.steers if each.message_id in event.message_ids)
    left = tuple(each for each in state.steers if each.message_id not in event.message_ids)
    return replace(
        state,
        messages=(*state.messages, *map(as_message, told_now)),
        steers=left,
        speakers=state.speakers | {each.key or OPEN_ID for each in told_now},
        steps_before=state.step - state.step_open,
        trail=(),
    )


def trim(state: State, event: MemorySummarized | MemoryTrimmed) -> State:
    """What fell out of sight is done with, whatever is told of it."""
    content = event.content if isinstance(event, MemorySummarized) else ""
    usage = state.usage + event.usage
    return replace(state, trim=None, summarizing=None, summary=content, usage=usage)
