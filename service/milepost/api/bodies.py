"""Request bodies: read within bounds, parsed once, refused with every place that does not fit."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from milepost.api.accepting import JSON
from milepost.api.problems import BodyError, FieldError
from milepost.core.errors import InvalidError
from milepost.core.json import INT_MAX, INT_MIN, UnencodableError, clean
from milepost.runtime.spec import instead, why

BODY_BYTES_MAX = 1_048_576
BODY_S_MAX = 60.0
BODY_VALUES_MAX = 50_000
FIELD_ERRORS_MAX = 100
DIGITS_MAX = 20

_MANY_DIGITS = re.compile(rb"[0-9]{19}")
_CHARSET = re.compile(r';\s*charset="?([^\s";]*)', re.IGNORECASE)
# Names of it, and of what is UTF-8 as well.
_UTF_8 = frozenset({"utf-8", "utf8", "us-ascii"})
# Behind each field's name, and in texts that look like it.
_NAME_END = re.compile(rb'"[ \t\n\r]*:')

USER_CHARS_MAX = 200

B = TypeVar("B", bound=BaseModel)
UserName = Annotated[str, Field(min_length=1, max_length=USER_CHARS_MAX)]


class Body(BaseModel):
    """A JSON object with known fields of exactly their types: nothing is ignored or guessed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


async def read_bytes(
    request: Request, limit: int = BODY_BYTES_MAX, *, within_s: float = BODY_S_MAX
) -> bytes:
    """Return the body. Raises `InvalidError` beyond `limit` bytes, before they are all read."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal():
        require_within(limit, int(declared))
    first = _arrived(request)
    if first is not None and not first.get("more_body"):
        body = _part(first)
        require_within(limit, len(body))
        return body
    try:
        async with asyncio.timeout(within_s):
            return await _received(request, first, limit)
    except TimeoutError as error:
        raise InvalidError(
            f"the body was not sent within {within_s:g} seconds", code="body_too_slow"
        ) from error


def _arrived(request: Request) -> Message | None:
    """Return what has come with the request's head, or None if it must be waited for.

    Nearly every body has come whole by now, and needs no timer.
    """
    receiving = request.receive().__await__()
    try:
        next(receiving)
    except StopIteration as done:
        message: Message = done.value
        return message
    receiving.close()
    return None


async def _received(request: Request, first: Message | None, limit: int) -> bytes:
    message = first or await request.receive()
    body = bytearray(_part(message))
    require_within(limit, len(body))
    while message.get("more_body"):
        message = await request.receive()
        body += _part(message)
        require_within(limit, len(body))
    return bytes(body)


def _part(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    part: bytes = message.get("body", b"")
    return part


def require_within(limit: int, size: int) -> None:
    """Raise `InvalidError` for a body that is larger than its bound."""
    if size > limit:
        raise InvalidError(f"the body is larger than {limit} bytes", code="body_too_large")


async def read_body(request: Request, kind: type[B]) -> tuple[B, bytes]:
    """Return the body as `kind`, and its bytes."""
    value, raw = await read_json(request)
    return parse(kind, value), raw


async def read_json(request: Request) -> tuple[Any, bytes]:
    """Return the body as JSON that can be stored, and its bytes.

    Only `application/json` is taken: it is what no foreign page can send without asking first.
    """
    require_media(request, JSON)
    raw = await read_bytes(request)
    return loads(raw), raw


async def read_optional(request: Request, kind: type[B]) -> tuple[B, bytes]:
    """Return the body as `kind`, and its bytes; no body at all is one that names no field."""
    raw = await read_bytes(request)
    if not raw:
        return parse(kind, {}), raw
    require_media(request, JSON)
    return parse(kind, loads(raw)), raw


def has_body(request: Request) -> bool:
    """Say whether a body follows (RFC 9112, section 6.3), though there may be nothing in it."""
    declared = request.headers.get("content-length", "0")
    return declared != "0" or "transfer-encoding" in request.headers


async def require_none(request: Request, *, within_s: float = BODY_S_MAX) -> None:
    """Raise `InvalidError` for a body where none is taken: whatever it asks for would be ignored.

    What is chunked may still be empty, and is no body then.
    """
    if not has_body(request):
        return
    try:
        await read_bytes(request, 0, within_s=within_s)
    except InvalidError as error:
        raise InvalidError(
            f"{request.method} {request.url.path} takes no body; send none", code="unexpected_body"
        ) from error


def require_media(request: Request, *taken: str) -> str:
    """Return what the body is said to be, which must be one of these, in UTF-8, and as it is."""
    media, _, parameters = request.headers.get("content-type", "").partition(";")
    media = media.strip().lower()
    if media not in taken:
        raise InvalidError(
            f"the body must be {' or '.join(taken)}, not {media or 'unnamed'!r}",
            code="unsupported_media_type",
        )
    charset = _CHARSET.search(f";{parameters}")
    if charset is not None and charset[1].lower() not in _UTF_8:
        raise InvalidError(
            f"the body must be in UTF-8, not in {charset[1]!r}", code="unsupported_media_type"
        )
    for coding in ",".join(request.headers.getlist("content-encoding")).split(","):
        if coding.strip().lower() not in {"", "identity"}:
            raise InvalidError(
                f"the body must be sent as it is, not in the encoding {coding.strip()!r}",
                code="unsupported_media_type",
            )
    return media


def parse(kind: type[B], value: Any) -> B:
    """Return the value as `kind`; raise `BodyError` with every place that does not fit."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        is_secret = kind.model_config.get("hide_input_in_errors", False)
        found = error.errors(include_url=False, include_context=False, include_input=not is_secret)
        listed = [field_error(each, value) for each in found[:FIELD_ERRORS_MAX]]
        raise BodyError(listed, total=len(found)) from error


