"""Errors as clients see them, whichever error it is."""

import orjson
import pytest

from milepost.api.problems import BodyError, FieldError, problem, status_of
from milepost.core.errors import (
    ConfigurationError,
    ConflictError,
    FencedError,
    ForbiddenError,
    InvalidError,
    MilepostError,
    NotFoundError,
    OverloadedError,
    ProviderError,
    UnauthorizedError,
    UnavailableError,
)
from milepost.store.engine import CollisionError, DatabaseUnavailableError
from milepost.store.idempotency import RequestConflictError


def shown(error: MilepostError) -> tuple[dict[str, object], dict[str, str]]:
    """Return the problem's body and its headers."""
    answer = problem(error, instance="/v1/runs", request_id="req_1")
    return orjson.loads(bytes(answer.body)), dict(answer.headers)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidError("x"), 422),
        (InvalidError("x", code="malformed_json"), 400),
        (InvalidError("x", code="bad_cursor"), 400),
        (InvalidError("x", code="cursor_ahead"), 400),
        (InvalidError("x", code="bad_query"), 400),
        (InvalidError("x", code="not_acceptable"), 406),
        (InvalidError("x", code="body_too_large"), 413),
        (InvalidError("x", code="unsupported_media_type"), 415),
        (NotFoundError("x"), 404),
        (NotFoundError("x", code="method_not_allowed"), 405),
        (ConflictError("x"), 409),
        (ConflictError("x", code="precondition_failed"), 412),
        (RequestConflictError("x"), 422),
        (ForbiddenError("x"), 403),
        (ForbiddenError("x", code="misdirected_host"), 421),
        (UnauthorizedError("x"), 401),
        (OverloadedError("x"), 503),
        (OverloadedError("x", code="rate_limited"), 429),
        (UnavailableError("x"), 503),
        (DatabaseUnavailableError("x"), 503),
        (ConfigurationError("x"), 500),
        (FencedError("x"), 500),
        (CollisionError("x"), 500),
        (ProviderError("x"), 500),
        (MilepostError("x"), 500),
    ],
)
def test_every_error_has_a_status(error: MilepostError, status: int) -> None:
    assert status_of(error) == status


def test_a_problem_serves_both_worlds() -> None:
    body, headers = shown(NotFoundError("there is no run run_0", code="run_not_found"))

    assert headers["content-type"] == "application/problem+json"
    assert body["error"] == {
        "message": "there is no run run_0",
        "type": "invalid_request_error",
        "param": None,
        "code": "run_not_found",
    }
    assert {name: body[name] for name in ("status", "code", "instance", "request_id")} == {
        "status": 404,
        "code": "run_not_found",
        "instance": "/v1/runs",
        "request_id": "req_1",
    }
    assert str(body["type"]).endswith("/run_not_found")


def test_what_is_wrong_with_a_body_is_told_place_by_place() -> None:
    body, _ = shown(BodyError([FieldError("/a", "too long"), FieldError("/b", "missing")]))

    assert body["detail"] == "/a: too long (and 1 more)"
    assert body["errors"] == [
        {"pointer": "/a", "detail": "too long"},
        {"pointer": "/b", "detail": "missing"},
    ]


def test_a_single_place_is_pointed_at_too() -> None:
    body, _ = shown(InvalidError("no such tool", code="unknown_tool", pointer="/tools/0"))

    assert body["errors"] == [{"pointer": "/tools/0", "detail": "no such tool"}]


def test_what_broke_inside_is_not_told() -> None:
    body, _ = shown(MilepostError("password=hunter2", code="odd"))

    assert (body["status"], body["code"]) == (500, "internal")
    assert "hunter2" not in str(body)


def test_when_to_come_back_is_told_in_every_way_that_clients_read() -> None:
    _, headers = shown(OverloadedError("the queue is full", retry_after_s=2.5))

    assert (headers["retry-after"], headers["retry-after-ms"]) == ("2", "2500")
    assert headers["x-should-retry"] == "true"


def test_a_wait_shorter_than_a_second_is_no_wait_of_zero() -> None:
    _, headers = shown(OverloadedError("busy", retry_after_s=0.1))

    assert (headers["retry-after"], headers["retry-after-ms"]) == ("1", "100")


def test_what_cannot_get_better_says_so() -> None:
    body, headers = shown(ConflictError("taken"))

    assert (body["retryable"], headers["x-should-retry"]) == (False, "false")
    assert "retry-after" not in headers


def test_no_problem_is_kept_by_a_cache() -> None:
    _, headers = shown(NotFoundError("x"))

    assert headers["cache-control"] == "no-store"
