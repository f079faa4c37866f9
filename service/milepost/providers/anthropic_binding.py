"""Thinking that goes back only behind the very conversation in which it was thought.

Newer models of Anthropic's bind each block of thinking to its model, the system prompt, the tools
and every message before it, and refuse a whole request over a block that stands behind something
else: an agent's next version, a memory that has grown, a summary. So what is kept of a reply says
what it followed, and is left out where something else would come before it now. The conversation
goes on without it.
"""

from collections.abc import AsyncGenerator
from dataclasses import replace
from hashlib import blake2b

import orjson

from milepost.core.json import Json
from milepost.core.messages import Message, Sealed
from milepost.core.model import Delta, ModelRequest, Provider, SealedDelta
from milepost.providers.anthropic_layout import WIRE
from milepost.providers.closing import closing

_DIGEST_BYTES = 16


class BoundThinking:
    """A provider on the Messages wire that sends back no thought out of its place."""

    def __init__(self, inner: Provider) -> None:
        self._inner = inner

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the reply to `request`, and note with its thoughts what they followed."""
        asked = in_place(request)
        async with closing(self._inner.stream(asked)) as deltas:
            async for delta in deltas:
                match delta:
                    case SealedDelta(Sealed(wire, item)) if wire == WIRE:
                        followed: dict[str, Json] = {**item, "followed": followed_by_reply(asked)}
                        yield SealedDelta(Sealed(WIRE, followed))
                    case _:
                        yield delta


def in_place(request: ModelRequest) -> ModelRequest:
    """Return `request` without the thoughts that did not follow what would stand before them.

    Models that are given a number of tokens to think with bind nothing, and insist on their
    thoughts beside their calls.
    """
    if request.thinking_tokens is not None or not any(map(_has_thoughts, request.messages)):
        return request
    prefix = _Prefix(request)
    return replace(request, messages=tuple(map(prefix.take, request.messages)))


def followed_by_reply(request: ModelRequest) -> str:
    """Return what names all that a reply to `request` follows."""
    prefix = _Prefix(request)
    for message in request.messages:
        prefix.add(message)
    if request.messages and request.messages[-1].role == "assistant":
        prefix.add(Message("user"))  # The wire lets the user say something then.
    return prefix.digest


class _Prefix:
    """What stands before a point of the conversation; all that the system says does."""

    def __init__(self, request: ModelRequest) -> None:
        system = [message.content for message in request.messages if message.role == "system"]
        wanted = request.response_format and dict(request.response_format.schema)
        tools = [[tool.name, tool.description, dict(tool.parameters)] for tool in request.tools]
        self._hash = blake2b(digest_size=_DIGEST_BYTES)
        self._update([request.model, system, tools, wanted])

    @property
    def digest(self) -> str:
        """What has been added so far, in short."""
        return self._hash.hexdigest()

    def take(self, message: Message) -> Message:
        """Add `message`, and return it, without its thoughts if they followed something else."""
        if _has_thoughts(message) and not self._was_followed_by(message):
            others = (sealed for sealed in message.sealed if sealed.wire != WIRE)
            message = replace(message, sealed=tuple(others))
        self.add(message)
        return message

    def add(self, message: Message) -> None:
        """Add `message` as it goes out."""
        if message.role == "system":
            return
        calls = [
            [call.id, call.provider_id, call.name, call.malformed, dict(call.arguments)]
            for call in message.calls
        ]
        images = [image.url for image in message.images]
        kept = [dict(sealed.item) for sealed in message.sealed if sealed.wire == WIRE]
        self._update([message.role, message.content, images, calls, message.call_id, kept])

    def _was_followed_by(self, message: Message) -> bool:
        kept = (sealed.item for sealed in message.sealed if sealed.wire == WIRE)
        return all(item.get("followed") == self.digest for item in kept)

    def _update(self, part: object) -> None:
        self._hash.update(orjson.dumps(part))


def _has_thoughts(message: Message) -> bool:
    return any(sealed.wire == WIRE for sealed in message.sealed)
