"""`POST /v1/sessions/{id}/fork`: a session that shares another one's past and owns its future."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.bodies import read_body
from milepost.api.new_sessions import SessionCreate, created, session_of
from milepost.api.paging import allow
from milepost.api.replays import asked, earlier_of, once
from milepost.api.requests import caller
from milepost.core.errors import ConflictError, NotFoundError
from milepost.core.window import Place
from milepost.runtime.conversation import Conversation
from milepost.runtime.journal import Ports
from milepost.runtime.session_spec import PlaceText
from milepost.store import session_forks, sessions
from milepost.store.sessions import SessionRow


class SessionFork(SessionCreate):
    """What `POST /v1/sessions/{id}/fork` takes."""

    at: PlaceText | None = None


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
        store, now, session_id = self._ports.store, self._ports.clock(), self._ports.new_id("ses")
        find = partial(sessions.find, principal.tenant)
        wish = asked(request, raw, session_id, now)
        if made := await earlier_of(store, wish, find):
            return created(made)
        row = await store.read(find(request.path_params["session_id"]))
        principal.require("runs:read")  # A fork can be made to tell all that was said before.
        session = session_of(
            body, principal.tenant, user or row.user, session_id=session_id, now_ms=now
        )
        forking = session_forks.fork(session, row.id, await self._place(row, body.at))
        return created(await store.write(once(wish, forking, find)))

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
