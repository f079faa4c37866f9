"""What a reply of the Responses wire consisted of, in its order: sealed, and unfolded again.

A message of ours is a text and some calls. OpenAI's models think in between, want their thoughts
back word for word at the place where they stood, and tell remarks by the way from an answer by a
`phase`. So the reply is sealed as its outline: each reasoning item whole, and of the rest only that
it was there, since text and calls are the message's own and may have been rewritten meanwhile.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from milepost.core.json import Json
from milepost.core.messages import Message, Sealed, ToolCall

_CALL: Mapping[str, Json] = {"type": "function_call"}


@dataclass(frozen=True, slots=True)
class Thought:
    """A reasoning item, to be sent back as it is."""

    item: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Text:
    """A part of the message's text; `phase` is the vendor's word for what kind of text it is."""

    text: str
    phase: str | None = None


Part = Thought | Text | ToolCall


def text_mark(chars: int, phase: str | None) -> dict[str, Json]:
    """Return the outline's word for a text of so many characters."""
    return {"type": "message", "chars": chars, **({"phase": phase} if phase else {})}


def call_mark() -> dict[str, Json]:
    """Return the outline's word for a call."""
    return dict(_CALL)


def is_worth_returning(reasoning: Mapping[str, Json]) -> bool:
    """Say whether there is anything in an item for who gets it back; an id alone is refused."""
    return bool(reasoning.get("encrypted_content") or reasoning.get("content"))


def sealed_outline(outline: Sequence[Mapping[str, Json]], seal: str) -> list[Sealed]:
    """Return the outline as it is to be kept: nothing, where a message says all by itself."""
    ours = (mark["type"] != "reasoning" and "phase" not in mark for mark in outline)
    if all(ours):
        return []
    end = len(outline)
    while outline[end - 1] == _CALL:  # At the end is where calls stand anyway.
        end -= 1
    return [Sealed(seal, mark) for mark in outline[:end]]


def unfolded(message: Message, seal: str) -> Iterator[Part]:
    """Yield what an assistant's message consists of, in the order in which it was said.

    Thoughts that nothing follows are left out: they are refused without what they led to.
    """
    thoughts: list[Part] = []
    for part in _parts(message, [sealed.item for sealed in message.sealed if sealed.wire == seal]):
        match part:
            case Thought():
                thoughts.append(part)
            case Text(""):
                pass
            case _:
                yield from thoughts
                thoughts.clear()
                yield part


def _parts(message: Message, outline: Sequence[Mapping[str, Json]]) -> Iterator[Part]:
    calls = iter(message.calls)
    texts = iter(_cut(message.content, [_chars(mark) for mark in outline if _is_text(mark)]))
    for mark in outline:
        match mark.get("type"):
            case "reasoning":
                yield Thought(mark)
            case "message":
                phase = mark.get("phase")
                yield Text(next(texts), phase if isinstance(phase, str) else None)
            case _:
                yield from _next(calls)
    yield Text("".join(texts))
    yield from calls


def _is_text(mark: Mapping[str, Json]) -> bool:
    return mark.get("type") == "message"


def _chars(mark: Mapping[str, Json]) -> int:
    chars = mark.get("chars")
    return chars if isinstance(chars, int) else 0


def _cut(text: str, lengths: Sequence[int]) -> list[str]:
    """Return `text` in pieces of these lengths; one that was rewritten is the last piece, whole."""
    if not lengths:
        return [text]
    if sum(lengths) != len(text):
        return [*[""] * (len(lengths) - 1), text]
    ends = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    return [text[start:end] for start, end in pairwise(ends)]


def _next(calls: Iterable[ToolCall]) -> Iterator[ToolCall]:
    """Yield one call, if there is one more."""
    for call in calls:
        yield call
        return
