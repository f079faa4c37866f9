"""What runs are told of a session besides its last messages: summaries, and what is pinned."""

import re
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.bodies import require_none
from milepost.api.paging import allow, json_response, listed, page
from milepost.api.requests import caller
from milepost.core.errors import InvalidError, NotFoundError
from milepost.core.window import Place
from milepost.live.frames import rfc3339, rfc3339_or_none
from milepost.memory.sight import can_be_pinned
from milepost.runtime.credentials import Scope
from milepost.runtime.history import History
from milepost.runtime.journal import Ports
from milepost.store import pins, sessions, summaries
from milepost.store.summaries import SummaryRow

_PLACE = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}")


class SessionMemory:
    """Summaries and pins of sessions, over a store."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._history = History(ports.store)

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        session = "/v1/sessions/{session_id}"
        return [
            Route(f"{session}/summaries", self.summaries, methods=["GET"]),
            Route(f"{session}/summaries/{{summary_id}}", self.revert, methods=["DELETE"]),
            Route(f"{session}/pins", self.pins, methods=["GET"]),
            Route(f"{session}/messages/{{place}}/pin", self.pin, methods=["PUT"]),
            Route(f"{session}/messages/{{place}}/pin", self.unpin, methods=["DELETE"]),
        ]

    async def summaries(self, request: Request) -> Response:
        """List what fell out of sight and what is told of it, the newest first."""
        allow(request, "limit", "after", "order")
        tenant, session_id = await self._session(request, "runs:read")
        stretch = page(request, of="sum")
        found = await self._ports.store.read(summaries.search(tenant, session_id, stretch))
        return listed(found, stretch, show_summary, lambda row: row.id)

    async def revert(self, request: Request) -> Response:
        """Have messages shown again, to runs whose window has room for them."""
        allow(request)
        tenant, session_id = await self._session(request, "runs:write")
        summary_id, now = request.path_params["summary_id"], self._ports.clock()
        await self._ports.store.write(summaries.revert(tenant, session_id, summary_id, now))
        return Response(status_code=204)

    async def pins(self, request: Request) -> Response:
        """List the places of the pinned messages, in their order."""
        allow(request)
        tenant, session_id = await self._session(request, "runs:read")
        found = await self._ports.store.read(pins.find(tenant, session_id))
        return json_response({"data": [str(place) for place in found]})

    async def pin(self, request: Request) -> Response:
        """Have a message shown to every run, wherever its window begins."""
        allow(request)
        await require_none(request)
        tenant, session_id = await self._session(request, "runs:write")
        place = _place(request)
        await self._require_words(tenant, session_id, place)
        await self._ports.store.write(pins.put(tenant, session_id, place, self._ports.clock()))
        return Response(status_code=204)

    async def unpin(self, request: Request) -> Response:
        """Leave a message to the window again."""
        allow(request)
        tenant, session_id = await self._session(request, "runs:write")
        await self._ports.store.write(pins.remove(tenant, session_id, _place(request)))
        return Response(status_code=204)

    async def _session(self, request: Request, scope: Scope) -> tuple[str, str]:
        """Return the caller's tenant, and the session, which is that tenant's."""
        principal = caller(request, scope)
        session_id = request.path_params["session_id"]
        row = await self._ports.store.read(sessions.find(principal.tenant, session_id))
        return row.tenant, row.id

    async def _require_words(self, tenant: str, session_id: str, place: Place) -> None:
        """Raise unless the message is there, and says something that can stand alone."""
        message = await self._history.at(tenant, session_id, place)
        if message is None:
            raise NotFoundError(
                f"session {session_id} has no message {place} in a run that is over; its messages"
                f" are at /v1/sessions/{session_id}/messages",
                code="message_not_found",
            )
        if not can_be_pinned(message):
            raise InvalidError(
                f"message {place} is of no use without the others of its step; pin one in which"
                " the user or the model says something",
                code="not_pinnable",
            )


def _place(request: Request) -> Place:
    written = request.path_params["place"]
    if _PLACE.fullmatch(written) is None:
        raise NotFoundError(
            f"{written!r} is no place of a message; it is <turn>.<index>, as messages are listed",
            code="message_not_found",
        )
    return Place.of(written)


def show_summary(row: SummaryRow) -> dict[str, Any]:
    """Return as clients read it what is told of a stretch of a session."""
    return {
        "id": row.id,
        "session_id": row.session_id,
        "first": str(row.first),
        "last": str(row.last),
        "content": row.content,
        "model": row.model,
        "run_id": row.run_id,
        "created_at": rfc3339(row.created_ms),
        "reverted_at": rfc3339_or_none(row.reverted_ms),
    }
