"""Words and phrases that are not to be spoken of, as people write them in any script."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence

from milepost.guardrails.finds import Find

GAP_CHARS_MAX = 8

# Scripts that put no blanks between words: in them, a word may stand anywhere.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_SPACED_LETTER = re.compile(rf"[^\W{_UNSPACED}]")
_NO_LETTER_BEFORE = rf"(?<![^\W{_UNSPACED}])"
_NO_LETTER_BEHIND = rf"(?![^\W{_UNSPACED}]|[\u0300-\u036f])"


class Topics:
    """Finds the words where they stand alone, whatever their case and the encoding of accents."""

    reads_whole = False
    demands = False

    def __init__(self, words: Sequence[str], instead: str) -> None:
        self._pattern = re.compile(_pattern(words), re.IGNORECASE)
        self._instead = instead
        self._context = max(map(_longest, words)) + 1

    def find(self, text: str, start: int, *, whole: bool) -> tuple[Sequence[Find], int]:
        """Return the words; what begins too near the end to be one in full is not settled."""
        finds = [
            Find(match.start(), match.end(), "a topic not to be spoken of", self._instead)
            for match in self._pattern.finditer(text, start)
        ]
        return finds, len(text) if whole else len(text) - self._context


def _pattern(words: Sequence[str]) -> str:
    """Return the pattern of all words: of those that begin together, the longest goes before."""
    phrases = sorted({_composed(word) for word in words}, key=lambda word: (-len(word), word))
    bounded: dict[tuple[str, str], list[str]] = defaultdict(list)
    for phrase in phrases:
        before = _NO_LETTER_BEFORE if _SPACED_LETTER.match(phrase) else ""
        behind = _NO_LETTER_BEHIND if _SPACED_LETTER.match(phrase[-1]) else ""
        bounded[before, behind].append("".join(map(_spelt, phrase)))
    return "|".join(
        f"{before}(?:{'|'.join(spelt)}){behind}" for (before, behind), spelt in bounded.items()
    )


def _composed(word: str) -> str:
    return unicodedata.normalize("NFC", " ".join(word.split()))


def _spelt(char: str) -> str:
    """Return a pattern for one character of a phrase."""
    if char == " ":
        return rf"\s{{1,{GAP_CHARS_MAX}}}"
    spellings = _spellings(char)
    return spellings[0] if len(spellings) == 1 else f"(?:{'|'.join(spellings)})"


def _spellings(char: str) -> list[str]:
    ways = (char, unicodedata.normalize("NFD", char), char.casefold())
    return [re.escape(way) for way in dict.fromkeys(ways)]


def _longest(word: str) -> int:
    """Return how many characters a phrase may be written in."""
    return sum(
        GAP_CHARS_MAX if char == " " else max(map(len, _spellings(char)))
        for char in _composed(word)
    )
