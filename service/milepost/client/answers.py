"""Reading an answer, which may be of somebody else, and then may have no end."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import orjson

from milepost.client.foreign import SHOWN_MAX
from milepost.core.errors import ApiError
from milepost.core.http_dates import seconds_between

REFUSAL_BYTES_MAX = 1_048_576
PLACE_CHARACTERS_MAX = 1_000
NOT_A_PROBLEM = "not_a_problem"
_PASSING = frozenset({429, 502, 503, 504})


async def problem_of(answer: httpx2.Response) -> ApiError:
    """Return the answer as an error; a proxy on the way may have given one of its own kind."""
    said = await beginning_of(answer)
    problem = object_of(said) if "json" in media_of(answer) else None
    if problem is None or not isinstance(problem.get("code"), str):
        problem = {
            "detail": f"the server answered {answer.status_code}: {_told(answer, said)}",
            "code": NOT_A_PROBLEM,
            "retryable": answer.status_code in _PASSING,
        }
    return ApiError(problem, status=answer.status_code, retry_after_s=_retry_after_s(answer))


def _told(answer: httpx2.Response, said: bytes) -> str:
    """Return what to say of a refusal that is none of Milepost's."""
    if not answer.has_redirect_location:
        return text_of(said)
    # Whoever can have us sent elsewhere would have our key: only our caller says who gets that.
    place = answer.headers["location"][:PLACE_CHARACTERS_MAX]
    told = f"it sends us to {place!r}, where the key does not go"
    return f"{told}; if that is Milepost, give its address"


def _retry_after_s(answer: httpx2.Response) -> float | None:
    """Return when the server wants to be asked again: it says so in seconds, or by its clock."""
    said = answer.headers.get("retry-after", "")
    if said.isdecimal():
        return float(said)
    return seconds_between(answer.headers.get("date"), said)


async def beginning_of(answer: httpx2.Response) -> bytes:
    """Return what the answer says, and of one without an end what is enough to tell."""
    said = b""
    async for piece in answer.aiter_bytes():
        said += piece
        if len(said) >= REFUSAL_BYTES_MAX:
            break
    return said[:REFUSAL_BYTES_MAX]


async def lines_of(answer: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield lines as JSON parts them: text in it may have other characters that end a line.

    Raises `httpx2.RequestError` where the last one has no end, so that it may be half of one.
    """
    rest = b""
    async for piece in answer.aiter_bytes():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line
    if rest:
        raise httpx2.RemoteProtocolError("the answer ends in the middle of a line")


def media_of(answer: httpx2.Response) -> str:
    """Return of what kind the answer says to be, without what it says of that kind."""
    kind: str = answer.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()


def object_of(content: bytes) -> dict[str, Any] | None:
    """Return the object that this is in JSON, None if it is none."""
    try:
        said = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return said if isinstance(said, dict) else None


def text_of(said: bytes) -> str:
    """Return the beginning of what was said, as it can be shown."""
    return said[: SHOWN_MAX * 4].decode(errors="replace")[:SHOWN_MAX]
