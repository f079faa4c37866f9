"""The order of a reply's blocks, which its text and its calls do not tell.

A model's thinking must go back word for word and where it stood. The vendor refuses a conversation
in which a block of it is missing, has moved, or stands behind something that has changed since.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

import orjson

from milepost.core.json import Json, UnencodableError, clean
from milepost.core.messages import Message, Sealed, ToolCall

WIRE = "anthropic"
"""The wire's name on what it wants back."""

THOUGHTS = ("thinking", "redacted_thinking")

Block = dict[str, Json]
Part = str | ToolCall | Block
"""What an assistant said: some text, a call, or a block that goes back as it is."""

_DIGEST_BYTES = 8


@dataclass(slots=True)
class Said:
    """A text, which the message holds already."""

    pieces: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Called:
    """A call, by the JSON of its arguments; the message holds it already."""

    pieces: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Thought:
    """A block that goes back as it came: `thinking`, whose text comes apart, or another."""

    block: dict[str, object]
    pieces: list[str] = field(default_factory=list)

    def whole(self) -> dict[str, object] | None:
        """Return the block as it goes back, or None if there is nothing in it."""
        if self.block.get("type") != "thinking":
            return self.block
        thinking = "".join(self.pieces)
        if not thinking and not self.block.get("signature"):
            return None
        return {**self.block, "thinking": thinking}


class Layout:
    """Notes the blocks of a reply, in the order in which they begin."""

    def __init__(self) -> None:
        self._blocks: list[Said | Called | Thought] = []

    def __len__(self) -> int:
        """Return how many blocks there are."""
        return len(self._blocks)

    def begin(self, block: Said | Called | Thought) -> None:
        """Note the next block."""
        self._blocks.append(block)

    def say(self, text: str) -> None:
        """Note more text, whichever block it is said to belong to: the message joins it all."""
        match self._blocks:
            case [*_, Said(pieces)]:
                pieces.append(text)
            case _:
                self._blocks.append(Said([text]))

    def sealed(self) -> Sealed | None:
        """Return what is to be kept, up to the last thought; nothing where nobody thought."""
        noted = [_noted(block) for block in self._blocks[: self._thought_until()]]
        try:
            blocks = clean([block for block in noted if block is not None])
        except UnencodableError:
            return None  # It could neither be stored nor sent.
        return Sealed(WIRE, {"blocks": blocks}) if blocks else None

    def _thought_until(self) -> int:
        for end in range(len(self._blocks), 0, -1):
            match self._blocks[end - 1]:
                case Thought() as thought if thought.whole() is not None:
                    return end
        return 0


def parts_of(message: Message) -> Iterator[Part]:
    """Yield what an assistant said in the order in which it came, and what has no place last."""
    content, calls = message.content, [*message.calls]
    said = 0
    for block in _kept(message):
        match block:
            case {"type": "text", "chars": int(chars)}:
                yield content[said : said + chars]
                said += chars
            case {"type": "tool_use"}:
                yield calls.pop(0)
            case _:
                yield block
    yield content[said:]
    yield from calls


def _kept(message: Message) -> list[Block]:
    """Return the blocks up to the first that is not what it was: what follows must not go back."""
    calls = iter(message.calls)
    said = 0
    blocks = _noted_in(message)
    for n, block in enumerate(blocks):
        match block:
            case {"type": "text", "chars": int(chars), "was": was} if chars >= 0:
                is_same = was == _digest(message.content[said : said + chars].encode())
                said += chars
            case {"type": "tool_use", "was": was}:
                call = next(calls, None)
                is_same = call is not None and was == _digest_of_arguments(dict(call.arguments))
            case {"type": "thinking" | "redacted_thinking"}:
                is_same = True
            case _:
                is_same = False
        if not is_same:
            return blocks[:n]
    return blocks


def _noted_in(message: Message) -> list[Block]:
    listed = (sealed.item.get("blocks") for sealed in message.sealed if sealed.wire == WIRE)
    return [
        block
        for blocks in listed
        if isinstance(blocks, list)
        for block in blocks
        if isinstance(block, dict)
    ]


def _noted(block: Said | Called | Thought) -> dict[str, object] | None:
    match block:
        case Said(pieces):
            text = "".join(pieces)
            return {"type": "text", "chars": len(text), "was": _digest(text.encode())}
        case Called(pieces):
            return {"type": "tool_use", "was": _digest_of_text("".join(pieces))}
        case Thought():
            return block.whole()


def _digest_of_text(arguments: str) -> str:
    try:
        return _digest_of_arguments(orjson.loads(arguments or "{}"))
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return ""  # No call of ours has such arguments.


def _digest_of_arguments(arguments: object) -> str:
    return _digest(orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS))


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
