"""Where a client is in a run's stream: the ids of frames, read back."""

import re
from dataclasses import dataclass

from starlette.requests import Request

from milepost.core.errors import InvalidError

_CURSOR = re.compile(r"(0|[1-9][0-9]{0,17})(?:~([A-Za-z0-9_]{1,64}):(0|[1-9][0-9]{0,17}))?")


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a client is: behind event `seq`, and `offset` code points into a message."""

    seq: int = 0
    message_id: str | None = None
    offset: int = 0


def left_at(request: Request) -> str | None:
    """Return the id of the last frame that a client got: a browser says it in a header."""
    return request.headers.get("last-event-id") or request.query_params.get("after")


def parse_cursor(text: str | None) -> Cursor:
    """Return the cursor that a frame's id is. Raises `InvalidError` for anything else."""
    if text is None or text == "":
        return Cursor()
    matched = _CURSOR.fullmatch(text)
    if matched is None:
        raise InvalidError(
            f"{text[:100]!r} is no position in a stream; send the id of the last event that you"
            " got, such as 42 or 42~msg_1:136",
            code="bad_cursor",
        )
    seq, message_id, offset = matched.groups()
    return Cursor(int(seq), message_id, int(offset or 0))
