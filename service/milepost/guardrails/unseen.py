"""Characters of no width: what a text is to whoever looks at it, without them."""

import re
from bisect import bisect_left
from collections.abc import Sequence

UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")


class Seen:
    """The characters of a text that are seen, and where in it they stand."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._length = len(text)
        self._places: Sequence[int] = range(len(text))
        if not text.isascii() and UNSEEN.search(text):
            self._places = [at for at, char in enumerate(text) if not UNSEEN.match(char)]
            self.text = "".join(text[at] for at in self._places)

    def first_from(self, place: int) -> int:
        """Return which of them is the first that stands at this place of the text, or behind it."""
        return bisect_left(self._places, place)

    def begin(self, index: int) -> int:
        """Return where one of them stands; behind the last, where the text ends."""
        return self._places[index] if index < len(self._places) else self._length

    def end(self, index: int) -> int:
        """Return where a stretch ends of which this is the first no more."""
        return self._places[index - 1] + 1


def back(text: str, place: int, count: int) -> int:
    """Return the place from which on so many characters are seen before that place."""
    for _ in range(count):
        place -= 1
        while place > 0 and UNSEEN.match(text[place]):
            place -= 1
    return max(place, 0)
