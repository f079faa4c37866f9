"""Which events of a log a query asks for, by globs of their types."""

from fnmatch import fnmatchcase

from starlette.requests import Request

from milepost.api.paging import words
from milepost.api.partials import PARTIAL
from milepost.core.codec import EVENTS
from milepost.core.errors import InvalidError

_LIVE = ("message.delta", "reasoning.delta", "tool_call.progress", PARTIAL)
_OF_STREAMS = ("stream.idle", "stream.lagged", "stream.reconnect", "error")
TYPES = frozenset((*EVENTS, *_LIVE, *_OF_STREAMS))
"""All that a run's or a session's stream may show."""


def wanted_types(request: Request) -> tuple[str, ...]:
    """Return the globs in `types`; raise `InvalidError` for one that fits nothing there is."""
    parts = (part.strip() for part in (words(request, "types") or "").split(","))
    globs = tuple(part for part in parts if part)
    for glob in globs:
        if not any(fnmatchcase(kind, glob) for kind in TYPES):
            families = sorted({f"{kind.partition('.')[0]}.*" for kind in TYPES if "." in kind})
            raise InvalidError(
                f"{glob!r} in types fits no type of event; there are: {', '.join(families)}",
                code="bad_query",
            )
    return globs