def loads(raw: bytes, values_max: int = BODY_VALUES_MAX) -> Any:
    """Return JSON that can be stored, in which every object says a field once.

    Raises `InvalidError` for what is none, or cannot be.
    """
    if not raw:
        raise InvalidError("there is no body; send JSON, if only {}", code="malformed_json")
    try:
        value = orjson.loads(raw)
    except (orjson.JSONDecodeError, RecursionError) as error:
        raise InvalidError(f"the body is not JSON: {error}", code="malformed_json") from error
    fields = _fields(value, values_max)
    try:
        cleaned = clean(value)
    except UnencodableError as error:
        raise InvalidError(f"the body cannot be stored: {error}", code="unstorable") from error
    if cleaned != value:
        raise _unstorable()
    if _MANY_DIGITS.search(raw) or len(_NAME_END.findall(raw)) > fields:
        # It is not nested deeply, as is known by now.
        json.loads(raw, parse_int=_integer, object_pairs_hook=_said_once)
    return value


def _said_once(said: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; raise for a field that is there twice, of which one was never read."""
    counts = Counter(name for name, _ in said)
    if len(counts) < len(said):
        name, times = counts.most_common(1)[0]
        number = "twice" if times == 2 else f"{times} times"
        raise InvalidError(
            f"an object in the body has the field {name[:100]!r} {number}; send it once",
            code="malformed_json",
        )
    return dict(said)


def _integer(digits: str) -> int:
    """Return an integer; raise for one that is read as a float, which is near it at best."""
    if len(digits) > DIGITS_MAX or not INT_MIN <= int(digits) <= INT_MAX:
        raise _unstorable()
    return int(digits)


def _unstorable() -> InvalidError:
    return InvalidError(
        "the body has a NUL character or an integer beyond 64 bits, which cannot be stored",
        code="unstorable",
    )


def _fields(value: Any, values_max: int) -> int:
    """Return how many fields the objects in it have.

    Raises `InvalidError` for what would keep everybody waiting while it is looked through.
    """
    fields, left, unseen = 0, values_max, [value]
    while unseen:
        inside = unseen.pop()
        if isinstance(inside, dict):
            fields += len(inside)
            inside = list(inside.values())
        if isinstance(inside, list):
            left -= len(inside)
            if left < 0:
                raise InvalidError(
                    f"the body has more than {values_max} values", code="body_too_large"
                )
            unseen += inside
    return fields


def field_error(error: Any, value: Any) -> FieldError:
    """Return what pydantic says of one place of `value`, as clients read it."""
    place = _place(error["loc"], value, missing=error["type"] == "missing")
    pointer = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in place)
    return FieldError(pointer, why(error) + instead(error))


def _place(location: Sequence[str | int], value: Any, *, missing: bool) -> list[str]:
    """Return the part of the location that the caller wrote: a union's branches are not."""
    place = []
    for part in location:
        match value, part:
            case dict(), str() if part in value:
                value = value[part]
            case list(), int() if part < len(value):
                value = value[part]
            case dict(), str() if missing and part == location[-1]:
                pass
            case _:
                continue
        place.append(str(part))
    return place
