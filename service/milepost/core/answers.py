"""JSON in what a model said, wherever in the answer it stands."""

import json
import re

from milepost.core.json import Json, clean

CORRECTION = "Your answer does not fit the JSON Schema that was asked for: "

# What may stand before the line's end takes no line's end itself: of many, each would be tried.
_FENCED = re.compile(r"```[\w-]*[^\S\n]*\n(?P<inside>.*?)```", re.DOTALL)
_OPENING = re.compile(r"[{\[]")
_PLACES_MAX = 100
_PROSE_CHARS_MAX = 2_000_000
"""So much is read in all where JSON is looked for in prose: at least one reading of any answer."""
_NOTHING = object()


class NoJsonError(ValueError):
    """There is no JSON in the text."""


def extract_json(text: str) -> Json:
    """Return the first JSON object or array in `text`: the whole of it, in a fence, or in prose.

    A text that is JSON as a whole may be any value. Raises `NoJsonError` where there is none.
    """
    if (whole := _loaded(text)) is not _NOTHING:
        return whole  # type: ignore[return-value]  # only the marker is no JSON
    for fenced in _FENCED.finditer(text):
        inside = _loaded(fenced["inside"])
        if isinstance(inside, dict | list):
            return inside
    return _first_in_prose(text)


def _loaded(text: str) -> Json | object:
    try:
        return clean(json.loads(text, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return _NOTHING


def _first_in_prose(text: str) -> Json:
    """Read from each brace on; a text of braces alone is given up, lest it take for ever."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    read = 0
    for place, opening in enumerate(_OPENING.finditer(text)):
        if place >= _PLACES_MAX or read > _PROSE_CHARS_MAX:
            break
        try:
            value, _ = decoder.raw_decode(text, opening.start())
            return clean(value)
        except json.JSONDecodeError as error:
            read += error.pos - opening.start()
        except (ValueError, RecursionError):
            continue
    raise NoJsonError("it holds no JSON object or array")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
