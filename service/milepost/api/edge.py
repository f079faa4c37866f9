"""The edge: what every request passes. It knows the caller, names the request, answers errors."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route, Router
from starlette.types import Message, Receive, Scope, Send

from milepost.api.access import Access
from milepost.api.bodies import has_body, require_none
from milepost.api.bounded_http import ABORT
from milepost.api.conditions import require_comparable
from milepost.api.problems import problem, status_of
from milepost.api.request_limit import RequestLimit
from milepost.core.approvers import OPEN_ID
from milepost.core.errors import (
    InvalidError,
    MilepostError,
    NotFoundError,
    UnauthorizedError,
    UnavailableError,
)
from milepost.core.scarcity import is_scarcity
from milepost.runtime.clock import NewId
from milepost.runtime.links import DECISIONS
from milepost.telemetry.logs import logger

STILL_ADMITTED_S = 10.0
LOOK_S = 1.0

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_PUBLIC = frozenset({"/healthz", "/readyz", "/openapi.yaml"})
# The token in the path says who comes.
_PUBLIC_BELOW = tuple(f"/{decision}/" for decision in DECISIONS)
# They hold nothing: whatever they show, they ask the API for, with their reader's key.
_PAGES = frozenset({"/", "/docs"})
_PAGES_BELOW = "/console/"

# What a body would say has no place there: it is in the path and the query.
_BODILESS = frozenset({"GET", "HEAD", "DELETE"})

_SAFE = frozenset({"GET", "HEAD"})
_CONDITIONS = frozenset({b"if-match", b"if-none-match"})

# A request has one of each (RFC 9110, section 5.3): of two, chance would say which is meant.
_SINGLE = (b"host", b"authorization", b"content-type", b"idempotency-key", b"last-event-id")

_HTTP_CODES = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}


class Edge:
    """Wraps the routes. What no route answers for becomes a problem here."""

    def __init__(
        self, router: Router, access: Access, new_id: NewId, limit: RequestLimit | None = None
    ) -> None:
        self._router = router
        self._access = access
        self._new_id = new_id
        self._limit = limit
        self._log = logger("api")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await self._router(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        request_id = self._request_id(headers.get(b"x-request-id", b""))
        started, now = False, asyncio.get_running_loop().time
        admitted_s = now()

        async def named_send(message: Message) -> None:
            nonlocal started, admitted_s
            if message["type"] == "http.response.start":
                started = True
                told = [(b"x-request-id", request_id.encode()), *scope["state"].get("told", ())]
                message["headers"] = [*message["headers"], *told]
            elif message.get("more_body") and now() - admitted_s >= STILL_ADMITTED_S:
                admitted_s = now()
                await self._require_still_valid(scope, headers)
            await send(message)

        scope["app"] = self
        scope.setdefault("state", {})["request_id"] = request_id
        try:
            _refuse_unclear(scope, headers)
            await self._require_access(scope, headers)
            _refuse_nul(scope["path"])
            await self._refuse_idle_body(scope, receive)
            self._refuse_idle_condition(scope, headers)
            await self._router(scope, receive, named_send)
        except ClientDisconnect:
            return  # It left before it had said all: nobody is there to be answered.
        except asyncio.CancelledError as error:
            if not started:
                await self._refusal(error, scope, request_id)(scope, receive, named_send)
            raise
        except Exception as error:
            if started:
                await self._break_off(error, scope, send)
                return
            await self._refusal(error, scope, request_id)(scope, receive, named_send)

    async def _require_access(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Raise if the caller may not ask for this path."""
        path = scope["path"]
        if path in _PUBLIC or path.startswith(_PUBLIC_BELOW):
            return
        if path in _PAGES or path.startswith(_PAGES_BELOW):
            await self._access.require_ours(headers)
            return
        await self._admit(scope["state"], headers)

    async def _admit(self, state: dict[str, Any], headers: Mapping[bytes, bytes]) -> None:
        """Learn who calls; raise if nobody may, or this key not so often."""
        state["principal"] = who = await self._access.admit(headers)
        if self._limit is not None and who.id != OPEN_ID:
            allowance = await self._limit.take(who.id)
            state["told"] = allowance.headers
            allowance.require()

    async def _refuse_idle_body(self, scope: Scope, receive: Receive) -> None:
        """Raise `InvalidError` for a body beside a method that takes none, where that is served."""
        method: str = scope["method"]
        if method not in _BODILESS or not has_body(request := Request(scope, receive)):
            return
        if scope["path"].startswith("/v1/") and method in self._methods(scope).split(", "):
            await require_none(request)

    def _refuse_idle_condition(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Raise the 412 of a change under a condition that nobody would look at."""
        if scope["method"] in _SAFE or headers.keys().isdisjoint(_CONDITIONS):
            return
        for route in self._router.routes:
            if isinstance(route, Route) and route.matches(scope)[0] is Match.FULL:
                require_comparable(route.endpoint, headers)
                return

    async def _require_still_valid(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Raise `UnauthorizedError` if the caller's key is valid no more: a stream may never end.

        What was begun without keys goes on to its end, and so does what streams while nobody can
        look: a database that is away holds up no text.
        """
        principal = scope["state"].get("principal")
        if principal is None or principal.id == OPEN_ID:
            return
        try:
            async with asyncio.timeout(LOOK_S):
                await self._access.admit(headers)
        except UnauthorizedError:
            raise
        except (MilepostError, TimeoutError):
            self._log.debug("whether a key is still valid cannot be seen", path=scope["path"])

    async def _break_off(self, error: Exception, scope: Scope, send: Send) -> None:
        """End a response in its middle, so that its reader can tell that it is not whole.

        What is no fault of ours, such as an outage, is told in a line: the server would tell more.
        """
        path, abort = scope["path"], scope.get(ABORT)
        if not isinstance(error, MilepostError) or status_of(error) == 500 or abort is None:
            self._log.error("a response broke off", path=path, exc_info=error)
            raise error
        self._log.warning("a response broke off", path=path, code=error.code, error=str(error))
        abort()
        # It reaches nobody, and ends the response.
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _refusal(self, error: BaseException, scope: Scope, request_id: str) -> Response:
        answer = problem(self._known(error, scope), instance=scope["path"], request_id=request_id)
        if isinstance(error, HTTPException) and error.status_code == 405:
            answer.headers["allow"] = self._methods(scope)
        return answer

    def _known(self, error: BaseException, scope: Scope) -> MilepostError:
        match error:
            case asyncio.CancelledError():
                # Only a server that stops, and has waited long enough, does this to a request.
                return UnavailableError("this process stops before it could answer; ask again")
            case MilepostError() if status_of(error) != 500:
                return error
            case HTTPException(status_code=405):
                path, method, methods = scope["path"], scope["method"], self._methods(scope)
                return NotFoundError(
                    f"{path} does not take {method}, but {methods}", code=_HTTP_CODES[405]
                )
            case HTTPException(status_code=status, detail=detail):
                told = f"{scope['method']} {scope['path']}: {detail}"
                return NotFoundError(told, code=_HTTP_CODES.get(status, "not_found"))
            case _ if is_scarcity(error):
                self._log.warning("a request found none left", path=scope["path"], why=str(error))
                return UnavailableError(
                    "the server had no file, thread or room left for this; ask again, and repeat"
                    " what writes with its Idempotency-Key, as it may have been done"
                )
            case _:
                self._log.error("a request failed", path=scope["path"], exc_info=error)
                return MilepostError(str(error))

    def _methods(self, scope: Scope) -> str:
        """Return what the path takes: the router's own answer names one route's methods only.

        Where what ends with a name that may have slashes is one of several, the others are meant.
        """
        matching = [
            route
            for route in self._router.routes
            if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE
        ]
        meant = [route for route in matching if not route.path.endswith(":path}")] or matching
        return ", ".join(sorted({method for route in meant for method in route.methods or ()}))

    def _request_id(self, sent: bytes) -> str:
        text = sent.decode("latin-1")
        return text if _REQUEST_ID.fullmatch(text) else self._new_id("req")


def _refuse_unclear(scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    """Raise `InvalidError` for a request that says twice what can be meant once, or not for whom.

    The latter is no request of HTTP/1.1 (RFC 9112, section 3.2); before that there were no hosts.
    Nor is a body read that was packed on its way (section 6.1): chunks are all that is undone.
    """
    if len(headers) < len(scope["headers"]):
        _refuse_repeated(scope["headers"])
    if b"host" not in headers and scope["http_version"] == "1.1":
        raise InvalidError("the request has no host header; send one", code="malformed_http")
    if b"transfer-encoding" in headers:
        sent = [value for name, value in scope["headers"] if name == b"transfer-encoding"]
        codings = b", ".join(sent).decode("latin-1").strip()
        if codings.lower() != "chunked":
            told = f"the body came as {codings!r}; send it as it is, or chunked"
            raise InvalidError(told, code="malformed_http")


def _refuse_repeated(sent: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise `InvalidError` for a header that is there more than once, and means one thing only."""
    counts = Counter(name for name, _ in sent)
    for name in _SINGLE:
        if counts[name] > 1:
            told = f"the request has {counts[name]} {name.decode()} headers; send one"
            raise InvalidError(told, code="malformed_http")


def _refuse_nul(path: str) -> None:
    """Raise `NotFoundError` for what neither database could even look for."""
    if "\x00" in path:
        raise NotFoundError("there is nothing with a NUL character in its name")
