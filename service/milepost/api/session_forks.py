"""`POST /v1/sessions/{id}/fork`: a session that shares another one's past and owns its future."""

from typing import Annotated

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.bodies import Body, read_body
from milepost.api.conditions import etag
from milepost.api.paging import allow, json_response
from milepost.api.replays import asked, once
from milepost.api.requests import caller
from milepost.api.session_shown import ms, show_session
from milepost.core.errors import ConflictError, NotFoundError
from milepost.core.window import Place
from milepost.runtime.agent_spec import Metadata
from milepost.runtime.conversation import Conversation
from milepost.runtime.journal import Ports
from milepost.runtime.session_spec import PlaceText, Span, Title
from milepost.store import idempotency, session_forks, sessions
from milepost.store.sessions import NewSession, SessionRow


class SessionFork(Body):
    """What `POST /v1/sessions/{id}/fork` takes."""

    at: PlaceText | None = None
    user: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    title: Title | None = None
    metadata: Metadata = Field(default_factory=dict)
    ttl_s: Span | None = None
    keep_s: Span | None = None


class SessionForks:
    """Forks of sessions, over a store."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._conversation = Conversation(ports.store)

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [Route("/v1/sessions/{session_id}/fork", self.fork, methods=["POST"])]

    async def fork(self, request: Request) -> Response:
        """Begin a session that goes on from a message of this one; this one is left alone."""
        allow(request)
        principal = caller(request, "runs:write")
        body, raw = await read_body(request, SessionFork)
        user = principal.acting_as(body.user)  # Before anything is looked at.
        read, now = self._ports.store.read, self._ports.clock()
        wish = asked(request, raw, self._ports.new_id("ses"), now)
        if wish and (earlier := await self._ports.store.write(idempotency.recall(wish))):
            return _made(await read(sessions.find(principal.tenant, earlier)), replayed=True)
        row = await read(sessions.find(principal.tenant, request.path_params["session_id"]))
        principal.require("runs:read")  # A fork can be made to tell all that was said before.
        session = NewSession(
            id=wish.resource_id if wish else self._ports.new_id("ses"),
            tenant=principal.tenant,
            user=user or row.user,
            title=body.title,
            metadata=orjson.dumps(body.metadata).decode(),
            created_ms=now,
            ttl_ms=ms(body.ttl_s),
            keep_ms=ms(body.keep_s),
        )
        at = await self._place(row, body.at)
        made = await self._ports.store.write(
            once(
                wish,
                session_forks.fork(session, row.id, at),
                lambda earlier: sessions.find(principal.tenant, earlier),
            )
        )
        return _made(made.resource, replayed=made.replayed)

    async def _place(self, row: SessionRow, wanted: str | None) -> Place | None:
        """Return the last message that the fork is to share, if there is any."""
        if wanted is None:
            return await self._conversation.last(row)
        place = Place.of(wanted)
        if place.turn > row.turns:
            raise ConflictError(
                f"turn {place.turn} of session {row.id} is not over, or has not begun; fork at one"
                f" of the {row.turns} before it",
                code="session_busy",
            )
        if await self._conversation.at(row, place) is None:
            raise NotFoundError(
                f"session {row.id} has no message {wanted}; they are at"
                f" /v1/sessions/{row.id}/messages",
                code="message_not_found",
            )
        return place


def _made(row: SessionRow, *, replayed: bool = False) -> Response:
    headers = {"Location": f"/v1/sessions/{row.id}", "ETag": etag(row)}
    if replayed:
        headers["Idempotency-Replayed"] = "true"
    return json_response(show_session(row), 201, headers)
