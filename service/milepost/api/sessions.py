"""`/v1/sessions`: conversations, what was said in them, and the runs that they are made of."""

from typing import Annotated, Any

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.access import Principal
from milepost.api.bodies import Body, read_body
from milepost.api.conditions import amend, etag, is_conditional, require_match
from milepost.api.paging import (
    allow,
    choice,
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
from milepost.live.frames import rfc3339
from milepost.runtime.agent_spec import Metadata
from milepost.runtime.conversation import Conversation, Said
from milepost.runtime.journal import Ports
from milepost.store import runs, sessions
from milepost.store.records import RunFilter
from milepost.store.sessions import NewSession, SessionEdit, SessionFilter, SessionRow

Title = Annotated[str, Field(min_length=1, max_length=500)]


class SessionCreate(Body):
    """What `POST /v1/sessions` takes."""

    user: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    title: Title | None = None
    metadata: Metadata = Field(default_factory=dict)


class SessionChange(Body):
    """What `PATCH /v1/sessions/{id}` takes: what is not named stays; metadata is set as a whole."""

    title: Title | None = None
    metadata: Metadata = Field(default_factory=dict)


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
        session = NewSession(
            id=self._ports.new_id("ses"),
            tenant=principal.tenant,
            user=principal.acting_as(body.user),
            title=body.title,
            metadata=orjson.dumps(body.metadata).decode(),
            created_ms=self._ports.clock(),
        )
        made = await self._ports.store.write(
            once(
                asked(request, raw, session.id, session.created_ms),
                sessions.create(session),
                lambda earlier: sessions.find(principal.tenant, earlier),
            )
        )
        row = made.resource
        headers = made.headers(Location=f"/v1/sessions/{row.id}", ETag=etag(row))
        return json_response(show_session(row), 201, headers)

    async def search(self, request: Request) -> Response:
        """List sessions, the newest first."""
        allow(
            request, "limit", "after", "order", "user", "created_after", "created_before",
            "metadata",
        )  # fmt: skip
        principal = caller(request, "runs:read")
        wanted = SessionFilter(
            user=words(request, "user"),
            created_after_ms=moment_ms(request, "created_after"),
            created_before_ms=moment_ms(request, "created_before"),
            metadata=metadata(request),
        )
        stretch = page(request)
        found = await self._ports.store.read(sessions.search(principal.tenant, wanted, stretch))
        return listed(found, stretch, show_session, lambda row: row.id)

    async def get(self, request: Request) -> Response:
        """Show one session."""
        allow(request)
        row = await self._find(caller(request, "runs:read"), request)
        return json_response(show_session(row), headers={"ETag": etag(row)})

    async def change(self, request: Request) -> Response:
        """Give the session another title or other metadata."""
        allow(request)
        principal = caller(request, "runs:write")
        body, _ = await read_body(request, SessionChange)
        row = await amend(
            request,
            lambda: self._find(principal, request),
            lambda row: self._change(row, body),
        )
        return json_response(show_session(row), headers={"ETag": etag(row)})

    async def delete(self, request: Request) -> Response:
        """Erase the session with its runs, and those that they started; their cost stays billed."""
        allow(request)
        row = await self._find(caller(request, "runs:write"), request)
        require_match(request, row)
        expected = row.version if is_conditional(request) else None
        gone = await self._ports.store.write(
            sessions.delete(row.tenant, row.id, expected_version=expected)
        )
        for session_id in gone:
            await self._ports.shelf.clear(row.tenant, session_id)
        return Response(status_code=204)

    async def messages(self, request: Request) -> Response:
        """List what was said, in its order."""
        allow(request, "limit", "after", "order")
        row = await self._find(caller(request, "runs:read"), request)
        stretch = page(request, order="asc")
        found = await self._conversation.page(row.tenant, row.id, stretch)
        return listed(found, stretch, show_said, lambda said: said.place)

    async def runs(self, request: Request) -> Response:
        """List the session's runs, the newest first."""
        allow(request, "limit", "after", "order", "status")
        row = await self._find(caller(request, "runs:read"), request)
        wanted = RunFilter(session_id=row.id, status=choice(request, "status", STATUSES))
        stretch = page(request)
        found = await self._ports.store.read(runs.search(row.tenant, wanted, stretch))
        return listed(found, stretch, show_run, lambda run: run.id)

    async def _find(self, principal: Principal, request: Request) -> SessionRow:
        session_id = request.path_params["session_id"]
        return await self._ports.store.read(sessions.find(principal.tenant, session_id))

    async def _change(self, row: SessionRow, body: SessionChange) -> SessionRow:
        named = body.model_fields_set
        edit = SessionEdit(
            title=body.title if "title" in named else row.title,
            metadata=orjson.dumps(body.metadata).decode() if "metadata" in named else row.metadata,
        )
        if edit == SessionEdit(row.title, row.metadata):
            return row
        return await self._ports.store.write(
            sessions.change(
                row.tenant, row.id, edit, now_ms=self._ports.clock(), expected_version=row.version
            )
        )


def show_session(row: SessionRow) -> dict[str, Any]:
    """Return the session as clients read it; its version counts the changes made by them."""
    return {
        "id": row.id,
        "user": row.user,
        "title": row.title,
        "version": row.version,
        "runs_ended": row.turns,
        "created_at": rfc3339(row.created_ms),
        "updated_at": rfc3339(row.updated_ms),
        "metadata": orjson.loads(row.metadata),
    }


def show_said(said: Said) -> dict[str, Any]:
    """Return a message as clients read it; `tool_call_id` is what a tool's message answers."""
    message = said.message
    return {
        "run_id": said.run_id,
        "role": message.role,
        "content": message.content,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in message.calls
        ],
        "tool_call_id": message.call_id,
    }
