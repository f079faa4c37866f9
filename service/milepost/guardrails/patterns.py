"""Regular expressions that others write: how far one reaches, and whether its work is bounded.

Python's matcher tries one way after the other. What it may cost is the product of the ways that its
repeats leave open, so a pattern is refused where these multiply. A repeat leaves none open where
what follows cannot be part of it: `[a-z]+@` has one way to read a word, `.*@` as many as the word
has characters.
"""

import functools
import importlib
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

PATTERN_CHARS_MAX = 500
REACH_MAX = 256
"""No match reaches further than this, whatever its repeats would take."""

WAYS_MAX = 1_000
KNOWN_MAX = 1_000
LOOKS_MAX = 4_096
"""At how many of its characters a range of a pattern is looked at."""

_TURNS_COUNTED = 10  # Twice as many with each: more of them are too many anyhow.

# The parser of `re` itself: nobody else knows what a pattern means to it.
_parser: Any = importlib.import_module("re._parser")

Chars = frozenset[str]
Node = tuple[Any, Any]

_SAMPLE: Chars = frozenset(map(chr, range(0x180))) | frozenset(
    "αωДя中あ٣\u1680\u2003\u2014\u2028\u202f\u205f\u3000😀"
)
_NONE: Chars = frozenset()
_KINDS = tuple(map(re.compile, (r"\w", r"\W", r"\d", r"\s")))


class PatternError(ValueError):
    """The pattern cannot be used; the message says why, and what would do."""


@functools.lru_cache(maxsize=KNOWN_MAX)
def reach_of(pattern: str) -> int | None:
    """Return how many characters a match may have and look at; None: more than `REACH_MAX`.

    Raises `PatternError` for a pattern that cannot be read, that fits where there is nothing, or
    that may take long.
    """
    if len(pattern) > PATTERN_CHARS_MAX:
        raise PatternError(f"it has more than {PATTERN_CHARS_MAX} characters; use several")
    nodes = _parsed(pattern)
    shortest, longest = nodes.getwidth()
    if shortest == 0:
        raise PatternError("it fits where there is nothing; let it require a character")
    if _Reading(list(nodes)).ways() > WAYS_MAX:
        raise PatternError(
            "it may be tried in too many ways; give its repeats bounds, such as {1,20}, and let"
            " what follows a repeat be nothing that the repeat takes"
        )
    reach = longest + sum(_beside(node) for node in nodes)
    return reach if reach <= REACH_MAX else None


@functools.lru_cache(maxsize=KNOWN_MAX)
def require_quick(pattern: str) -> None:
    """Raise `PatternError` for a pattern whose matching may take time without bound.

    It may reach as far as it likes, and fit where there is nothing.
    """
    if len(pattern) > PATTERN_CHARS_MAX:
        raise PatternError(f"it has more than {PATTERN_CHARS_MAX} characters")
    if _Reading(list(_parsed(pattern))).ways() > WAYS_MAX:
        raise PatternError(
            "it may be tried in too many ways; let what follows a repeat be nothing"
            " that the repeat takes"
        )


