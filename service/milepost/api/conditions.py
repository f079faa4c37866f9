"""Versions as clients hold them: `ETag` says which one was read, `If-Match` which one is meant."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from milepost.core.errors import ConflictError
from milepost.store.runs import StaleError
from milepost.store.versions import Versioned

# A try that fails is a rival's that was made: so many changes at once are made one after the other.
TRIES = 50

_ANY = "*"
_TAG = re.compile(r'(?:W/)?"[^"]*"')

R = TypeVar("R", bound=Versioned)
Act = TypeVar("Act", bound=Callable[..., Awaitable[Response]])

_MARK = "compares_versions"


def etag(row: Versioned) -> str:
    """Return the strong entity tag of this version."""
    return f'"{row.version}"'


def compares_versions(act: Act) -> Act:
    """Mark what compares `If-Match` with the version that it finds: nothing else may be sent it."""
    setattr(act, _MARK, True)
    return act


def require_comparable(act: object, wanted: Mapping[bytes, bytes]) -> None:
    """Raise the 412 of a change under a condition that the act would not look at.

    Whoever sends one relies on it. What has no versions is there in any (RFC 9110, section 13.1.1).
    """
    if b"if-none-match" in wanted:
        raise ConflictError(
            "a change compares no If-None-Match; send it without", code="precondition_failed"
        )
    if wanted.get(b"if-match", b"*").strip() != b"*" and not hasattr(act, _MARK):
        raise ConflictError(
            "this has no versions that If-Match could mean; send it without",
            code="precondition_failed",
        )


def version_meant(request: Request, row: Versioned) -> int | None:
    """Return the version that a change must find, or None if the request takes any.

    Raises the 412 of a request that means another version than this. Weak tags never match.
    """
    require_tag(request)
    wanted = _wanted(request)
    if wanted == _ANY:
        return None
    if etag(row) not in _TAG.findall(wanted):
        raise ConflictError(
            f"{row.id} has the ETag {etag(row)}, and If-Match says {wanted}; read it again",
            code="precondition_failed",
        )
    return row.version


def require_tag(request: Request) -> None:
    """Raise the 412 of a request that means a version, and names none."""
    wanted = _wanted(request)
    if wanted != _ANY and not _TAG.search(wanted):
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


def _wanted(request: Request) -> str:
    """Return what `If-Match` says, in however many lines; without one, any version will do."""
    lines = request.headers.getlist("if-match")
    return ", ".join(lines).strip() if lines else _ANY
