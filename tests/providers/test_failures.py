"""What vendors' refusals mean."""

import pytest

from milepost.core.errors import ProviderError
from milepost.providers.failures import DETAIL_CHARS_MAX, RETRY_AFTER_S_MAX, Failures

KEY = "sk-very-secret"


def refused(
    status: int, body: bytes = b"{}", headers: dict[str, str] | None = None
) -> ProviderError:
    return Failures("openai", KEY).refused(status, headers or {}, body)


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (400, "provider_bad_request", False),
        (401, "provider_auth", False),
        (403, "provider_auth", False),
        (404, "provider_bad_request", False),
        (408, "provider_timeout", True),
        (418, "provider_error", False),
        (422, "provider_bad_request", False),
        (429, "provider_rate_limited", True),
        (500, "provider_overloaded", True),
        (503, "provider_overloaded", True),
        (529, "provider_overloaded", True),
        (302, "provider_error", False),
    ],
)
def test_each_status_has_its_code(status: int, code: str, retryable: bool) -> None:
    error = refused(status)

    assert (error.code, error.retryable, error.status) == (code, retryable, status)


def test_the_message_holds_the_status_the_vendors_words_and_a_remedy() -> None:
    error = refused(401, b'{"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}')

    assert str(error) == "openai answered 401: Incorrect API key; check its API key"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"message": "no such model"}', "no such model"),
        (b'{"detail": "no such model"}', "no such model"),
        (b'{"error": "no such model"}', "no such model"),
        (b"<html>\n  no such model\n</html>", "<html> no such model </html>"),
        (b"\xff\xfe", "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
        (b"", "(no details)"),
    ],
)
def test_the_vendors_words_are_found_wherever_they_stand(body: bytes, said: str) -> None:
    assert f"answered 400: {said};" in str(refused(400, body))


def test_the_key_is_never_repeated_even_if_the_vendor_does() -> None:
    body = b'{"error": {"message": "bad key sk-very-secret, really sk-very-secret"}}'

    assert "bad key [key], really [key]" in str(refused(401, body))


def test_a_credential_in_a_header_is_not_repeated_without_its_scheme_either() -> None:
    failures = Failures("openai", None, ["Bearer sk-very-secret", "My own application"])

    said = str(failures.refused(401, {}, b"bad key sk-very-secret of an application"))

    assert "bad key [key] of an application" in said


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("sk-very-secret-of-acme", "[key]"),
        ("secret-of-acmesk-very-secret", "[key][key]"),
        ("sk-very-secretk-very-secret", "[key]"),
    ],
)
def test_nothing_is_left_of_a_key_and_a_header_where_they_overlap(said: str, shown: str) -> None:
    failures = Failures("openai", KEY, ["secret-of-acme", "secretk-very-secret"])

    message = str(failures.refused(401, {}, f"bad key <{said}>".encode()))

    assert f"answered 401: bad key <{shown}>;" in message


def test_a_long_answer_is_cut() -> None:
    message = str(refused(500, b"x" * 5_000))

    assert "x" * DETAIL_CHARS_MAX + "…" in message
    assert "x" * (DETAIL_CHARS_MAX + 1) not in message


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "1e9"}, RETRY_AFTER_S_MAX),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after-ms": "-1", "retry-after": "7"}, 7.0),
        (
            {
                "retry-after": "Sat, 21 Nov 2026 10:00:30 GMT",
                "date": "Sat, 21 Nov 2026 10:00:00 GMT",
            },
            30.0,
        ),
        ({"retry-after": "Sat, 21 Nov 2026 10:00:30 GMT"}, None),
        ({"retry-after": "Sat, 21 Nov 2026 10:00:30 GMT", "date": "today"}, None),
        (
            {
                "retry-after": f"Sat, 21 Nov {10**20} 10:00:30 GMT",
                "date": "Sat, 21 Nov 2026 10:00:00 GMT",
            },
            None,
        ),
    ],
)
def test_what_the_vendor_asks_us_to_wait_is_taken_along(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert refused(429, headers=headers).retry_after_s == seconds


def test_no_waiting_helps_against_an_empty_account() -> None:
    error = refused(429, b'{"error": {"message": "Pay first", "code": "insufficient_quota"}}')

    assert (error.code, error.retryable) == ("provider_rate_limited", False)


@pytest.mark.parametrize(
    ("inside", "code", "retryable"),
    [
        ({"message": "slow down", "code": 429}, "provider_rate_limited", True),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, "provider_rate_limited", True),
        ({"message": "too busy", "type": "overloaded_error"}, "provider_overloaded", True),
        ({"message": "too long", "code": "context_length_exceeded"}, "provider_bad_request", False),
        ({"message": "odd", "code": 7}, "provider_error", True),
        ("plain words", "provider_error", True),
        (["a", "list"], "provider_error", True),
    ],
)
def test_an_error_inside_of_a_reply_is_read_like_a_status(
    inside: object, code: str, retryable: bool
) -> None:
    error = Failures("openai", None).inside(inside)

    assert (error.code, error.retryable) == (code, retryable)
