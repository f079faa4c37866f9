"""What Gemini wants back: the signature of each part that it signed, and where it stopped.

A signature belongs to one part of a reply. A message holds a reply's text in one piece, so what is
kept says which part it was: a call by its place among the calls, a text by where it stands in all
of the text, a thought by its words.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from milepost.core.messages import Message, Sealed

WIRE = "gemini"


def sealed_call(index: int, signature: str) -> Sealed:
    """Return what is kept of a signed call."""
    return Sealed(WIRE, {"call": index, "signature": signature})


def sealed_text(start: int, end: int, signature: str) -> Sealed:
    """Return what is kept of a signed text, which may be empty."""
    return Sealed(WIRE, {"start": start, "end": end, "signature": signature})


def sealed_thought(thought: str, signature: str) -> Sealed:
    """Return what is kept of a signed thought."""
    return Sealed(WIRE, {"thought": thought, "signature": signature})


def sealed_continuation(token: str) -> Sealed:
    """Return what is kept of a reply that goes on in the next request."""
    return Sealed(WIRE, {"continuation": token})


def continuation(sealed: Sealed) -> str:
    """Return what a reply that is half said goes on from, if that is what is kept."""
    match sealed:
        case Sealed("gemini", {"continuation": str(token)}):
            return token
        case _:
            return ""


def moved(sealed: Sealed, chars: int, calls: int) -> Sealed:
    """Return what is kept of a part before which there are `chars` of text more, and `calls`."""
    match sealed.item:
        case {"call": int(index), "signature": str(signature)}:
            return sealed_call(index + calls, signature)
        case {"start": int(start), "end": int(end), "signature": str(signature)}:
            return sealed_text(start + chars, end + chars, signature)
        case _:
            return sealed


@dataclass(slots=True)
class Seals:
    """All that is kept of one message. `calls` has the signatures of the calls that have one."""

    calls: dict[int, str] = field(default_factory=dict)
    thoughts: list[tuple[str, str]] = field(default_factory=list)
    continuation: str = ""
    _texts: list[tuple[int, int, str]] = field(default_factory=list)

    @classmethod
    def of(cls, message: Message) -> "Seals":
        """Return what this wire has kept in `message`."""
        seals = cls()
        for sealed in message.sealed:
            if sealed.wire == WIRE:
                seals._take(sealed.item)
        return seals

    def texts(self, content: str) -> Iterator[tuple[str, str]]:
        """Yield `content` in the parts in which it came, each with its signature or none."""
        at = 0
        for start, end, signature in self._texts:
            if content[at:start]:
                yield content[at:start], ""
            at = max(at, end)
            yield content[start:end], signature
        if content[at:]:
            yield content[at:], ""

    def _take(self, item: Mapping[str, object]) -> None:
        match item:
            case {"call": int(index), "signature": str(signature)}:
                self.calls[index] = signature
            case {"start": int(start), "end": int(end), "signature": str(signature)}:
                self._texts.append((start, end, signature))
            case {"thought": str(thought), "signature": str(signature)}:
                self.thoughts.append((thought, signature))
            case {"continuation": str(token)}:
                self.continuation = token
            case _:
                pass  # Kept by a version that knew more; none of it would fit what we send.
