"""Regular expressions that others write: how far one reaches, and whether its work is bounded.

Python's matcher tries one way after the other. What it may cost is the product of the ways that its
repeats leave open, so a pattern is refused where these multiply. A repeat leaves none open where
what follows cannot be part of it: `[a-z]+@` has one way to read a word, `.*@` as many as the word
has characters.
"""

import functools
import importlib
import re
import warnings
from collections.abc import Sequence
from typing import Any

PATTERN_CHARS_MAX = 500
REACH_MAX = 256
"""No match reaches further than this, whatever its repeats would take."""

WAYS_MAX = 1_000
KNOWN_MAX = 1_000
_TURNS_COUNTED = 10  # Twice as many with each: more of them are too many anyhow.

# The parser of `re` itself: nobody else knows what a pattern means to it.
_parser: Any = importlib.import_module("re._parser")

Chars = frozenset[str]
Node = tuple[Any, Any]

_SAMPLE: Chars = frozenset(map(chr, range(0x180))) | frozenset("αωДя中あ٣\u2003\u2014😀")
_NONE: Chars = frozenset()


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
    if _ways(list(nodes), _NONE) > WAYS_MAX:
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
    if _ways(list(_parsed(pattern)), _NONE) > WAYS_MAX:
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


def _ways(nodes: Sequence[Node], after: Chars) -> int:
    """Return in how many ways the sequence may be tried at one place, `after` being what follows.

    Counted from the end, as what a repeat leaves open depends on what comes behind it.
    """
    total = 1
    for node in reversed(nodes):
        total = min(total * _ways_of(node, after), WAYS_MAX + 1)
        first, skippable = _first_of(node)
        after = first | after if skippable else first
    return total


def _ways_of(node: Node, after: Chars) -> int:
    match (str(node[0]), node[1]):
        case ("BRANCH", (_, branches)):
            ways = [_ways(list(branch), after) for branch in branches]
            firsts = [_first(list(branch)) for branch in branches]
            begins = [chars | after if skippable else chars for chars, skippable in firsts]
            apart = sum(map(len, begins)) == len(_NONE.union(*begins))
            return max(ways) if apart else sum(ways)
        case ("SUBPATTERN", (*_, nodes)) | ("ASSERT" | "ASSERT_NOT", (_, nodes)):
            return _ways(list(nodes), after)
        case ("ATOMIC_GROUP", nodes):
            return _ways(list(nodes), _NONE)
        case ("MAX_REPEAT" | "MIN_REPEAT", (least, most, nodes)):
            return _ways_of_repeat(list(nodes), int(least), min(int(most), REACH_MAX), after)
        case ("POSSESSIVE_REPEAT", (least, most, nodes)):
            return _ways_of_repeat(list(nodes), int(least), min(int(most), REACH_MAX), _NONE)
        case ("GROUPREF" | "GROUPREF_EXISTS", _):
            raise PatternError("it refers back to a group; say what is to stand there")
        case _:
            return 1


def _ways_of_repeat(nodes: Sequence[Node], least: int, most: int, after: Chars) -> int:
    first, _ = _first(nodes)
    inner: int = _ways(nodes, first | after)
    turns = most - least + 1 if first & after else 1
    ways: int = turns * inner ** min(most, _TURNS_COUNTED)
    return min(ways, WAYS_MAX + 1)


def _first(nodes: Sequence[Node]) -> tuple[Chars, bool]:
    """Return with what the sequence may begin, and whether it may be nothing."""
    chars = _NONE
    for node in nodes:
        first, skippable = _first_of(node)
        chars |= first
        if not skippable:
            return chars, False
    return chars, True


def _first_of(node: Node) -> tuple[Chars, bool]:
    match (str(node[0]), node[1]):
        case ("BRANCH", (_, branches)):
            firsts = [_first(list(branch)) for branch in branches]
            return _NONE.union(*(chars for chars, _ in firsts)), any(s for _, s in firsts)
        case ("SUBPATTERN", (*_, nodes)) | ("ATOMIC_GROUP", nodes):
            return _first(list(nodes))
        case (("MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT"), (least, _, nodes)):
            first, skippable = _first(list(nodes))
            return first, skippable or least == 0
        case (("AT" | "ASSERT" | "ASSERT_NOT"), _):
            return _SAMPLE, True  # It may fail behind anything.
        case _:
            return _chars(node), False


def _chars(node: Node) -> Chars:
    """Return what one character may be, whatever its case."""
    match (str(node[0]), node[1]):
        case ("LITERAL", code):
            return _cases(chr(code))
        case ("NOT_LITERAL", code):
            return _SAMPLE - {chr(code)}
        case ("RANGE", (low, high)):
            return _NONE.union(*(_cases(c) for c in _SAMPLE if low <= ord(c) <= high))
        case ("CATEGORY", category):
            return _of_category(str(category))
        case ("IN", [negation, *members]) if str(negation[0]) == "NEGATE":
            return _SAMPLE - _NONE.union(*map(_chars, members))
        case ("IN", members):
            return _NONE.union(*map(_chars, members))
        case _:
            return _SAMPLE


def _cases(char: str) -> Chars:
    return frozenset((char, *char.lower(), *char.upper()))


def _of_category(name: str) -> Chars:
    kind = name.removeprefix("CATEGORY_").removeprefix("NOT_")
    letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[kind]
    chars = frozenset(char for char in _SAMPLE if re.match(rf"\{letter}", char))
    return _SAMPLE - chars if "NOT_" in name else chars


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
