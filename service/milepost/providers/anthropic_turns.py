"""A conversation as the Messages wire wants it: turns of user and assistant, one after the other.

The vendor refuses a conversation that does not begin with the user, text that is blank, a call
without its result at the beginning of the next turn, and a result without a call in the turn
before. What was said never changes as the conversation grows: vendors cache its beginning, and
bind a model's thinking to it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from milepost.core.json import Json
from milepost.core.messages import Image, Message, ToolCall
from milepost.providers.anthropic_layout import THOUGHTS, Block, Part, parts_of
from milepost.providers.wire_ids import WireIds

_REFUSED_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")
_MEDIA_TYPES = {"image/jpg": "image/jpeg"}

# What stands where the vendor wants a text, and nobody said any.
_BEGUN_EARLIER = "(The conversation began earlier.)"
_GO_ON = "Go on."
_NOTHING_SAID = "(Nothing was said.)"
_NOT_ANSWERED = "This call has no result."


@dataclass(frozen=True, slots=True)
class Turn:
    """All that one side says until the other does."""

    role: Literal["user", "assistant"]
    blocks: list[Block] = field(default_factory=list)


@dataclass(slots=True)
class Turns:
    """A conversation. `noted` is the last turn in which the system says something."""

    turns: list[Turn] = field(default_factory=list)
    noted: Turn | None = None


def turns_of(messages: Iterable[Message]) -> Turns:
    """Return the turns that `messages` are: what the system says in the middle is on our side."""
    conversation = _Conversation()
    for message in messages:
        match message.role:
            case "system":
                conversation.note(message)
            case "user":
                conversation.ask(message)
            case "assistant":
                conversation.answer(message)
            case "tool":
                conversation.result(message)
    return conversation.whole()


class _Conversation:
    """The turns so far."""

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._noted: Turn | None = None
        self._ids = WireIds(_spelt)
        self._open: list[str] = []
        self._results = 0

    def ask(self, message: Message) -> None:
        images: list[Block] = [_image(image) for image in message.images]
        said = message.content if message.content.strip() or images else _NOTHING_SAID
        self._turn("user").blocks.extend([*images, *_text(said)])

    def note(self, message: Message) -> None:
        if blocks := _text(message.content):
            self._noted = self._turn("user")
            self._noted.blocks.extend(blocks)

    def answer(self, message: Message) -> None:
        blocks = [block for part in parts_of(message) for block in self._said(part)]
        while blocks and blocks[-1]["type"] in THOUGHTS:
            blocks.pop()  # The vendor refuses a thought that nothing came of.
        if not blocks:
            return
        self._settle()
        self._turn("assistant").blocks.extend(blocks)
        self._open = [str(block["id"]) for block in blocks if block["type"] == "tool_use"]

    def result(self, message: Message) -> None:
        wire_id = self._ids.of_result(message.call_id or "")
        if wire_id in self._open:
            self._open.remove(wire_id)
            self._close(wire_id, message.content)
        else:
            # The call that it answers is not in sight. What came of it is worth knowing still.
            self.ask(Message("user", message.content))

    def whole(self) -> Turns:
        """Return the turns, the first and the last of them the user's."""
        self._settle()
        if not self._turns or self._turns[0].role == "assistant":
            self._turns.insert(0, Turn("user", _text(_BEGUN_EARLIER)))
        if self._turns[-1].role == "assistant":
            self._turns.append(Turn("user", _text(_GO_ON)))
        return Turns(self._turns, self._noted)

    def _turn(self, role: Literal["user", "assistant"]) -> Turn:
        if not self._turns or self._turns[-1].role != role:
            self._turns.append(Turn(role))
        return self._turns[-1]

    def _said(self, part: Part) -> list[Block]:
        match part:
            case str():
                return _text(part)
            case ToolCall():
                return [_call(part, self._ids.of_call(part))]
            case dict():
                return [part]

    def _settle(self) -> None:
        """Close the calls that nobody answered."""
        for wire_id in self._open:
            self._close(wire_id, _NOT_ANSWERED)
        self._open = []
        self._results = 0

    def _close(self, wire_id: str, content: str) -> None:
        """Put a result behind those before it, and before all else that the user says."""
        result: Block = {"type": "tool_result", "tool_use_id": wire_id}
        if content.strip():
            result["content"] = content
        self._turn("user").blocks.insert(self._results, result)
        self._results += 1


def _text(text: str) -> list[Block]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _call(call: ToolCall, wire_id: str) -> Block:
    # What the model wrote malformed goes back as an empty object. The call's result says what was
    # wrong with it.
    arguments = {} if call.malformed is not None else dict(call.arguments)
    return {"type": "tool_use", "id": wire_id, "name": call.name, "input": arguments}


def _image(image: Image) -> Block:
    source: dict[str, Json] = {"type": "url", "url": image.url}
    if image.url.startswith("data:"):
        head, _, encoded = image.url.removeprefix("data:").partition(",")
        media_type = head.partition(";")[0].lower()
        media_type = _MEDIA_TYPES.get(media_type, media_type)
        source = {"type": "base64", "media_type": media_type, "data": encoded}
    return {"type": "image", "source": source}


def _spelt(call_id: str) -> str:
    return _REFUSED_IN_IDS.sub("_", call_id)