def _parsed(pattern: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(pattern)
            return _parser.parse(pattern)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise PatternError(f"it cannot be read: {error}") from error


class _Reading:
    """A pattern as one tries it: where its parts can take the same characters.

    What its classes have in common shows in a sample of all characters: those that the pattern
    names with their neighbours, where anything begins or ends, and some of what its ranges span.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._sample = _SAMPLE.union(_examples(nodes))

    def ways(self) -> int:
        """Return in how many ways it may be tried at one place."""
        return self._ways(self._nodes, _NONE)

    def _ways(self, nodes: Sequence[Node], after: Chars) -> int:
        """Return in how many ways the sequence may be tried at one place; `after` is what follows.

        Counted from the end, as what a repeat leaves open depends on what comes behind it.
        """
        total = 1
        for node in reversed(nodes):
            total = min(total * self._ways_of(node, after), WAYS_MAX + 1)
            first, skippable = self._first_of(node)
            after = first | after if skippable else first
        return total

    def _ways_of(self, node: Node, after: Chars) -> int:
        match (str(node[0]), node[1]):
            case ("BRANCH", (_, branches)):
                ways = [self._ways(list(branch), after) for branch in branches]
                firsts = [self._first(list(branch)) for branch in branches]
                begins = [chars | after if skippable else chars for chars, skippable in firsts]
                apart = sum(map(len, begins)) == len(_NONE.union(*begins))
                return max(ways) if apart else sum(ways)
            case ("SUBPATTERN", (*_, nodes)) | ("ASSERT" | "ASSERT_NOT", (_, nodes)):
                return self._ways(list(nodes), after)
            case ("ATOMIC_GROUP", nodes):
                return self._ways(list(nodes), _NONE)
            case ("MAX_REPEAT" | "MIN_REPEAT", (least, most, nodes)):
                return self._ways_of_repeat(
                    list(nodes), int(least), min(int(most), REACH_MAX), after
                )
            case ("POSSESSIVE_REPEAT", (least, most, nodes)):
                return self._ways_of_repeat(
                    list(nodes), int(least), min(int(most), REACH_MAX), _NONE
                )
            case ("GROUPREF" | "GROUPREF_EXISTS", _):
                raise PatternError("it refers back to a group; say what is to stand there")
            case _:
                return 1

    def _ways_of_repeat(self, nodes: Sequence[Node], least: int, most: int, after: Chars) -> int:
        first, _ = self._first(nodes)
        inner: int = self._ways(nodes, first | after)
        turns = most - least + 1 if first & after else 1
        ways: int = turns * inner ** min(most, _TURNS_COUNTED)
        return min(ways, WAYS_MAX + 1)

    def _first(self, nodes: Sequence[Node]) -> tuple[Chars, bool]:
        """Return with what the sequence may begin, and whether it may be nothing."""
        chars = _NONE
        for node in nodes:
            first, skippable = self._first_of(node)
            chars |= first
            if not skippable:
                return chars, False
        return chars, True

    def _first_of(self, node: Node) -> tuple[Chars, bool]:
        match (str(node[0]), node[1]):
            case ("BRANCH", (_, branches)):
                firsts = [self._first(list(branch)) for branch in branches]
                return _NONE.union(*(chars for chars, _ in firsts)), any(s for _, s in firsts)
            case ("SUBPATTERN", (*_, nodes)) | ("ATOMIC_GROUP", nodes):
                return self._first(list(nodes))
            case (("MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT"), (least, _, nodes)):
                first, skippable = self._first(list(nodes))
                return first, skippable or least == 0
            case (("AT" | "ASSERT" | "ASSERT_NOT"), _):
                return self._sample, True  # It may fail behind anything.
            case _:
                return self._chars(node), False

    def _chars(self, node: Node) -> Chars:
        """Return what one character may be, whatever its case."""
        match (str(node[0]), node[1]):
            case ("LITERAL", code):
                return _cases(chr(code))
            case ("NOT_LITERAL", code):
                return self._sample - {chr(code)}
            case ("RANGE", (low, high)):
                return _NONE.union(*(_cases(c) for c in self._sample if low <= ord(c) <= high))
            case ("CATEGORY", category):
                return self._of_category(str(category))
            case ("IN", [negation, *members]) if str(negation[0]) == "NEGATE":
                return self._sample - _NONE.union(*map(self._chars, members))
            case ("IN", members):
                return _NONE.union(*map(self._chars, members))
            case _:
                return self._sample

    def _of_category(self, name: str) -> Chars:
        kind = name.removeprefix("CATEGORY_").removeprefix("NOT_")
        letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[kind]
        chars = frozenset(char for char in self._sample if re.match(rf"\{letter}", char))
        return self._sample - chars if "NOT_" in name else chars


def _examples(part: Any) -> Iterator[str]:
    """Yield what is worth trying of the numbers in a part of a pattern, be they characters."""
    match part:
        case (op, (int(low), int(high))) if str(op) == "RANGE":
            yield from _beginnings(low, high)
            yield from _examples((low, high))
        case int() if type(part) is int:
            for code in range(max(part - 1, 0), min(part + 1, sys.maxunicode) + 1):
                yield from _cases(chr(code))
        case str() | int() | None:
            return
        case _:
            for each in part:
                yield from _examples(each)


@functools.lru_cache(maxsize=KNOWN_MAX)
def _beginnings(low: int, high: int) -> Chars:
    """Return the first of each kind in the range, as far as so many looks tell."""
    step = max(1, (high - low) // LOOKS_MAX)
    span = "".join(map(chr, range(low, high + 1, step)))
    return frozenset(found[0] for kind in _KINDS if (found := kind.search(span)))


def _cases(char: str) -> Chars:
    return frozenset((char, *char.lower(), *char.upper()))


def _beside(node: Node) -> int:
    """Return how far the node looks beside the match."""
    match (str(node[0]), node[1]):
        case ("ASSERT" | "ASSERT_NOT", (_, nodes)):
            return int(nodes.getwidth()[1]) + sum(map(_beside, nodes))
        case ("BRANCH", (_, branches)):
            return sum(_beside(node) for branch in branches for node in branch)
        case ("SUBPATTERN", (*_, nodes)) | ("ATOMIC_GROUP", nodes):
            return sum(map(_beside, nodes))
        case (("MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT"), (_, _, nodes)):
            return REACH_MAX * sum(map(_beside, nodes))
        case _:
            return 0
