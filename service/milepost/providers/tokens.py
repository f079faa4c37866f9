"""How many tokens a text has, where nobody says."""

from collections.abc import Iterable

import orjson

from milepost.core.messages import Message
from milepost.core.model import ModelRequest

CHARS_PER_TOKEN = 4
IMAGE_TOKENS = 1_500


def estimate(chars: int) -> int:
    """Return about how many tokens `chars` characters of English are: at least one, if any."""
    return -(-chars // CHARS_PER_TOKEN)


def estimate_prompt(request: ModelRequest) -> int:
    """Return about how many tokens the words of the request's messages are."""
    return estimate(sum(_chars(message) for message in request.messages))


def estimate_request(request: ModelRequest) -> int:
    """Return about how many tokens all of the request is: its messages, pictures and tools."""
    tools = sum(len(orjson.dumps(tool.to_dict())) for tool in request.tools)
    images = sum(len(message.images) for message in request.messages)
    return estimate_prompt(request) + estimate(tools) + images * IMAGE_TOKENS


def _chars(message: Message) -> int:
    return len(message.content) + sum(_argument_chars(message))


def _argument_chars(message: Message) -> Iterable[int]:
    return (len(orjson.dumps(call.arguments)) for call in message.calls)
