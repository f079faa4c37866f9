"""Strings, numbers, booleans and null at the model's boundary: what passes, and what is mended.

Each function returns a value that can be stored as JSON, and the same one when called with it.
"""

import math
from collections.abc import Callable, Mapping

from milepost.core.json import INT_MAX, INT_MIN, Json, UnencodableError, clean, clean_text
from milepost.tools.misfit import Misfit, shown

Coerce = Callable[[Json], Json]

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


def string(value: Json) -> Json:
    """Pass a string. Nothing else becomes one: `5` for a name is a mistake worth hearing of."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise Misfit(f"must be a string, got {shown(value)}", attempt=f"str({value})")
    raise _mistyped("string", value)


def integer(value: Json) -> Json:
    """Pass an integer, and 4.0, which JSON Schema counts as one."""
    if type(value) is int:
        return _storable(value)
    if isinstance(value, float) and value.is_integer():
        return _storable(int(value))
    raise _mistyped("integer", value)


def integer_from_text(value: Json) -> Json:
    """Pass an integer, or the text of one."""
    if not isinstance(value, str):
        return integer(value)
    try:
        return _storable(int(value))
    except ValueError:
        issue = f"must be an integer, got {shown(value)}"
        raise Misfit(issue, attempt=f"int({value[:80]!r})") from None


def number(value: Json) -> Json:
    """Pass a finite number; a boolean is none."""
    if type(value) is float:
        if not math.isfinite(value):
            raise Misfit(f"must be a finite number, got {value}", "Expected type: number")
        return value
    if type(value) is int:
        return value if INT_MIN <= value <= INT_MAX else _finite(value)
    raise _mistyped("number", value)


def number_from_text(value: Json) -> Json:
    """Pass a finite number, or the text of one."""
    return _finite(value) if isinstance(value, str) else number(value)


def boolean(value: Json) -> Json:
    """Pass true or false; 1 and 0 are numbers."""
    if isinstance(value, bool):
        return value
    raise _mistyped("boolean", value)


def boolean_from_text(value: Json) -> Json:
    """Pass true or false, or a word for one of them."""
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
    return boolean(value)


def null(value: Json) -> Json:
    """Pass null."""
    if value is None:
        return None
    raise _mistyped("null", value)


def anything(value: Json) -> Json:
    """Pass whatever can be stored."""
    try:
        return clean(value)
    except ValueError as error:
        kind = error if isinstance(error, UnencodableError) else "such a value has no JSON form"
        raise Misfit(f"cannot be taken: {kind}", "Expected type: any JSON value") from None


def nothing(value: Json) -> Json:
    """Pass nothing at all: the schema `false`."""
    raise Misfit(f"is not allowed here, got {shown(value)}")


EXACT: Mapping[str, Coerce] = {
    "string": string,
    "integer": integer,
    "number": number,
    "boolean": boolean,
    "null": null,
}
LENIENT: Mapping[str, Coerce] = {
    **EXACT,
    "integer": integer_from_text,
    "number": number_from_text,
    "boolean": boolean_from_text,
}


def _mistyped(expected: str, value: Json) -> Misfit:
    article = "an" if expected[0] in "aeiou" else "a"
    return Misfit(f"must be {article} {expected}, got {shown(value)}", f"Expected type: {expected}")


def _storable(value: int) -> Json:
    # What 64 bits cannot hold travels as text, as everywhere; the tool gets an int again.
    if INT_MIN <= value <= INT_MAX:
        return value
    try:
        return clean(value)
    except ValueError:
        raise Misfit("has too many digits", "Expected type: integer") from None


def _finite(value: str | int) -> float:
    try:
        result = float(value)
    except (ValueError, OverflowError):
        result = math.nan
    if not math.isfinite(result):
        issue = f"must be a finite number, got {shown(value)}"
        raise Misfit(issue, "Expected type: number")
    return result
