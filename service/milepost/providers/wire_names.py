"""The names of tools as every vendor takes them, and the way back."""

import re
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from itertools import count
from typing import TypeVar

from milepost.core.messages import Message, ToolCall
from milepost.core.model import CallDelta, Delta, ModelRequest, ToolSchema

NAME_CHARS_MAX = 64

Named = TypeVar("Named", ToolSchema, ToolCall)

_DIGEST_CHARS = 8
# What OpenAI, Anthropic and Gemini have in common; a tool's own name has no other form.
_TAKEN = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{NAME_CHARS_MAX - 1}}}")
_REFUSED = re.compile(r"[^A-Za-z0-9_-]+")


def taken_name(name: str, attempt: int = 0) -> str:
    """Return `name` if vendors take it, or else what is legible of it and a digest of it all."""
    if not attempt and _TAKEN.fullmatch(name):
        return name
    digest = sha256(f"{name}\0{attempt}".encode()).hexdigest()[:_DIGEST_CHARS]
    legible = _REFUSED.sub("_", name)[: NAME_CHARS_MAX - _DIGEST_CHARS - 2].strip("_-")
    joined = f"{legible}_{digest}" if legible else digest
    return joined if _TAKEN.match(joined) else f"_{joined}"


class WireNames:
    """The names of one request: those that vendors refuse go out under others, each its own.

    They come from agents that are called as tools, and from models that make names up. What stands
    for a name depends on that name alone, so that a conversation's beginning stays what it was:
    vendors cache prefixes. Only where it is another tool's name already does it give way.
    """

    def __init__(self, names: Iterable[str]) -> None:
        used = set(names)
        self._outward: dict[str, str] = {}
        for name in sorted(name for name in used if not _TAKEN.fullmatch(name)):
            told = (taken_name(name, attempt) for attempt in count())
            self._outward[name] = next(free for free in told if free not in used)
            used.add(self._outward[name])
        self._inward = {told: name for name, told in self._outward.items()}

    @classmethod
    def of(cls, request: ModelRequest) -> "WireNames":
        """Return the names that `request` holds."""
        called = {call.name for message in request.messages for call in message.calls}
        return cls(called.union(tool.name for tool in request.tools))

    def outward(self, request: ModelRequest) -> ModelRequest:
        """Return `request` as a vendor takes it."""
        if not self._outward:
            return request
        tools = tuple(self._named(tool) for tool in request.tools)
        messages = tuple(self._message(message) for message in request.messages)
        return replace(request, tools=tools, messages=messages)

    def inward(self, deltas: list[Delta]) -> list[Delta]:
        """Return what a vendor answered, with the names that we know."""
        if not self._inward:
            return deltas
        return [self._delta(delta) for delta in deltas]

    def _message(self, message: Message) -> Message:
        calls = tuple(self._named(call) for call in message.calls)
        return replace(message, calls=calls) if calls else message

    def _named(self, thing: Named) -> Named:
        told = self._outward.get(thing.name)
        return thing if told is None else replace(thing, name=told)

    def _delta(self, delta: Delta) -> Delta:
        match delta:
            case CallDelta(name=name) if name in self._inward:
                return replace(delta, name=self._inward[name])
            case _:
                return delta
