"""In which form an answer is wanted, out of several that it comes in."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from milepost.core.errors import InvalidError

EVENTS = "text/event-stream"
JSON = "application/json"
LINES = "application/x-ndjson"

_ANYTHING = "*/*"
_QUALITY = re.compile(r";q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)(?:;|\Z)", re.IGNORECASE)


class _Wish(NamedTuple):
    """How much something is asked for, from 0 to 1; the greater `rank` stood further in front."""

    quality: float
    rank: int = 0


_UNASKED = _Wish(0.0)


def accepted(request: Request, *forms: str) -> str:
    """Return the form that `Accept` asks for most (RFC 9110, section 12.5.1).

    Of those that it asks for as much, the one that it names first; whoever takes anything gets the
    first of `forms`. Raises `InvalidError` where none is asked for.
    """
    wishes = _wishes(request)
    form = max(forms, key=lambda form: _wish(wishes, form))
    if not _wish(wishes, form).quality:
        asked = ", ".join(request.headers.getlist("accept"))
        raise InvalidError(
            f"this comes as {' or '.join(forms)}, not {asked!r}", code="not_acceptable"
        )
    return form


def asks_for(request: Request, form: str, *, instead_of: str) -> bool:
    """Say whether `Accept` names the form, and does not name the usual one as a better one."""
    wishes = _wishes(request)
    named, usual = wishes.get(form, _UNASKED), wishes.get(instead_of, _UNASKED)
    return 0 < named.quality >= usual.quality


def _wishes(request: Request) -> dict[str, _Wish]:
    """Return how much each range of media is asked for, in several lines as in one."""
    wishes: dict[str, _Wish] = {}
    for part in ",".join(request.headers.getlist("accept")).split(","):
        media, _, parameters = part.partition(";")
        if name := media.strip().lower():
            quality = _QUALITY.search(f";{parameters}".replace(" ", ""))
            wish = _Wish(float(quality[1]) if quality else 1.0, -len(wishes))
            wishes.setdefault(name, wish)
    return wishes or {_ANYTHING: _Wish(1.0)}


def _wish(wishes: Mapping[str, _Wish], form: str) -> _Wish:
    """Return how much the form is asked for, as the narrowest range says that it is in."""
    ranges = (form, f"{form.partition('/')[0]}/*", _ANYTHING)
    return next((wishes[each] for each in ranges if each in wishes), _UNASKED)


def headers_of_a_stream(form: str) -> Response:
    """Answer a HEAD: who wants no body waits for none."""
    answer = Response(media_type=form)
    del answer.headers["content-length"]
    return answer
