"""Answers that are no Milepost server's: of a proxy's login page, or of whatever has its port."""

from collections.abc import Mapping, Sequence
from typing import Any

from milepost.core.errors import ApiError

SHOWN_MAX = 200


def ours(said: object, *names: str) -> Mapping[str, Any]:
    """Return an object that has these members. Raises `ApiError` for what is none of Milepost's."""
    if not isinstance(said, Mapping) or any(name not in said for name in names):
        raise no_milepost("" if said is None else str(said))
    return said


def listed(said: object) -> Sequence[Any]:
    """Return the members of a list's answer. Raises `ApiError` for what is no list."""
    members = ours(said, "data")["data"]
    if not isinstance(members, list):
        raise no_milepost(str(said))
    return members


def no_milepost(
    said: str, *, media: str | None = None, at: str = "there", status: int = 200
) -> ApiError:
    """Return the error that says so, with the beginning of what was said, and as what."""
    kind = "" if media is None else f" as {media or 'nothing that it names'}"
    told = f"what answers {at} is no Milepost server: {said[:SHOWN_MAX]!r}{kind}"
    return ApiError(
        {"detail": f"{told}; give the address of one", "code": "not_milepost"}, status=status
    )
