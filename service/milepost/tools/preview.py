"""What a call would do, as a person is shown it: whole, or in one line."""

from collections.abc import Mapping

from milepost.core.json import Json

PREVIEW_CHARS_MAX = 200


def spelled_out(name: str, arguments: Mapping[str, Json]) -> str:
    """Return all of the call as Python would write it, for whoever is shown nothing else of it."""
    listed = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return f"{name}({listed})"


def preview(name: str, arguments: Mapping[str, Json]) -> str:
    """Return the call as Python would write it, cut at `PREVIEW_CHARS_MAX` characters."""
    text = spelled_out(name, arguments)
    if len(text) <= PREVIEW_CHARS_MAX:
        return text
    return text[: PREVIEW_CHARS_MAX - 1] + "…"
