"""How long a text may be, and must be: in characters, words, and tokens as far as these tell."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from milepost.guardrails.finds import Find

BYTES_PER_TOKEN = 4
"""About: four letters of English, and somewhat more than one sign of Chinese."""

_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class TooLong:
    """Finds what is beyond the bounds."""

    max_chars: int | None = None
    max_words: int | None = None
    max_tokens: int | None = None

    reads_whole = True
    demands = False

    def find(self, text: str, start: int, *, whole: bool) -> tuple[Sequence[Find], int]:  # noqa: ARG002 - what is too long stays so
        """Return where it is too long, which settles all that comes before."""
        excess = min(self._excesses(text), default=None)
        if excess is None or excess[0] < start:
            return (), len(text)
        place, what = excess
        return [Find(place, None, what)], len(text)

    def _excesses(self, text: str) -> Iterator[tuple[int, str]]:
        if self.max_chars is not None and len(text) > self.max_chars:
            yield self.max_chars, f"more than {self.max_chars} characters"
        if self.max_words is not None:
            place = _start_of_word(text, self.max_words + 1)
            if place is not None:
                yield place, f"more than {self.max_words} words"
        if self.max_tokens is not None:
            place = _start_of_byte(text, self.max_tokens * BYTES_PER_TOKEN)
            if place is not None:
                yield place, f"more than about {self.max_tokens} tokens"


@dataclass(frozen=True, slots=True)
class TooShort:
    """Finds all of a text that ends before it is as long as it must be."""

    min_chars: int | None = None
    min_words: int | None = None

    reads_whole = True
    demands = True

    def find(self, text: str, start: int, *, whole: bool) -> tuple[Sequence[Find], int]:
        """Return the whole; nothing is settled before it is long enough."""
        shortage = self._shortage(text)
        if shortage is None:
            return (), len(text)
        return ([Find(0, None, shortage)], len(text)) if whole else ((), start)

    def _shortage(self, text: str) -> str | None:
        if self.min_chars is not None and len(text) < self.min_chars:
            return f"fewer than {self.min_chars} characters"
        if self.min_words is not None and _start_of_word(text, self.min_words) is None:
            return f"fewer than {self.min_words} words"
        return None


def _start_of_word(text: str, number: int) -> int | None:
    """Return where the text's word of that number begins, None where it has fewer."""
    if len(text) < 2 * number - 1:
        return None
    for count, match in enumerate(_WORD.finditer(text), start=1):
        if count == number:
            return match.start()
    return None


def _start_of_byte(text: str, byte: int) -> int | None:
    """Return the first character that goes beyond so many bytes, None where there is none."""
    if len(text) * 4 <= byte:
        return None
    encoded = text.encode(errors="replace")
    return len(encoded[:byte].decode(errors="ignore")) if len(encoded) > byte else None
