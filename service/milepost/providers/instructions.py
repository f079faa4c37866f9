"""What a conversation begins with, for wires that have one place for what the system says.

What it says later stays where it was said: there it would change the beginning of the prompt, and
no vendor's cache would know the rest of it again.
"""

from collections.abc import Sequence
from itertools import takewhile

from milepost.core.messages import Message


def parted(messages: Sequence[Message]) -> tuple[list[str], Sequence[Message]]:
    """Return what the system says before all else, and what comes behind that."""
    first = [*takewhile(_is_instruction, messages)]
    return [message.content for message in first], messages[len(first) :]


def _is_instruction(message: Message) -> bool:
    return message.role == "system" and not message.images
