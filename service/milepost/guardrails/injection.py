"""Where in a text it begins to address the model."""

import re
from collections.abc import Iterator, Sequence

from milepost.guardrails.finds import Find
from milepost.guardrails.screening import injection_in

PHRASE_CHARS_MAX = 400
"""A phrase that is looked for is shorter, blanks left out."""

WORD_CHARS_MAX = 100
"""A longer word is read in parts: there are scripts without blanks."""

STEP_CHARS = 64
"""A text that comes in pieces is looked at when so much more of it is there."""

_WORD = re.compile(rf"\S{{1,{WORD_CHARS_MAX}}}")
_ELSEWHERE = "xx"


class Injection:
    """Finds where a text addresses the model.

    As each word is through, the last words that together may hold a phrase are looked at, so a find
    begins some way before the phrase.
    """

    reads_whole = True
    demands = False

    def __init__(self, *, decode: bool = False) -> None:
        self._decode = decode
        self._clean: str | None = None  # What was looked at last, from where the next look begins.

    def find(self, text: str, start: int, *, whole: bool) -> tuple[Sequence[Find], int]:
        """Return the finds; what may yet become the beginning of a phrase is not settled.

        With `decode` nothing is before the end: a word in base64 may be as long as the text.
        """
        if self._decode and not whole:
            return (), start
        limit = len(text) if whole else _last_break(text, len(text) // STEP_CHARS * STEP_CHARS)
        if start and text[start:limit] == self._clean:
            return (), len(text) if whole else start
        *_, (settled, _) = ((start, start), *_windows(text, start, limit))
        why = self._seen(text, start, limit)
        if not why:
            self._clean = text[settled:limit]
            return (), settled
        finds = [*self._finds(text, start, limit)]
        if whole and not start and not finds:
            finds = [_find(0, len(text), why)]  # Longer than any window.
        return finds, settled

    def _finds(self, text: str, start: int, limit: int) -> Iterator[Find]:
        at: int | None = start
        while at is not None:
            windows, at = _windows(text, at, limit), None
            for begin, end in windows:
                if why := self._seen(text, begin, end):
                    yield _find(begin, end, why)
                    at = end
                    break

    def _seen(self, text: str, begin: int, end: int) -> str | None:
        before = _ELSEWHERE if begin else ""  # The middle of a text is not where a line begins.
        return injection_in(before + text[begin:end], decode=self._decode)


def _find(begin: int, end: int, why: str) -> Find:
    return Find(begin, end, f"text that {why}")


def _windows(text: str, start: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield for each word from `start` to `limit` where the words before it that count begin."""
    words = [(match.start(), match.end()) for match in _WORD.finditer(text, start, limit)]
    first, chars = 0, 0
    for index, (begin, end) in enumerate(words):
        chars += end - begin
        while chars > PHRASE_CHARS_MAX and first < index:
            chars -= words[first][1] - words[first][0]
            first += 1
        yield (words[first - 1][1] if first else start), end


def _last_break(text: str, end: int) -> int:
    """Return where the last word that is through before `end` ends."""
    for place in range(end - 1, max(-1, end - 1 - WORD_CHARS_MAX), -1):
        if text[place].isspace():
            return place
    return max(0, end - WORD_CHARS_MAX)
