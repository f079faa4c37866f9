"""A structured answer while it is being written: as much of its value as can be read already."""

import re

from pydantic_core import from_json

from milepost.core.json import Json, UnencodableError, clean

PARTIAL_CHARS_MAX = 65_536

# An answer that is JSON, perhaps in a fence; not one in which JSON stands somewhere.
_BEGINS = re.compile(r"\s*(?:```[\w-]*[ \t]*\r?\n\s*)?(?=[{\[])")


def partial_value(text: str) -> Json:
    """Return the JSON object or array that `text` begins, as far as it goes; None before it does.

    A text that is cut off may end in half a string, and in a number that goes on. Each look reads
    the whole of it, so texts beyond `PARTIAL_CHARS_MAX` are not looked at.
    """
    begins = _BEGINS.match(text)
    if begins is None or len(text) > PARTIAL_CHARS_MAX:
        return None
    try:
        found = from_json(
            text[begins.end() :], allow_inf_nan=False, allow_partial="trailing-strings"
        )
        return clean(found)
    except (ValueError, UnencodableError):
        return None
