"""What every endpoint asks of a request besides its body: who calls, and under which key."""

import hashlib
import re

from starlette.requests import Request

from milepost.api.access import Principal
from milepost.core.errors import InvalidError
from milepost.runtime.credentials import Scope
from milepost.store.records import Request as IdempotentRequest
from milepost.telemetry.context import TraceContext

_KEY = re.compile(r"[\x21-\x7e]{1,255}")


def principal_of(request: Request) -> Principal:
    """Return who calls, as the edge found out."""
    principal: Principal = request.scope["state"]["principal"]
    return principal


def caller(request: Request, scope: Scope) -> Principal:
    """Return who calls, who must have the right `scope`."""
    principal = principal_of(request)
    principal.require(scope)
    return principal


def approvals_reader(request: Request) -> Principal:
    """Return who reads of approvals: whoever decides may, and whoever reads runs."""
    principal = principal_of(request)
    if "approvals:decide" not in principal.scopes:
        principal.require("runs:read")
    return principal


def trace_of(request: Request) -> TraceContext | None:
    """Return where the caller stands in its trace, if it says so, and says it once.

    Of several headers none is to be trusted (W3C Trace Context, 3.2).
    """
    told = request.headers.getlist("traceparent")
    return TraceContext.parse(told[0]) if len(told) == 1 else None


def idempotent(request: Request, raw: bytes, *, personal: bool = False) -> IdempotentRequest | None:
    """Return the request's idempotency key with what it stands for, or None if it has none.

    The same body says something else where a key with another subject sends it; what is `personal`
    also where another key without one does: those are two people.
    """
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        raise InvalidError(
            "Idempotency-Key is 1 to 255 visible ASCII characters", code="bad_idempotency_key"
        )
    scope = f"{request.method} {request.url.path}"
    principal = principal_of(request)
    whose = principal.id if personal and principal.subject is None else principal.subject
    said = raw if whose is None else b"\0".join((whose.encode(), raw))
    return IdempotentRequest(scope, key, hashlib.sha256(said).hexdigest())
