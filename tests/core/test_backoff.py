"""The wait before a failed call is made again."""

import pytest

from milepost.core.backoff import wait_s


@pytest.mark.parametrize(
    ("failures", "code", "retry_after_s", "waited_s"),
    [
        (1, "provider_overloaded", None, 1),
        (2, "provider_overloaded", None, 2),
        (1, "provider_rate_limited", None, 6),
        (2, "provider_rate_limited", None, 12),
        (1, "provider_overloaded", 0.5, 1),
        (1, "provider_overloaded", 30, 30),
        (2, "provider_rate_limited", 3, 12),
    ],
)
def test_it_grows_linearly_cools_down_for_rate_limits_and_is_at_least_what_was_asked_for(
    failures: int, code: str, retry_after_s: float | None, waited_s: float
) -> None:
    waited = wait_s(failures, code, retry_after_s, backoff_s=1, cooldown_s=5)

    assert waited == waited_s
