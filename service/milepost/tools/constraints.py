"""The bounds that a JSON Schema puts on numbers, strings, arrays and objects."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import TypeGuard, cast

from milepost.core.json import Json
from milepost.tools.misfit import Misfit, shown

SEARCHED_CHARS_MAX = 10_000
"""A pattern that may begin anywhere, and goes on as long as it likes, is tried from each letter."""

Check = Callable[[Json], None]
Number = int | float

_UNBOUNDED = re.compile(r"[*+]|\{\d*,(?:\}|\d{4})")
_BOUNDS: Mapping[str, tuple[str, Callable[[Number, Number], bool]]] = {
    "minimum": ("at least", lambda value, bound: value >= bound),
    "maximum": ("at most", lambda value, bound: value <= bound),
    "exclusiveMinimum": ("greater than", lambda value, bound: value > bound),
    "exclusiveMaximum": ("less than", lambda value, bound: value < bound),
}
_SIZES: Mapping[str, tuple[type, str, str]] = {
    "minLength": (str, "at least", "characters"),
    "maxLength": (str, "at most", "characters"),
    "minItems": (list, "at least", "items"),
    "maxItems": (list, "at most", "items"),
    "minProperties": (dict, "at least", "properties"),
    "maxProperties": (dict, "at most", "properties"),
}


def checks_of(schema: Mapping[str, Json]) -> Iterator[Check]:
    """Yield a check for every bound in `schema` itself, not in what it contains.

    A pattern that Python cannot read is left to whoever made the schema.
    """
    for keyword, bound in schema.items():
        if keyword in _BOUNDS:
            yield _bound(keyword, cast("Number", bound), textual=schema.get("type") == "integer")
        elif keyword in _SIZES:
            yield _size(keyword, cast("int", bound))
        elif keyword == "multipleOf":
            yield _multiple(cast("Number", bound), textual=schema.get("type") == "integer")
        elif keyword == "pattern" and (pattern := readable(str(bound))):
            yield _pattern(pattern)


def misuses(schema: Mapping[str, Json]) -> Iterator[str]:
    """Yield a verb phrase for every bound in `schema` itself that bounds nothing."""
    for keyword, bound in schema.items():
        if (needed := _needed(keyword, bound)) is not None:
            yield f"has the {keyword} {bound!r}; it must be {needed}"
        elif keyword == "pattern" and readable(str(bound)) is None:
            yield f"has a pattern that cannot be read: {bound}"


def _needed(keyword: str, bound: Json) -> str | None:
    """Return what the bound of `keyword` must be, None where it is that."""
    if keyword == "pattern":
        return None if isinstance(bound, str) else "a string"
    number = bound if _is_finite(bound) else None
    if keyword in _BOUNDS and number is None:
        return "a finite number"
    if keyword in _SIZES and (number is None or number < 0 or number % 1):
        return "a whole number, 0 or more"
    if keyword == "multipleOf" and (number is None or number <= 0):
        return "a finite number greater than 0"
    return None


def _is_finite(value: Json) -> TypeGuard[Number]:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def readable(pattern: str) -> re.Pattern[str] | None:
    """Return `pattern` compiled, None where Python's dialect has no such expression."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return None


def _is_searched_for(pattern: str) -> bool:
    begins_at_the_beginning = pattern.startswith("^") and "|" not in pattern
    return not begins_at_the_beginning and _UNBOUNDED.search(pattern) is not None


def _bound(keyword: str, bound: Number, *, textual: bool) -> Check:
    words, holds = _BOUNDS[keyword]

    def check(value: Json) -> None:
        number = _number(value, textual)
        if number is not None and not holds(number, bound):
            raise Misfit(f"must be {words} {bound}, got {shown(value)}", kind="bound")

    return check


def _multiple(factor: Number, *, textual: bool) -> Check:
    def check(value: Json) -> None:
        number = _number(value, textual)
        if number is not None and _exact(number) % _exact(factor):
            raise Misfit(f"must be a multiple of {factor}, got {shown(value)}", kind="bound")

    return check


def _exact(number: Number) -> Fraction:
    """Return what the decimal text of `number` says: 0.3 is no multiple of 0.1 in binary."""
    return Fraction(number if isinstance(number, int) else repr(number))


def _number(value: Json, textual: bool) -> Number | None:
    """Return the number that is bounded; `textual`: an integer too large for 64 bits is text."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    return int(value) if textual and isinstance(value, str) else None


def _size(keyword: str, bound: int) -> Check:
    kind, words, unit = _SIZES[keyword]
    least = words == "at least"

    def check(value: Json) -> None:
        if not isinstance(value, kind):
            return
        size = len(cast("str", value))
        if size < bound if least else size > bound:
            raise Misfit(f"must have {words} {bound} {unit}, got {size}", kind="bound")

    return check


def _pattern(pattern: re.Pattern[str]) -> Check:
    may_take_long = _is_searched_for(pattern.pattern)

    def check(value: Json) -> None:
        if not isinstance(value, str):
            return
        if may_take_long and len(value) > SEARCHED_CHARS_MAX:
            raise Misfit(
                f"must have at most {SEARCHED_CHARS_MAX} characters, as the pattern"
                f" {pattern.pattern} does not begin with ^, got {len(value)}",
                kind="bound",
            )
        if not pattern.search(value):
            raise Misfit(
                f"must match the pattern {pattern.pattern}, got {shown(value)}", kind="bound"
            )

    return check
