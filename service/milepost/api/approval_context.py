"""What was said in a run before it asked: what an approver reads to know what the call is for."""

from collections.abc import Iterable
from typing import Any

from milepost.core.codec import decode
from milepost.core.events import ApprovalRequested
from milepost.core.evolve import evolve
from milepost.core.messages import Message
from milepost.core.state import State
from milepost.store.records import LogEntry

MESSAGES_MAX = 10
TEXT_CHARS_MAX = 2_000


def context_of(entries: Iterable[LogEntry], approval_id: str) -> list[dict[str, Any]]:
    """Return the last messages before the question, as the model has them; long ones are cut.

    That is after the guardrails: what they took out of the conversation is not in it.
    """
    state = State()
    for entry in entries:
        event = decode(entry.type, entry.data)
        if isinstance(event, ApprovalRequested) and event.approval_id == approval_id:
            break
        if event is not None:
            state = evolve(state, event)
    spoken = [message for message in state.messages if message.content]
    return [_shown(message) for message in spoken[-MESSAGES_MAX:]]


def _shown(message: Message) -> dict[str, Any]:
    text = message.content
    if len(text) > TEXT_CHARS_MAX:
        text = f"{text[:TEXT_CHARS_MAX]}… ({len(text) - TEXT_CHARS_MAX} more characters)"
    return {"role": message.role, "text": text}
