"""One line that shows a person what a call would do."""

from collections.abc import Mapping

from milepost.core.json import Json

PREVIEW_CHARS_MAX = 200


def preview(name: str, arguments: Mapping[str, Json]) -> str:
    """Return the call as Python would write it, cut at `PREVIEW_CHARS_MAX` characters."""
    listed = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    text = f"{name}({listed})"
    if len(text) <= PREVIEW_CHARS_MAX:
        return text
    return text[: PREVIEW_CHARS_MAX - 1] + "…"
