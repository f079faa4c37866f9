"""What Google's refusals mean."""

import orjson
import pytest

from milepost.core.errors import ProviderError
from milepost.providers.failures import RETRY_AFTER_S_MAX, Failures
from tests.stubs.gemini_server import Chunk, refusal

RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo"}
QUOTA = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel"}],
}
BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}


def refused(
    status: int, body: Chunk | list[Chunk], headers: dict[str, str] | None = None
) -> ProviderError:
    return Failures("gemini", None).refused(status, headers or {}, orjson.dumps(body))


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [
        ("17.5s", 17.5),
        ("0s", 0.0),
        ("90000s", RETRY_AFTER_S_MAX),
        ("soon", None),
        ("-3s", None),
        (None, None),
    ],
)
def test_what_google_asks_us_to_wait_is_taken_along(
    delay: str | None, seconds: float | None
) -> None:
    body = refusal(
        429, "RESOURCE_EXHAUSTED", "Quota exceeded", QUOTA, {**RETRY, "retryDelay": delay}
    )

    error = refused(429, body)

    assert (error.code, error.retryable) == ("provider_rate_limited", True)
    assert error.retry_after_s == seconds
    assert Failures("gemini", None).inside(body["error"]).retry_after_s == seconds


def test_a_header_says_better_how_long_to_wait() -> None:
    body = refusal(429, "RESOURCE_EXHAUSTED", "Slow down", {**RETRY, "retryDelay": "30s"})

    assert refused(429, body, {"retry-after": "2"}).retry_after_s == 2


def test_a_key_that_google_does_not_know_is_no_bad_request() -> None:
    error = refused(400, refusal(400, "INVALID_ARGUMENT", "API key not valid.", BAD_KEY))

    assert (error.code, error.status) == ("provider_auth", 400)
    assert str(error) == "gemini answered 400: API key not valid.; check its API key"


def test_an_error_in_a_list_is_read_as_well() -> None:
    error = refused(503, [refusal(503, "UNAVAILABLE", "The model is overloaded.")])

    assert str(error) == "gemini answered 503: The model is overloaded.; try again later"


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        ("INVALID_ARGUMENT", "provider_bad_request", False),
        ("UNAUTHENTICATED", "provider_auth", False),
        ("PERMISSION_DENIED", "provider_auth", False),
        ("NOT_FOUND", "provider_bad_request", False),
        ("RESOURCE_EXHAUSTED", "provider_rate_limited", True),
        ("INTERNAL", "provider_overloaded", True),
        ("UNAVAILABLE", "provider_overloaded", True),
        ("DEADLINE_EXCEEDED", "provider_overloaded", True),
        ("CANCELLED", "provider_error", True),
    ],
)
def test_a_status_in_words_is_as_good_as_its_number(
    status: str, code: str, retryable: bool
) -> None:
    error = Failures("gemini", None).inside({"status": status, "message": "Oh"})

    assert (error.code, error.retryable) == (code, retryable)


@pytest.mark.parametrize("details", [None, "many", [], [None, "x"], [{"reason": 7}], {}])
def test_details_of_any_shape_are_borne(details: object) -> None:
    error = refused(429, {"error": {"message": "Oh", "details": details}})

    assert (error.code, error.retry_after_s) == ("provider_rate_limited", None)
