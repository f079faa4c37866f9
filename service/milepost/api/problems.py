"""Errors as clients see them: RFC 9457 problems that the official OpenAI clients can parse, too."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.responses import Response

from milepost.core.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    MilepostError,
    NotFoundError,
    OverloadedError,
    UnauthorizedError,
    UnavailableError,
)
from milepost.store.engine import DatabaseUnavailableError

_STATUS: tuple[tuple[type[MilepostError], int], ...] = (
    (InvalidError, 422),
    (NotFoundError, 404),
    (ConflictError, 409),
    (ForbiddenError, 403),
    (UnauthorizedError, 401),
    (OverloadedError, 503),
    (UnavailableError, 503),
)

# Codes whose status is not that of their class.
_STATUS_BY_CODE = {
    "malformed_http": 400,
    "malformed_json": 400,
    "bad_cursor": 400,
    "cursor_ahead": 400,
    "bad_query": 400,
    "one_page": 400,
    "unexpected_body": 400,
    "body_too_slow": 408,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "not_acceptable": 406,
    "method_not_allowed": 405,
    "idempotency_key_reused": 422,
    "precondition_failed": 412,
    "range_not_satisfiable": 416,
    "rate_limited": 429,
    "misdirected_host": 421,
}

_TITLES = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    408: "Request timeout",
    409: "Conflict",
    412: "Precondition failed",
    413: "Content too large",
    415: "Unsupported media type",
    416: "Range not satisfiable",
    421: "Misdirected request",
    422: "Unprocessable content",
    429: "Too many requests",
    500: "Internal error",
    503: "Unavailable",
}


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one place of a body; `pointer` is a JSON pointer (RFC 6901)."""

    pointer: str
    detail: str


class BodyError(InvalidError):
    """A body that does not fit, with the places that don't: the first ones, of `total`."""

    def __init__(self, errors: list[FieldError], *, total: int | None = None) -> None:
        first = errors[0]
        others = (total or len(errors)) - 1
        more = f" (and {others} more)" if others else ""
        super().__init__(f"{first.pointer or 'the body'}: {first.detail}{more}")
        self.errors = errors


class RangeError(InvalidError):
    """A stretch of a content that has `size` bytes, and none of these within it."""

    code = "range_not_satisfiable"

    def __init__(self, message: str, size: int) -> None:
        super().__init__(message)
        self.size = size


def status_of(error: MilepostError) -> int:
    """Return the HTTP status that says the same as the error."""
    if (status := _STATUS_BY_CODE.get(error.code)) is not None:
        return status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def problem(error: MilepostError, *, instance: str, request_id: str) -> Response:
    """Return the error as a response."""
    status = status_of(error)
    body = problem_body(error, instance=instance, request_id=request_id)
    return Response(orjson.dumps(body), status, _headers(error, status), "application/problem+json")


def problem_body(error: MilepostError, *, instance: str, request_id: str) -> dict[str, Any]:
    """Return the error as a response's body, or as a part of one."""
    status = status_of(error)
    detail = _detail(error, status)
    code = error.code if status != 500 else "internal"
    errors = _errors(error)
    return {
        "type": f"https://milepost.dev/problems/{code}",
        "title": _TITLES[status],
        "status": status,
        "detail": detail,
        "instance": instance,
        "code": code,
        "retryable": error.retryable,
        "request_id": request_id,
        "errors": errors,
        "error": {
            "message": detail,
            "type": "server_error" if status >= 500 else "invalid_request_error",
            "param": errors[0]["pointer"] if errors else None,
            "code": code,
        },
        **_extra(error),
    }


def _detail(error: MilepostError, status: int) -> str:
    """Return what went wrong, as far as it is a client's to know.

    What a database says names its host or its files, and is in the log.
    """
    if status == 500:
        return "Something went wrong here; the log says what."
    if isinstance(error, DatabaseUnavailableError):
        return (
            "the database cannot be used just now; come back after a moment, and repeat what"
            " writes with its Idempotency-Key, as it may have been done"
        )
    return str(error)


def _errors(error: MilepostError) -> list[dict[str, str]]:
    if isinstance(error, BodyError):
        return [{"pointer": each.pointer, "detail": each.detail} for each in error.errors]
    if isinstance(error, InvalidError) and error.pointer is not None:
        return [{"pointer": error.pointer, "detail": str(error)}]
    return []


def _extra(error: MilepostError) -> Mapping[str, Any]:
    """Some errors carry the thing itself, such as the decision that came first."""
    return getattr(error, "shown", {})


def _headers(error: MilepostError, status: int) -> dict[str, str]:
    """Say when to come back, in each of the three ways that official clients read."""
    headers = {"cache-control": "no-store"}
    if status == 401:
        headers["www-authenticate"] = 'Bearer realm="milepost"'
    if isinstance(error, RangeError):
        headers["content-range"] = f"bytes */{error.size}"
    if status in {429, 503}:
        wait_s = float(getattr(error, "retry_after_s", 1))
        headers["retry-after"] = str(max(1, round(wait_s)))
        headers["retry-after-ms"] = str(round(wait_s * 1000))
    headers["x-should-retry"] = "true" if error.retryable else "false"
    return headers
