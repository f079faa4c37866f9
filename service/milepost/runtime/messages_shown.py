"""Messages as JSON: as clients read them, and as a session is written down and read back."""

from typing import Any

from milepost.core.messages import Message


def show_words(message: Message) -> dict[str, Any]:
    """Return the message but for its pictures; `tool_call_id` is what a tool's message answers."""
    return {
        "role": message.role,
        "content": message.content,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in message.calls
        ],
        "tool_call_id": message.call_id,
    }


def show_message(message: Message) -> dict[str, Any]:
    """Return the whole message, as `MessageSpec` reads it."""
    return {**show_words(message), "images": [image.url for image in message.images]}
