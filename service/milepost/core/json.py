"""JSON as a type, and the one place that makes foreign values encodable."""

import math
import re
from collections.abc import Mapping

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

INT_MAX = 2**63 - 1
INT_MIN = -(2**63)
DEPTH_MAX = 64

# NUL cannot be stored in a Postgres text, and a lone surrogate cannot be encoded as UTF-8.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class UnencodableError(ValueError):
    """The value has no JSON form that every reader agrees on."""


def clean_text(text: str) -> str:
    """Return `text` with NUL and lone surrogates replaced by U+FFFD."""
    if text.isascii() and "\x00" not in text:
        return text  # What nearly all text is, at a tenth of the cost.
    return _UNSTORABLE.sub(_REPLACEMENT, text)


def clean(value: object, depth: int = 0) -> Json:
    """Return `value`, which a model, a tool or a client gave us, in a form that can be stored.

    Integers beyond 64 bits become strings, since neither orjson nor SQLite carries them.
    Raises `UnencodableError` for NaN, infinities, nesting beyond `DEPTH_MAX` and non-JSON types.
    """
    match value:
        case str():
            return clean_text(value)
        case None | bool():
            return value
        case int():
            return value if INT_MIN <= value <= INT_MAX else str(value)
        case float():
            if not math.isfinite(value):
                raise UnencodableError(f"{value} is not a JSON number")
            return value
        case Mapping() | list() | tuple():
            return _clean_container(value, depth)
        case _:
            raise UnencodableError(f"a {type(value).__name__} has no JSON form")


def _clean_container(
    value: Mapping[object, object] | list[object] | tuple[object, ...], depth: int
) -> Json:
    if depth >= DEPTH_MAX:
        raise UnencodableError(f"nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, Mapping):
        return {clean_text(str(key)): clean(item, depth + 1) for key, item in value.items()}
    return [clean(item, depth + 1) for item in value]
