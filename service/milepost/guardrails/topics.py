"""Words and phrases that are not to be spoken of, as people write them in any script."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from milepost.guardrails.confusables import latin
from milepost.guardrails.disguise import Undisguised, undisguised
from milepost.guardrails.finds import Find

GAP_CHARS_MAX = 8

# Scripts that put no blanks between words: in them, a word may stand anywhere.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_SPACED_LETTER = re.compile(rf"[^\W{_UNSPACED}]")
_LATIN = re.compile("[A-Za-z]")
_NO_LETTER_BEFORE = rf"(?<![^\W{_UNSPACED}])"
_NO_LETTER_BEHIND = rf"(?![^\W{_UNSPACED}]|[\u0300-\u036f])"


Span = tuple[int, int]
Reading = Callable[[int], Span | None]


class Topics:
    """Finds the words where they stand alone, whatever their case and the encoding of accents.

    They are also found in disguise: behind characters of no width and in wide letters, and with
    letters that look alike where a word of another script would not have the Latin ones beside.
    """

    reads_whole = False
    demands = False

    def __init__(self, words: Sequence[str], instead: str) -> None:
        plain = [*map(undisguised, words)]
        self._pattern = re.compile(_pattern(words), re.IGNORECASE)
        self._plain = re.compile(_pattern(plain), re.IGNORECASE)
        self._instead = instead
        self._context = max(map(_longest, (*words, *plain))) + 1

    def find(self, text: str, start: int, *, whole: bool) -> tuple[Sequence[Find], int]:
        """Return the words; what begins too near the end to be one in full is not settled."""
        found = self._readings(text, start)
        finds = [
            Find(begin, end, "a topic not to be spoken of", self._instead)
            for begin, end in _apart(found, start)
        ]
        return finds, len(text) if whole else self._settled(text, start)

    def _readings(self, text: str, start: int) -> list[Reading]:
        """Return how to find the next one in the text as it is, and behind what may disguise it."""
        if text.isascii():
            return [partial(_next, self._pattern, text)]
        behind = Undisguised(text, start)
        alike = latin(behind.text)

        def plainly(at: int) -> Span | None:
            return _placed(behind, _next(self._plain, behind.text, behind.first_from(at)))

        def alike_to(at: int) -> Span | None:
            index = behind.first_from(at)
            while span := _next(self._plain, alike, index):
                # Without a letter of ours beside, those of another script are its own.
                if _LATIN.search(behind.text, *span):
                    return _placed(behind, span)
                index = span[0] + 1
            return None

        own = partial(_next, self._pattern, text)
        return [own, plainly] if alike == behind.text else [own, plainly, alike_to]

    def _settled(self, text: str, start: int) -> int:
        settled = len(text) - self._context
        if text.isascii():
            return settled
        behind = Undisguised(text, start)
        return min(settled, behind.begin(max(0, len(behind.text) - self._context)))


def _apart(readings: Sequence[Reading], at: int) -> Iterator[Span]:
    """Yield whatever begins first, and of what begins together the longest."""
    ahead = [reading(at) for reading in readings]
    while spans := [span for span in ahead if span]:
        begin, end = min(spans, key=lambda span: (span[0], -span[1]))
        yield begin, end
        ahead = [
            reading(end) if span and span[0] < end else span
            for reading, span in zip(readings, ahead, strict=True)
        ]


def _next(pattern: re.Pattern[str], text: str, at: int) -> Span | None:
    match = pattern.search(text, at)
    return match.span() if match else None


def _placed(behind: Undisguised, span: Span | None) -> Span | None:
    return (behind.begin(span[0]), behind.end(span[1])) if span else None


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
