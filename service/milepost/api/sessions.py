"""`/v1/sessions`: conversations, what was said in them, and the runs that they are made of."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.access import Principal
from milepost.api.bodies import Body, read_body
from milepost.api.conditions import amend, compares_versions, etag, version_meant
from milepost.api.new_sessions import SessionCreate, created, session_of
from milepost.api.paging import (
    allow,
    choice,
    flag,
    json_response,
    listed,
    metadata,
    moment_ms,
    page,
    words,
)
from milepost.api.replays import asked, once
from milepost.api.requests import caller
from milepost.api.runs_shown import STATUSES, show_run
from milepost.api.session_shown import ms, show_said, show_session
from milepost.runtime.agent_spec import Metadata
from milepost.runtime.conversation import Choice, Conversation
from milepost.runtime.journal import Ports
from milepost.runtime.session_spec import Span, Title
from milepost.store import runs, sessions
from milepost.store.engine import DatabaseUnavailableError
from milepost.store.records import RunFilter
from milepost.store.sessions import (
    KINDS,
    Erased,
    SessionEdit,
    SessionFilter,
    SessionKind,
    SessionRow,
)
from milepost.store.work import Work

_ANY = "any"


class SessionChange(Body):
    """What `PATCH /v1/sessions/{id}` takes: what is not named stays; metadata is set as a whole."""

    title: Title | None = None
    metadata: Metadata = Field(default_factory=dict)
    archived: bool = False
    ttl_s: Span | None = None
    keep_s: Span | None = None


class Sessions:
    """Sessions, over a store."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._conversation = Conversation(ports.store)

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/sessions", self.create, methods=["POST"]),
            Route("/v1/sessions", self.search, methods=["GET"]),
            Route("/v1/sessions/{session_id}", self.get, methods=["GET"]),
            Route("/v1/sessions/{session_id}", self.change, methods=["PATCH"]),
            Route("/v1/sessions/{session_id}", self.delete, methods=["DELETE"]),
            Route("/v1/sessions/{session_id}/messages", self.messages, methods=["GET"]),
            Route("/v1/sessions/{session_id}/runs", self.runs, methods=["GET"]),
        ]

    async def create(self, request: Request) -> Response:
        """Begin a conversation. A run without a session begins one by itself."""
        allow(request)
        principal = caller(request, "runs:write")
        body, raw = await read_body(request, SessionCreate)
        session = session_of(
            body,
            principal.tenant,
            principal.acting_as(body.user),
            session_id=self._ports.new_id("ses"),
            now_ms=self._ports.clock(),
        )
        made = await self._ports.store.write(
            once(
                asked(request, raw, session.id, session.created_ms),
                sessions.create(session),
                lambda earlier: sessions.find(principal.tenant, earlier),
            )
        )
        return created(made)

    async def search(self, request: Request) -> Response:
        """List sessions, the newest first."""
        allow(
            request, "limit", "after", "order", "kind", "user", "title", "archived", "forked_from",
            "created_after", "created_before", "metadata",
        )  # fmt: skip
        principal = caller(request, "runs:read")
        wanted = SessionFilter(
            kind=_kind(request),
            user=words(request, "user"),
            title=words(request, "title"),
            archived=_either(request, "archived"),
            forked_from=words(request, "forked_from"),
            created_after_ms=moment_ms(request, "created_after"),
            created_before_ms=moment_ms(request, "created_before"),
            metadata=metadata(request),
        )
        stretch = page(request, of="ses")
        found = await self._ports.store.read(sessions.search(principal.tenant, wanted, stretch))
        return listed(found, stretch, show_session, lambda row: row.id)

    async def get(self, request: Request) -> Response:
        """Show one session."""
        allow(request)
        row = await self._find(caller(request, "runs:read"), request)
        return json_response(show_session(row), headers={"ETag": etag(row)})

    @compares_versions
    async def change(self, request: Request) -> Response:
        """Give the session other terms, or put it away: an archived one takes no runs."""
        allow(request)
        principal = caller(request, "runs:write")
        body, _ = await read_body(request, SessionChange)
        row = await amend(
            request,
            lambda: self._find(principal, request),
            lambda row: self._change(row, body),
        )
        return json_response(show_session(row), headers={"ETag": etag(row)})

    @compares_versions
    async def delete(self, request: Request) -> Response:
        """Erase the session with its runs, and those that they started; their cost stays billed."""
        allow(request)
        row = await self._find(caller(request, "runs:write"), request)
        expected = version_meant(request, row)
        gone = await self._erased(row, expected)
        await self._ports.hub.erase(gone.runs)
        for session_id in gone.sessions:
            # What cannot be removed now is written down, and removed later.
            with suppress(OSError):
                await self._ports.shelf.clear(row.tenant, session_id)
        return Response(status_code=204)

    async def messages(self, request: Request) -> Response:
        """List what was said, in its order."""
        allow(request, "limit", "after", "order", "run_id", "rolled_back")
        row = await self._find(caller(request, "runs:read"), request)
        stretch, run_id = page(request, order="asc"), words(request, "run_id")
        rolled_back = flag(request, "rolled_back", default=run_id is not None)
        found = await self._conversation.page(row, stretch, Choice(run_id, rolled_back))
        return listed(found, stretch, show_said, lambda said: said.place)

    async def runs(self, request: Request) -> Response:
        """List the session's runs, the newest first."""
        allow(request, "limit", "after", "order", "status")
        row = await self._find(caller(request, "runs:read"), request)
        wanted = RunFilter(session_id=row.id, status=choice(request, "status", STATUSES))
        stretch = page(request, of="run")
        found = await self._ports.store.read(runs.search(row.tenant, wanted, stretch))
        return listed(found, stretch, show_run, lambda run: run.id)

    async def _find(self, principal: Principal, request: Request) -> SessionRow:
        session_id = request.path_params["session_id"]
        return await self._ports.store.read(sessions.find(principal.tenant, session_id))

    async def _change(self, row: SessionRow, body: SessionChange) -> SessionRow:
        now = self._ports.clock()
        present = SessionEdit(row.title, row.metadata, row.archived_ms, row.ttl_ms, row.keep_ms)
        edit = _edited(present, body, now)
        if edit == present:
            return row
        return await self._ports.store.write(
            sessions.change(row.tenant, row.id, edit, now_ms=now, expected_version=row.version)
        )

    async def _erased(self, row: SessionRow, expected: int | None) -> Erased:
        """Erase it in the database; where the answer is lost, nobody finds it to try again."""
        reached: list[str] = []

        def erase() -> Work[Erased]:
            gone = yield from sessions.erase(row.tenant, row.id, expected_version=expected)
            reached.extend(gone.runs)
            return gone

        try:
            return await self._ports.store.write(erase())
        except DatabaseUnavailableError:
            await self._ports.hub.erase(reached)  # All are over, and their logs tell what was said.
            raise


def _edited(present: SessionEdit, body: SessionChange, now_ms: int) -> SessionEdit:
    """Return the session's terms with those that the body names."""
    wanted: dict[str, Any] = {
        "title": body.title,
        "metadata": orjson.dumps(body.metadata).decode(),
        "archived_ms": (present.archived_ms or now_ms) if body.archived else None,
        "ttl_ms": ms(body.ttl_s),
        "keep_ms": ms(body.keep_s),
    }
    columns = {"archived": "archived_ms", "ttl_s": "ttl_ms", "keep_s": "keep_ms"}
    named = [columns.get(name, name) for name in body.model_fields_set]
    return replace(present, **{name: wanted[name] for name in named})


def _kind(request: Request) -> SessionKind | None:
    """Return of which kind sessions are wanted: chats, unless it is said."""
    said = choice(request, "kind", (*KINDS, _ANY)) or "chat"
    return next((kind for kind in KINDS if kind == said), None)


def _either(request: Request, name: str) -> bool | None:
    """Return a query parameter that is true, false, or not there."""
    said = choice(request, name, ("true", "false"))
    return None if said is None else said == "true"
