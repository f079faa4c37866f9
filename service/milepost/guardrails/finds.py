"""What is found in a text that comes in pieces, and how much of the text is settled by then."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from milepost.core.guardrails import Action


@dataclass(frozen=True, slots=True)
class Find:
    """A part of a text, what it is in words, and what would stand in its place.

    `end` is None where everything that follows belongs to it.
    """

    begin: int
    end: int | None
    what: str
    instead: str = ""


class Finder(Protocol):
    """Finds parts of texts. Pure.

    `reads_whole`: it judges a JSON value by all of its text, not by each string in it. `demands`:
    it finds what is not there, which only a whole answer can be blamed for.
    """

    @property
    def reads_whole(self) -> bool: ...

    @property
    def demands(self) -> bool: ...

    def find(self, text: str, start: int, *, whole: bool) -> tuple[Sequence[Find], int]:
        """Return what begins at `start` or later, in order and apart, and how far that is settled.

        What begins before that place stays as it is whatever follows; of a `whole` text, all does.
        Finds that begin behind it may be there, or not.
        """


class Passing:
    """One text on its way past one finder, in pieces.

    What has come out, however the text was cut into pieces, is always the beginning of what comes
    out in the end.
    """

    def __init__(self, finder: Finder, action: Action) -> None:
        self.found: Counter[str] = Counter()
        self.blocked = False
        self._finder = finder
        self._action = action
        self._text = ""
        self._at = 0
        self._done = False

    def feed(self, piece: str) -> str:
        """Take in a piece and return what may go on now."""
        self._text += piece
        return self._go_on(whole=False)

    def finish(self, piece: str = "") -> str:
        """Take in the last piece and return the rest of what may go on."""
        self._text += piece
        return self._go_on(whole=True)

    def release(self) -> str:
        """Return the rest as it is, where the finder has nothing to say of the text."""
        rest, self._at = self._text[self._at :], len(self._text)
        return rest

    def _go_on(self, *, whole: bool) -> str:
        if self._done:
            return ""
        finds, settled = self._finder.find(self._text, self._at, whole=whole)
        settled = len(self._text) if whole else settled
        out: list[str] = []
        for find in finds:
            if find.begin >= settled and not whole:
                break
            out.append(self._take(find))
            if self._done:
                return "".join(out)
        if settled > self._at:
            out.append(self._text[self._at : settled])
            self._at = settled
        return "".join(out)

    def _take(self, find: Find) -> str:
        """Return what goes on up to the end of the find."""
        self.found[find.what] += 1
        end = len(self._text) if find.end is None else find.end
        self._done = find.end is None and self._action != "warn"
        if self._action == "block":
            self.blocked = self._done = True
            end = find.begin
        shown = self._text[find.begin : end] if self._action == "warn" else find.instead
        before = self._text[self._at : find.begin]
        self._at = end
        return before + shown if self._action != "block" else before
