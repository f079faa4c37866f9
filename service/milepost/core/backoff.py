"""How long to wait before a failed model call is made again."""

RETRY_AFTER_S_MAX = 60.0
"""A vendor that wants to be left alone for longer is not waited for."""


def wait_s(
    failures: int,
    code: str,
    retry_after_s: float | None,
    *,
    backoff_s: float,
    cooldown_s: float,
) -> float:
    """Return the wait after that many failures in a row, of which the last had `code`.

    A rate limit cools down on top of the backoff; what the vendor itself asks for is the least.
    """
    wait = backoff_s * failures
    if code == "provider_rate_limited":
        wait += cooldown_s * failures
    return max(wait, retry_after_s or 0)
