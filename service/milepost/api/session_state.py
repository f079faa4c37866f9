"""`GET /v1/sessions/{id}/state`: what a model was shown at a message, or would be shown next."""

import re
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.earlier_runs import EarlierRuns
from milepost.api.paging import allow, json_response, words
from milepost.api.requests import caller
from milepost.core.agents import Agent
from milepost.core.errors import InvalidError, NotFoundError
from milepost.core.window import Place
from milepost.runtime.conversation import Conversation, Said
from milepost.runtime.definitions import Definitions
from milepost.runtime.journal import Ports
from milepost.runtime.messages_shown import show_message
from milepost.runtime.session_state import SessionState, Shown
from milepost.store import agents, runs, sessions
from milepost.store.records import Page, RunFilter
from milepost.store.sessions import SessionRow

_PLACE = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}")


class SessionStates:
    """What models are shown of sessions, over a store."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._conversation = Conversation(ports.store)
        self._definitions = Definitions(ports.store)
        self._earlier = EarlierRuns(ports.store)
        self._state = SessionState(ports.store)

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [Route("/v1/sessions/{session_id}/state", self.state, methods=["GET"])]

    async def state(self, request: Request) -> Response:
        """Show the prompt that ends with a message, or what the next run's begins with."""
        allow(request, "at", "agent")
        principal = caller(request, "runs:read")
        session_id = request.path_params["session_id"]
        row = await self._ports.store.read(sessions.find(principal.tenant, session_id))
        at, named = words(request, "at"), words(request, "agent")
        if at is None:
            shown = await self._state.next(row, await self._next_agent(row, named))
            return json_response(_show(row, None, shown))
        if named is not None:
            raise InvalidError(
                "a message was said in a run, which has its agent; leave agent or at out",
                code="bad_query",
            )
        said = await self._said(row, at)
        return json_response(_show(row, said, await self._state.at(said, row)))

    async def _said(self, row: SessionRow, at: str) -> Said:
        if _PLACE.fullmatch(at) is None:
            raise InvalidError(
                f"at is a message's place, such as 2.0, not {at[:100]!r}", code="bad_query"
            )
        if (said := await self._conversation.at(row, Place.of(at))) is None:
            raise NotFoundError(
                f"session {row.id} has no message {at}; they are at /v1/sessions/{row.id}/messages",
                code="message_not_found",
            )
        return said

    async def _next_agent(self, row: SessionRow, named: str | None) -> Agent:
        """Return the agent that is named, as it is now, or that of the session's last run."""
        if named is not None:
            found = await self._ports.store.read(agents.find(row.tenant, named))
            return await self._definitions.get(row.tenant, found.id, found.version)
        wanted = RunFilter(session_id=row.id)
        last = await self._ports.store.read(runs.search(row.tenant, wanted, Page(1)))
        if not last:
            raise InvalidError(
                f"no agent has talked in session {row.id} yet; say which one is meant, with agent",
                code="agent_required",
            )
        return await self._earlier.own_agent(last[0])


def _show(row: SessionRow, said: Said | None, shown: Shown) -> dict[str, Any]:
    agent = shown.agent
    return {
        "session_id": row.id,
        "at": said.place if said else None,
        "run_id": said.run_id if said else None,
        "agent": {"name": agent.name, "version": agent.version} if agent else None,
        "messages": [show_message(message) for message in shown.messages],
        "summary": shown.summary or None,
        "context": shown.context or None,
        "kept_from": shown.kept_from,
        "tokens_estimated": shown.tokens,
    }
