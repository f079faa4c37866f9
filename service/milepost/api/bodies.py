"""Request bodies: read within bounds, parsed once, refused with every place that does not fit."""

from collections.abc import Sequence
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request

from milepost.api.problems import BodyError, FieldError
from milepost.core.errors import InvalidError
from milepost.core.json import UnencodableError, clean

BODY_BYTES_MAX = 1_048_576

B = TypeVar("B", bound=BaseModel)


class Body(BaseModel):
    """A JSON object with known fields of exactly their types: nothing is ignored or guessed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


async def read_bytes(request: Request, limit: int = BODY_BYTES_MAX) -> bytes:
    """Return the body. Raises `InvalidError` beyond `limit` bytes, before they are all read."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(limit: int) -> InvalidError:
    return InvalidError(f"the body is larger than {limit} bytes", code="body_too_large")


async def read_body(request: Request, kind: type[B]) -> tuple[B, bytes]:
    """Return the body as `kind`, and its bytes."""
    value, raw = await read_json(request)
    return parse(kind, value), raw


async def read_json(request: Request) -> tuple[Any, bytes]:
    """Return the body as JSON that can be stored, and its bytes.

    Only `application/json` is taken: it is what no foreign page can send without asking first.
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise InvalidError(
            f"the body must be application/json, not {media or 'unnamed'!r}",
            code="unsupported_media_type",
        )
    raw = await read_bytes(request)
    return _loaded(raw), raw


def parse(kind: type[B], value: Any) -> B:
    """Return the value as `kind`; raise `BodyError` with every place that does not fit."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise BodyError([_field_error(each, value) for each in error.errors()]) from error


def _loaded(raw: bytes) -> Any:
    try:
        value = orjson.loads(raw)
    except (orjson.JSONDecodeError, RecursionError) as error:
        raise InvalidError(f"the body is not JSON: {error}", code="malformed_json") from error
    try:
        cleaned = clean(value)
    except UnencodableError as error:
        raise InvalidError(f"the body cannot be stored: {error}", code="unstorable") from error
    if cleaned != value:
        raise InvalidError(
            "the body has a NUL character or an integer beyond 64 bits, which cannot be stored",
            code="unstorable",
        )
    return value


def _field_error(error: Any, value: Any) -> FieldError:
    place = _place(error["loc"], value, missing=error["type"] == "missing")
    pointer = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in place)
    return FieldError(pointer, error["msg"])


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
