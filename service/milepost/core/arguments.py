"""What a rule may ask of a call's arguments."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal, InvalidOperation
from enum import Enum
from fnmatch import fnmatchcase
from typing import Literal

import orjson

from milepost.core.canonical import canonical
from milepost.core.errors import InvalidError
from milepost.core.json import Json

Quantifier = Literal["any", "all"]

DEPTH_MAX = 16
EFFORT_MAX = 200_000_000
"""How many characters of a pattern may meet one of a text: about a tenth of a second."""
JUDGING_EFFORT_MAX = 2 * EFFORT_MAX
"""The same for all comparisons that one call is judged by."""
COST = 1_000
"""What a comparison takes besides."""
PLAIN_COST = 100
"""What each character takes of a text that is brought into its plain guise."""
_UNSEEN = re.compile(
    # Format characters, and whatever else Unicode calls ignorable where it is not known.
    "[\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_STEP = re.compile(r"(?:^|\.)([^.\[\]*]+)|\[(\d{1,6}|\*)\]")


@dataclass(frozen=True, slots=True)
class ArgumentMatch:
    """What the argument at the path `arg` must be for a rule to fit; all that is named must hold.

    The path is a name, or a way into a value: `order.lines[0].sku`, `to[*]`; `$.` before it
    changes nothing. `pattern` is a glob on the text (JSON for what is no text), `minimum` and
    `maximum` bound a number, themselves included, `one_of` lists values. An argument that is not
    there fits `absent` alone. What a text looks like counts for rules that forbid: other forms of
    the same letters, and letters that nobody sees, change nothing.
    """

    arg: str
    pattern: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    one_of: tuple[Json, ...] | None = None
    absent: bool = False

    def __str__(self) -> str:
        if self.absent:
            return f"{self.arg} is absent"
        said = []
        if self.pattern is not None:
            said.append(f"is like {self.pattern}")
        if self.minimum is not None:
            said.append(f"is {self.minimum:.15g} or more")
        if self.maximum is not None:
            said.append(f"is {self.maximum:.15g} or less")
        if self.one_of is not None:
            said.append(f"is one of {orjson.dumps(self.one_of).decode()}")
        return f"{self.arg} {' and '.join(said) or 'is there'}"

    @property
    def is_about_presence(self) -> bool:
        """Say whether it only asks if there is an argument, whatever it is."""
        told = (self.pattern, self.minimum, self.maximum, self.one_of)
        return all(each is None for each in told)

    def spelled(self) -> Json:
        """Return the match as JSON."""
        said = asdict(self)
        return {**said, "one_of": None if self.one_of is None else list(self.one_of)}


def steps_of(path: str) -> tuple[str | int | None, ...]:
    """Return the steps of a path: names, places, and None for any place.

    Raises `InvalidError` for what is no path.
    """
    rest = path.removeprefix("$").removeprefix(".") if path.startswith("$") else path
    steps: list[str | int | None] = []
    at = 0
    while at < len(rest):
        found = _STEP.match(rest, at)
        if found is None or (at == 0 and found[1] is None and not path.startswith("$")):
            raise _no_path(path)
        name, place = found.groups()
        steps.append(name if name is not None else None if place == "*" else int(place))
        at = found.end()
    if not 0 < len(steps) <= DEPTH_MAX:
        raise _no_path(path)
    return tuple(steps)


def _no_path(path: str) -> InvalidError:
    return InvalidError(
        f"{path!r} is no way to an argument; write `name`, `name.inner`, `name[0]` or `name[*]`,"
        f" with {DEPTH_MAX} steps at most",
        code="invalid_policy",
    )


class Effort:
    """What all comparisons of one judgement may still take: rules are many, and patience is one."""

    def __init__(self, left: int = JUDGING_EFFORT_MAX) -> None:
        self._left = left

    def spend(self, effort: int) -> bool:
        """Take some of it; say whether there was enough."""
        self._left -= effort
        return self._left >= 0


def fits(
    match: ArgumentMatch,
    arguments: Mapping[str, Json],
    how: Quantifier,
    effort: Effort | None = None,
) -> bool:
    """Say whether the match fits these arguments.

    Where a path leads to several values, or to a list, `any` is content with one that fits (for
    rules that forbid or ask), and `all` wants every one of them (for rules that allow). What would
    take too long to look at, alone or with all that `effort` was spent on, is forbidden, and not
    allowed.
    """
    looking = _Looking(match, how, effort or Effort())
    try:
        return looking.fits(dict(arguments))
    except _TooLongError:
        return how == "any"


class _TooLongError(Exception):
    """Nobody waits for this comparison."""


class _Nowhere(Enum):
    """Where a path leads that cannot be gone to its end."""

    NOWHERE = 0


_NOWHERE = _Nowhere.NOWHERE


class _Looking:
    """One match, and how much it may still be compared with."""

    def __init__(self, match: ArgumentMatch, how: Quantifier, effort: Effort) -> None:
        self._match = match
        self._how = how
        self._effort = effort
        self._wide = any if how == "any" else all
        self._left = EFFORT_MAX

    def fits(self, arguments: Json) -> bool:
        found = list(self._values(arguments, steps_of(self._match.arg))) or [_NOWHERE]
        if self._match.absent:
            return self._wide(value is _NOWHERE for value in found)
        return self._wide(value is not _NOWHERE and self._fits_value(value) for value in found)

    def _values(self, value: Json, steps: Sequence[str | int | None]) -> Iterator[Json | _Nowhere]:
        """Yield what the steps lead to; None in the arguments is a value like any other."""
        self._spend(1)
        if not steps:
            yield value
            return
        step, rest = steps[0], steps[1:]
        match step, value:
            case str(), Mapping() if step in value:
                yield from self._values(value[step], rest)
            case int(), list() if step < len(value):
                yield from self._values(value[step], rest)
            case None, list():
                for item in value:
                    yield from self._values(item, rest)
            case None | 0, _ if self._how == "any" and not isinstance(value, list):
                # Tools that take one or several are sent one without a list around it.
                yield from self._values(value, rest)
            case str(), list() if value:
                # And several where the rule has one in mind: each may be forbidden, none is meant.
                if self._how == "all":
                    yield _NOWHERE
                for item in value:
                    yield from self._values(item, steps)
            case _:
                yield _NOWHERE

    def _fits_value(self, value: Json) -> bool:
        if not isinstance(value, list) or not value:
            return self._fits_one(value)
        inner = (self._fits_value(item) for item in value)
        if self._how == "all":
            return all(inner)
        return any(inner) or self._fits_one(value)

    def _fits_one(self, value: Json) -> bool:
        match = self._match
        self._spend(COST)
        if match.pattern is not None and not self._is_like(match.pattern, value):
            return False
        if match.one_of is not None and not any(self._same(value, each) for each in match.one_of):
            return False
        if match.minimum is None and match.maximum is None:
            return True
        number = self._amount(value)
        if number is None:
            return False
        return (match.minimum is None or number >= _bound(match.minimum)) and (
            match.maximum is None or number <= _bound(match.maximum)
        )

    def _amount(self, value: Json) -> Decimal | None:
        number = _number(value)
        if number is not None or self._how == "all":
            return number
        if not isinstance(value, str) or value.isascii():
            return None
        self._spend(len(value) * PLAIN_COST)
        return _number(_plain(value))

    def _is_like(self, pattern: str, value: Json) -> bool:
        text = value if isinstance(value, str) else orjson.dumps(value).decode()
        self._spend(len(text) * (len(pattern) + 1))
        if fnmatchcase(text, pattern):
            return True
        # 5.0 is 5, whichever of them a model writes: one digest binds both.
        seen = canonical(value) if isinstance(value, float) else _plain(text)
        plain = (seen, _plain(pattern))
        return self._how == "any" and plain != (text, pattern) and fnmatchcase(*plain)

    def _same(self, value: Json, other: Json) -> bool:
        """True is not 1."""
        if isinstance(value, bool) != isinstance(other, bool):
            return False
        if value == other:
            return True
        if self._how == "all" or not (isinstance(value, str) and isinstance(other, str)):
            return False
        return _plain(value) == _plain(other)

    def _spend(self, effort: int) -> None:
        self._left -= effort
        if self._left < 0 or not self._effort.spend(effort):
            raise _TooLongError


def _plain(text: str) -> str:
    """Return the text in the one guise that stands for all: what is forbidden is so in each.

    Letters that nobody sees go first and last: they keep others apart that belong together, and
    some only show in the folded text that they are such. Nor is space at the ends seen.
    """
    if text.isascii():
        return text.strip()
    folded = unicodedata.normalize("NFKC", _UNSEEN.sub("", text))
    return unicodedata.normalize("NFKC", _UNSEEN.sub("", folded)).strip()


def _number(value: Json) -> Decimal | None:
    """Return the number that a value is, or that its text spells, as amounts of money are sent."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    number = _spelled(value) if isinstance(value, str) else Decimal(repr(value))
    return None if number is None or number.is_nan() else number


def _spelled(text: str) -> Decimal | None:
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        pass
    try:
        return Decimal(float(text))  # 1e9999999999999999999 is a lot, whatever reads it.
    except ValueError:
        return None


def _bound(number: float) -> Decimal:
    return Decimal(repr(number))
