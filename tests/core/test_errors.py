"""Errors: a stable code each, and whether trying again may help."""

import copy
import pickle
from typing import Any

import pytest

from milepost.core.errors import (
    ApiError,
    FencedError,
    InvalidError,
    MilepostError,
    OverloadedError,
    ProviderError,
    ToolError,
    ToolValidationError,
    UnavailableError,
)


def everything(kind: type[MilepostError] = MilepostError) -> list[type[MilepostError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in everything(child))]


def test_an_error_has_its_class_code_unless_it_is_given_one() -> None:
    assert MilepostError("oh").code == "internal"
    assert InvalidError("no", code="bad_cursor", pointer="/a").code == "bad_cursor"
    assert FencedError("gone").code == "fenced"


def test_what_passes_may_be_tried_again() -> None:
    assert OverloadedError("full", retry_after_s=2).retryable
    assert UnavailableError("away").retryable
    assert not InvalidError("no").retryable
    assert ToolError("once more", retryable=True).retryable
    assert not ToolValidationError("never").retryable


def test_a_provider_says_what_it_said() -> None:
    error = ProviderError("slow down", code="provider_rate_limited", retry_after_s=3, status=429)

    assert (error.code, error.retry_after_s, error.status) == ("provider_rate_limited", 3, 429)


def test_a_server_s_problem_is_read_as_far_as_it_goes() -> None:
    full = ApiError(
        {"detail": "too late", "code": "approval_expired", "retryable": False, "request_id": "r1"},
        status=409,
    )
    empty = ApiError({}, status=502)

    assert (str(full), full.code, full.request_id) == ("too late", "approval_expired", "r1")
    assert (str(empty), empty.code, empty.request_id) == ("the server answered 502", "api_error",
                                                         None)  # fmt: skip


def test_no_two_errors_mean_the_same() -> None:
    ours = [kind for kind in everything() if kind.__module__ == MilepostError.__module__]
    own = [kind.code for kind in ours if "code" in vars(kind)]

    assert len(own) == len(set(own))


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize(
    "error",
    [
        ApiError({"code": "run_over", "detail": "it is over", "request_id": "r"}, status=409),
        ProviderError("slow down", code="provider_rate_limited", retry_after_s=3, status=429),
        UnavailableError("away", code="unreachable"),
    ],
)
def test_an_error_comes_whole_out_of_another_process(error: MilepostError, again: Any) -> None:
    told = again(error)

    assert type(told) is type(error)
    assert (str(told), vars(told)) == (str(error), vars(error))
