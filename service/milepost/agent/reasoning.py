"""What a model thought: its thinking where the vendor shows it, and its words beside its calls."""

from collections.abc import Iterable

from milepost.core.events import Event, MessageCompleted, ReasoningCompleted, ToolCallRequested


def reasonings_of(events: Iterable[Event]) -> dict[str, str]:
    """Return the reasoning of each message that has any, in the order of the messages."""
    contents: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    for event in events:
        match event:
            case MessageCompleted(message_id, content):
                contents[message_id] = content
            case ReasoningCompleted(message_id, content) if content:
                found.setdefault(message_id, []).append(content)
            case ToolCallRequested(message_id=message_id):
                # Once, however many calls stand beside it.
                if content := contents.pop(message_id, ""):
                    found.setdefault(message_id, []).append(content)
            case _:
                pass  # Nothing that was thought.
    return {message_id: "\n".join(parts) for message_id, parts in found.items()}
