"""A structured answer while it is being written: as much of its value as can be read already."""

from pydantic_core import from_json

from milepost.core.json import Json, UnencodableError, clean

PARTIAL_CHARS_MAX = 100_000


def partial_value(text: str) -> Json:
    """Return the JSON object or array that `text` begins, as far as it goes; None before it does.

    Each look reads the whole of it, so longer texts than `PARTIAL_CHARS_MAX` are not looked at.
    """
    places = [place for place in (text.find("{"), text.find("[")) if place >= 0]
    if not places or len(text) > PARTIAL_CHARS_MAX:
        return None
    try:
        return clean(from_json(text[min(places) :], allow_partial="trailing-strings"))
    except (ValueError, UnencodableError):
        return None
