"""Where a client is in a session's stream: in which of its runs, and where in that one's."""

import re
from dataclasses import dataclass, field

from milepost.api.cursors import Cursor, parse_cursor
from milepost.core.errors import InvalidError

_CURSOR = re.compile(r"(?P<run_id>run_[0-9A-Za-z_]{1,64})\.(?P<within>[^.]+)")


@dataclass(frozen=True, slots=True)
class SessionCursor:
    """Where a client is: `within` the log of a run, or before the session's first."""

    run_id: str | None = None
    within: Cursor = field(default_factory=Cursor)


def parse_session_cursor(text: str | None) -> SessionCursor:
    """Return the cursor that a frame's id is. Raises `InvalidError` for anything else."""
    if text is None or text == "":
        return SessionCursor()
    matched = _CURSOR.fullmatch(text)
    if matched is None:
        raise InvalidError(
            f"{text[:100]!r} is no position in a session's stream; send the id of the last event"
            " that you got, such as run_1.42 or run_1.42~msg_1:136",
            code="bad_cursor",
        )
    return SessionCursor(matched["run_id"], parse_cursor(matched["within"]))
