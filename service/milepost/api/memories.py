"""`/v1/memories`: what was learned of conversations: to be read, corrected and forgotten."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.accepting import JSON, LINES, accepted, headers_of_a_stream
from milepost.api.access import Principal
from milepost.api.acts import act_of
from milepost.api.bodies import Body, read_body
from milepost.api.conditions import amend, compares_versions, etag, version_meant
from milepost.api.gradual import GradualResponse
from milepost.api.memories_shown import show_memory
from milepost.api.paging import (
    LIMIT_MAX,
    allow,
    choice,
    json_response,
    listed,
    page,
    words,
)
from milepost.api.replays import asked, once
from milepost.api.requests import caller
from milepost.core.errors import InvalidError
from milepost.core.memories import (
    CONTENT_CHARS_MAX,
    KINDS,
    NAME_CHARS_MAX,
    SCOPES,
    Finding,
    MemoryKind,
    MemoryScope,
    Owner,
    line,
    sought,
)
from milepost.runtime.agent_spec import Metadata
from milepost.runtime.journal import Ports
from milepost.runtime.recalling import both
from milepost.runtime.vectors import Vectors
from milepost.store import agents, audit, erasures, memories, sessions
from milepost.store.audit import AuditRow
from milepost.store.memories import DELETE_MAX, MemoryFilter, MemoryRow, NewMemory, Source
from milepost.store.records import Page
from milepost.store.usage import Account
from milepost.store.work import Work

Term = Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX)]
Content = Annotated[str, Field(min_length=1, max_length=CONTENT_CHARS_MAX)]
OwnerId = Annotated[str, Field(min_length=1, max_length=200)]

# What each kind must say; each may have content besides.
_NEEDS: dict[MemoryKind, tuple[str, ...]] = {
    "entity": ("subject",),
    "relation": ("subject", "predicate", "object"),
    "fact": ("content",),
    "log": ("content",),
}
_TERMS = ("subject", "predicate", "object", "content")


class MemoryPut(Body):
    """What `PUT /v1/memories/{id}` takes: all that the memory is to say from now on."""

    subject: Term | None = None
    predicate: Term | None = None
    object: Term | None = None
    content: Content | None = None
    attributes: Metadata = Field(default_factory=dict)

    def finding(self, kind: MemoryKind) -> Finding:
        """Return what it says as a memory of this kind. Raises `InvalidError` if it cannot."""
        said = {name: value for name in _TERMS if (value := getattr(self, name)) is not None}
        for name in _NEEDS[kind]:
            if name not in said:
                raise _unfit(f"a memory of kind {kind} needs its {name}", name)
            if not line(said[name]):
                raise _unfit(f"the {name} says nothing; write something that can be seen", name)
        for name in said:
            if name not in (*_NEEDS[kind], "content"):
                raise _unfit(f"a memory of kind {kind} has no {name}", name)
        return Finding(kind, **said, attributes=self.attributes)


class MemoryCreate(MemoryPut):
    """What `POST /v1/memories` takes."""

    scope: MemoryScope
    owner: OwnerId | None = None
    kind: MemoryKind

    @model_validator(mode="after")
    def _is_somebodys(self) -> "MemoryCreate":
        if self.scope == "tenant" and self.owner is not None:
            raise ValueError("what is the tenant's has no owner; name none, or another scope")
        if self.scope != "tenant" and self.owner is None:
            raise ValueError("name the owner: a session's id, a user, or an agent's name or id")
        return self


class Memories:
    """Memories, over a store."""

    def __init__(self, ports: Ports, vectors: Vectors | None = None) -> None:
        self._ports = ports
        self._vectors = vectors

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/memories", self.create, methods=["POST"]),
            Route("/v1/memories", self.search, methods=["GET"]),
            Route("/v1/memories", self.erase, methods=["DELETE"]),
            Route("/v1/memories/{memory_id}", self.get, methods=["GET"]),
            Route("/v1/memories/{memory_id}", self.put, methods=["PUT"]),
            Route("/v1/memories/{memory_id}", self.delete, methods=["DELETE"]),
        ]

    async def create(self, request: Request) -> Response:
        """Keep something; what is known already is said once more, and now by a person."""
        allow(request)
        principal = caller(request, "runs:write")
        body, raw = await read_body(request, MemoryCreate)
        finding = body.finding(body.kind)
        owner, user = await self._owner(principal, body)
        new = NewMemory(
            id=self._ports.new_id("mem"),
            tenant=principal.tenant,
            owner=owner,
            finding=finding,
            source=Source("client", user, session_id=_session_of(owner)),
            now_ms=self._ports.clock(),
        )
        made = await self._ports.store.write(
            once(
                asked(request, raw, new.id, new.now_ms),
                self._kept(principal, new),
                lambda _: memories.known(new),
            )
        )
        row = made.resource
        headers = made.headers(Location=f"/v1/memories/{row.id}", ETag=etag(row))
        return json_response(show_memory(row), 201 if row.mentions == 1 else 200, headers)

    async def search(self, request: Request) -> Response:
        """List memories, the newest first; or those that have some of the words, the best first.

        As lines it is all that match, whatever the limit: that is how they are exported.
        """
        allow(
            request, "limit", "after", "order", "scope", "owner", "kind", "user", "run_id",
            "session_id", "q",
        )  # fmt: skip
        principal = caller(request, "runs:read")
        wanted = MemoryFilter(
            scope=choice(request, "scope", SCOPES),
            owner=words(request, "owner"),
            kind=choice(request, "kind", KINDS),
            user=words(request, "user"),
            run_id=words(request, "run_id"),
            session_id=words(request, "session_id"),
        )
        stretch = page(request, of="mem")
        query = (words(request, "q") or "").strip()
        form = accepted(request, JSON, LINES)
        if query:
            _require_one_page(request)
            return await self._found_by_words(principal, wanted, query, stretch.limit, form)
        if form == JSON:
            work = memories.search(principal.tenant, wanted, stretch)
            found = await self._ports.store.read(work)
            return listed(found, stretch, show_memory, lambda row: row.id)
        if request.method == "HEAD":
            return headers_of_a_stream(LINES)
        lines = self._lines(principal.tenant, wanted, stretch)
        return GradualResponse(lines, media_type=LINES)

    async def get(self, request: Request) -> Response:
        """Show a memory."""
        allow(request)
        row = await self._find(caller(request, "runs:read"), request)
        return json_response(show_memory(row), headers={"ETag": etag(row)})

    @compares_versions
    async def put(self, request: Request) -> Response:
        """Correct a memory: what a person says of it stands, whatever is heard later."""
        allow(request)
        principal = caller(request, "runs:write")
        body, _ = await read_body(request, MemoryPut)
        row = await amend(
            request,
            lambda: self._find_own(principal, request),
            lambda row: self._change(principal, row, body.finding(row.kind)),
        )
        return json_response(show_memory(row), headers={"ETag": etag(row)})

    @compares_versions
    async def delete(self, request: Request) -> Response:
        """Forget a memory."""
        allow(request)
        principal = caller(request, "runs:write")
        row = await self._find_own(principal, request)
        expected = version_meant(request, row)
        work = memories.delete(row.tenant, row.id, expected_version=expected)
        act = self._act("memory.deleted", principal, row.id, row.scope, row.kind)
        await self._ports.store.write(audit.written_down(work, act))
        return Response(status_code=204)

    async def erase(self, request: Request) -> Response:
        """Forget all that is known about a user."""
        allow(request, "user")
        principal = caller(request, "runs:write")
        user = _user(request)
        principal.acting_as(user)
        deleted = 0
        while part := await self._ports.store.write(self._erased(principal, user)):
            deleted += part
            if part < DELETE_MAX:
                break
        return json_response({"deleted": deleted})

    async def _owner(self, principal: Principal, body: MemoryCreate) -> tuple[Owner, str | None]:
        """Return whose memory it is to be, and which user it is about."""
        store, named = self._ports.store, body.owner or ""
        _require_own(principal, body.scope, named)
        match body.scope:
            case "session":
                session = await store.read(sessions.find(principal.tenant, named))
                # As with runs: only who may act for users speaks for the session's.
                theirs = session.user if principal.may_act_for_others else None
                return Owner("session", session.id), principal.subject or theirs
            case "user":
                return Owner("user", named), named
            case "agent":
                agent = await store.read(agents.find(principal.tenant, named))
                return Owner("agent", agent.id), None
            case "tenant":
                return Owner("tenant"), None

    async def _find(self, principal: Principal, request: Request) -> MemoryRow:
        memory_id = request.path_params["memory_id"]
        return await self._ports.store.read(memories.find(principal.tenant, memory_id))

    async def _find_own(self, principal: Principal, request: Request) -> MemoryRow:
        """Return a memory that the caller may change."""
        row = await self._find(principal, request)
        _require_own(principal, row.scope, row.owner)
        return row

    async def _found_by_words(
        self, principal: Principal, wanted: MemoryFilter, query: str, limit: int, form: str
    ) -> Response:
        best = await self._like(principal, wanted, query, limit)
        shown = [show_memory(row) for row in best]
        if form == LINES:
            return Response(b"".join(map(_line, shown)), media_type=LINES)
        return json_response({"data": shown, "has_more": False, "next_cursor": None})

    async def _like(
        self, principal: Principal, wanted: MemoryFilter, query: str, limit: int
    ) -> list[MemoryRow]:
        if not (named := sought(query)):
            return []
        work = memories.worded_like(principal.tenant, wanted, named, limit)
        found = await self._ports.store.read(work)
        if self._vectors is None:
            return found
        account = Account(principal.tenant, principal.subject)
        near = await self._vectors.nearest(account, wanted, query, limit)
        return both(found, near)[:limit]

    async def _lines(
        self, tenant: str, wanted: MemoryFilter, stretch: Page
    ) -> AsyncIterator[bytes]:
        """Yield all that match behind the cursor, a page at a time."""
        after = stretch.after
        while True:
            part = Page(LIMIT_MAX, after, stretch.ascending)
            rows = await self._ports.store.read(memories.search(tenant, wanted, part))
            yield b"".join(_line(show_memory(row)) for row in rows[:LIMIT_MAX])
            if len(rows) <= LIMIT_MAX:
                return
            after = rows[LIMIT_MAX - 1].id

    async def _change(self, principal: Principal, row: MemoryRow, finding: Finding) -> MemoryRow:
        now = self._ports.clock()
        work = memories.change(row, finding, now_ms=now, expected_version=row.version)
        act = self._act("memory.changed", principal, row.id, row.scope, row.kind)
        return await self._ports.store.write(audit.written_down(work, act))

    def _kept(self, principal: Principal, new: NewMemory) -> Work[MemoryRow]:
        yield from erasures.require_none(new.tenant, new.source.user)  # Before any row is held.
        if new.owner.scope == "session":
            yield from sessions.hold(new.tenant, new.owner.id)
        row = yield from memories.keep(new)
        act = self._act("memory.created", principal, row.id, row.scope, row.kind)
        yield from audit.add(act)
        return row

    def _erased(self, principal: Principal, user: str) -> Work[int]:
        """Forget a part of what is known about the user, and write down who did."""
        deleted = yield from memories.delete_of_user(principal.tenant, user)
        if deleted:
            # The user stands where an erasure takes names out of.
            details = {"user": user, "deleted": deleted}
            act = act_of(self._ports, principal, "memories.erased", "memories", details)
            yield from audit.add(act)
        return deleted

    def _act(
        self, action: str, principal: Principal, memory_id: str, scope: str, kind: str
    ) -> AuditRow:
        """Return who did it; not what the memory says, which is to be forgotten in one place."""
        details = {"scope": scope, "kind": kind}
        return act_of(self._ports, principal, action, memory_id, details)


def _require_own(principal: Principal, scope: MemoryScope, owner: str) -> None:
    """Raise `ForbiddenError` for the memory of another user.

    So is, for who stands for a user, what all users are told.
    """
    if scope == "user":
        principal.acting_as(owner)
    elif scope in {"agent", "tenant"} and principal.subject is not None:
        principal.require("users:act_as")


def _require_one_page(request: Request) -> None:
    """Raise `InvalidError` for what only a list in the order of time has."""
    for name in ("after", "order"):
        if name in request.query_params:
            raise InvalidError(
                f"what is found by words is one page, the best first, and takes no {name}; narrow"
                " it by scope, owner or kind",
                code="one_page",
            )


def _unfit(why: str, name: str) -> InvalidError:
    return InvalidError(why, code="memory_unfit", pointer=f"/{name}")


def _user(request: Request) -> str:
    user = words(request, "user")
    if not user:
        raise InvalidError("name the user: ?user=…", code="bad_query")
    return user


def _session_of(owner: Owner) -> str | None:
    return owner.id if owner.scope == "session" else None


def _line(shown: dict[str, Any]) -> bytes:
    return orjson.dumps(shown, option=orjson.OPT_APPEND_NEWLINE)
