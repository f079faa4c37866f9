"""Moments as HTTP writes them (RFC 9110, section 5.6.7)."""

from email.utils import parsedate_to_datetime


def seconds_between(now: str | None, moment: str) -> float | None:
    """Return the seconds from one moment to a later one, 0 to one that has passed.

    Both are by the same clock, the server's. None if either is no date.
    """
    if now is None:
        return None
    try:
        wait = parsedate_to_datetime(moment) - parsedate_to_datetime(now)
    except (ValueError, TypeError, OverflowError):
        return None
    return max(wait.total_seconds(), 0.0)
