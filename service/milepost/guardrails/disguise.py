"""What a text says behind characters of no width, wide letters and ligatures.

Joiners behind letters of Arabic and Indic scripts are left alone: there they are part of a word.
"""

import functools
import re
import unicodedata
from bisect import bisect_left

from milepost.core.scripts import JOINERS, JOINING

KNOWN_MAX = 4_096

_RUN_MAX = 16  # A longer run hides no word, but parts two: else a text of them had no end.
_BACK_CHARS = 4 * _RUN_MAX  # Enough for what patterns look back at.
_NO_WIDTH = (
    "\u00ad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e01ef"
)
_ANY = f"[{_NO_WIDTH}{JOINERS}]"
_DROPPED = re.compile(
    f"(?<!{_ANY})(?:[{_NO_WIDTH}]|(?<![{JOINING}])[{JOINERS}]){_ANY}{{0,{_RUN_MAX - 1}}}(?!{_ANY})"
)


class Undisguised:
    """A text from just before a place on, and where each of its characters stands."""

    def __init__(self, text: str, start: int) -> None:
        self._shift = max(0, start - _BACK_CHARS)
        self._part = text[self._shift :]
        self.text = undisguised(self._part)

    def first_from(self, place: int) -> int:
        """Return which is the first that stands at this place of the text, or behind it."""
        return bisect_left(self._places, place - self._shift)

    def begin(self, index: int) -> int:
        """Return where one of its characters stands; behind the last, where the text ends."""
        places = self._places
        return self._shift + (places[index] if index < len(places) else len(self._part))

    def end(self, index: int) -> int:
        """Return where a stretch ends of which this is the first no more."""
        return self._shift + self._places[index - 1] + 1

    @functools.cached_property
    def _places(self) -> list[int]:
        runs = _DROPPED.finditer(self._part)
        dropped = {at for run in runs for at in range(*run.span())}
        return [
            at for at, char in enumerate(self._part) if at not in dropped for _ in _form(ord(char))
        ]


def undisguised(text: str) -> str:
    """Return what a text says, without what is not seen."""
    return text if text.isascii() else _DROPPED.sub("", text).translate(_Forms())


class _Forms(dict[int, str]):
    """What each code point of one text is a form of: most are of themselves."""

    def __missing__(self, code: int) -> str:
        self[code] = form = _form(code)
        return form


@functools.lru_cache(maxsize=KNOWN_MAX)
def _form(code: int) -> str:
    return unicodedata.normalize("NFKC", chr(code))
