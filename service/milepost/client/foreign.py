"""Answers that are no Milepost server's: of a proxy's login page, or of whatever has its port."""

from milepost.core.errors import ApiError

SHOWN_MAX = 200


def no_milepost(said: str, *, at: str = "there", status: int = 200) -> ApiError:
    """Return the error that says so, with the beginning of what was said."""
    told = f"what answers {at} is no Milepost server: {said[:SHOWN_MAX]!r}"
    return ApiError({"detail": told, "code": "not_milepost"}, status=status)
