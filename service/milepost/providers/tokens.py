"""How many tokens a text has, where nobody says."""

from collections.abc import Iterable

import orjson

from milepost.core.messages import Message
from milepost.core.model import ModelRequest

CHARS_PER_TOKEN = 4


def estimate(chars: int) -> int:
    """Return about how many tokens `chars` characters of English are: at least one, if any."""
    return -(-chars // CHARS_PER_TOKEN)


def estimate_prompt(request: ModelRequest) -> int:
    """Return about how many tokens the request's messages are; tools are left out."""
    return estimate(sum(_chars(message) for message in request.messages))


def _chars(message: Message) -> int:
    return len(message.content) + sum(_argument_chars(message))


def _argument_chars(message: Message) -> Iterable[int]:
    return (len(orjson.dumps(call.arguments)) for call in message.calls)
