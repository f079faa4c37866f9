"""Versions as clients hold them: `ETag` says which one was read, `If-Match` which one is meant."""

import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.requests import Request

from milepost.core.errors import ConflictError
from milepost.store.runs import StaleError
from milepost.store.versions import Versioned

TRIES = 5

_TAG = re.compile(r'(?:W/)?"[^"]*"')

R = TypeVar("R", bound=Versioned)


def etag(row: Versioned) -> str:
    """Return the strong entity tag of this version."""
    return f'"{row.version}"'


def version_meant(request: Request, row: Versioned) -> int | None:
    """Return the version that a change must find, or None if the request takes any.

    Raises the 412 of a request that means another version than this. Weak tags never match.
    """
    require_tag(request)
    if not _is_conditional(request):
        return None
    wanted = request.headers["if-match"]
    if etag(row) not in _TAG.findall(wanted):
        raise ConflictError(
            f"{row.id} has the ETag {etag(row)}, and If-Match says {wanted}; read it again",
            code="precondition_failed",
        )
    return row.version


def require_tag(request: Request) -> None:
    """Raise the 412 of a request that means a version, and names none."""
    if _is_conditional(request) and not _TAG.search(wanted := request.headers["if-match"]):
        raise ConflictError(
            f"If-Match says {wanted}, which is no ETag; send it with its quotes",
            code="precondition_failed",
        )


async def amend(
    request: Request, read: Callable[[], Awaitable[R]], change: Callable[[R], Awaitable[R]]
) -> R:
    """Read, compare with `If-Match`, and change.

    `change` makes a new version of exactly what was read, or raises precondition_failed when a
    rival was faster. Only a caller who named a version is told of that; for others it is redone.
    """
    for _ in range(TRIES):
        row = await read()
        meant = version_meant(request, row)
        try:
            return await change(row)
        except ConflictError as error:
            if error.code != "precondition_failed" or meant is not None:
                raise
    raise StaleError("it is being changed by others all the time; try again")


def _is_conditional(request: Request) -> bool:
    return request.headers.get("if-match", "*").strip() != "*"
