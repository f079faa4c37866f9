"""Text that fits a pattern, or none that does."""

import re
from collections.abc import Iterator, Sequence

from milepost.guardrails.finds import Find
from milepost.guardrails.patterns import REACH_MAX, reach_of

_TO_THE_END = 2  # `$` also looks at a line break behind itself.


class Regex:
    """A pattern, searched for in a text that may go on.

    A match reaches no further than `REACH_MAX`: what is read at one place is bounded, whatever the
    pattern's repeats would take. Raises `PatternError` for a pattern that cannot be used.
    """

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        reach = reach_of(pattern)
        self._pattern = re.compile(pattern, re.IGNORECASE if ignore_case else re.NOFLAG)
        self._is_short = reach is not None
        self._context = (REACH_MAX if reach is None else reach) + _TO_THE_END

    def settled(self, text: str, *, whole: bool) -> int:
        """Return up to where a match that begins there is there for good."""
        return len(text) if whole else len(text) - self._context

    def spans(self, text: str, start: int, settled: int) -> Iterator[tuple[int, int]]:
        """Yield where the matches begin and end that begin from `start` to `settled`."""
        if self._is_short:
            for match in self._pattern.finditer(text, start):
                if match.start() >= settled:
                    return
                yield match.span()
            return
        at = start
        while at < settled:
            matched = self._pattern.match(text, at, at + REACH_MAX)
            if matched:
                yield matched.span()
            at = matched.end() if matched else at + 1


class Denied:
    """Finds what fits the pattern."""

    reads_whole = False
    demands = False

    def __init__(self, regex: Regex, instead: str) -> None:
        self._regex = regex
        self._instead = instead

    def find(self, text: str, start: int, *, whole: bool) -> tuple[Sequence[Find], int]:
        """Return what fits; what begins too near the end for a match in full is not settled."""
        settled = self._regex.settled(text, whole=whole)
        what = "text that fits a pattern"
        spans = self._regex.spans(text, start, settled)
        return [Find(begin, end, what, self._instead) for begin, end in spans], settled


class Required:
    """Finds all of a text in which nothing fits the pattern."""

    reads_whole = True
    demands = True

    def __init__(self, regex: Regex) -> None:
        self._regex = regex

    def find(self, text: str, start: int, *, whole: bool) -> tuple[Sequence[Find], int]:
        """Return the whole; nothing is settled before something fits."""
        settled = self._regex.settled(text, whole=whole)
        if start or next(self._regex.spans(text, 0, settled), None):
            return (), len(text)
        missing = Find(0, None, "nothing that fits the pattern")
        return ([missing], len(text)) if whole else ((), 0)
