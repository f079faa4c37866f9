"""What comes in for a run from outside, as the events that it becomes."""

from collections.abc import Iterable

import orjson

from milepost.core.events import Event, RunCancelling, RunRetried
from milepost.core.open_call import CallStatus
from milepost.core.state import State
from milepost.runtime import approval_letters, children, client_calls, steering
from milepost.store import records
from milepost.store.records import InboxMessage


def events_of(letters: Iterable[InboxMessage], state: State) -> list[Event]:
    """Return the events of what came in; what no longer concerns the run becomes nothing."""
    events: list[Event] = []
    for letter in letters:
        if letter.kind == children.LETTER:
            events += children.events_of_child(orjson.loads(letter.data), state)
        elif event := _event_of(letter, state):
            events.append(event)
    return events


def _event_of(letter: InboxMessage, state: State) -> Event | None:
    said = orjson.loads(letter.data)
    match letter.kind:
        case kind if kind in approval_letters.KINDS:
            is_asked = _is_asked(state, said["approval_id"], said["call_id"])
            return approval_letters.event_in(letter.kind, said) if is_asked else None
        case client_calls.LETTER:
            return client_calls.event_in(said) if _is_awaited(state, said["call_id"]) else None
        case "cancel":
            return None if state.cancelling else RunCancelling(said["by"], said["reason"])
        case "retry":
            return RunRetried(said["by"])
        case records.STEER_LETTER:
            return steering.event_in(said) if said["message_id"] not in state.steered else None
        case _:
            return None


def _is_asked(state: State, approval_id: str, call_id: str) -> bool:
    call = state.calls.get(call_id)
    return call is not None and call.status is CallStatus.ASKED and call.approval_id == approval_id


def _is_awaited(state: State, call_id: str) -> bool:
    call = state.calls.get(call_id)
    return call is not None and call.status is CallStatus.AWAITED
