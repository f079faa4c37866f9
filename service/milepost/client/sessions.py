"""`client.sessions`."""

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from milepost.client.shapes import Page, Run, Session, paged, shaped
from milepost.client.transport import Transport, filtered, if_version, quoted


class SessionFields(TypedDict, total=False):
    """What a session may be given."""

    title: str | None
    metadata: Mapping[str, str]


class NewSessionFields(SessionFields, total=False):
    """What only a new session may be given: whose it is."""

    user: str | None


class SessionFilters(TypedDict, total=False):
    """Which sessions a list is to hold, and which stretch of it."""

    user: str | None
    metadata: Mapping[str, str]
    created_after: str | None
    created_before: str | None
    limit: int | None
    after: str | None
    order: str | None


class Sessions:
    """Conversations, of which every run is a turn."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(self, **fields: Unpack[NewSessionFields]) -> Session:
        """Begin a conversation."""
        return shaped(Session, await self._transport.post("/v1/sessions", fields))

    async def get(self, session_id: str) -> Session:
        """Return a session."""
        return shaped(Session, await self._transport.get(f"/v1/sessions/{quoted(session_id)}"))

    async def list(self, **filters: Unpack[SessionFilters]) -> Page[Session]:
        """Return sessions, the newest first."""
        return paged(Session, await self._transport.get("/v1/sessions", filtered(filters)))

    async def update(
        self, session_id: str, *, if_still: int | None = None, **changes: Unpack[SessionFields]
    ) -> Session:
        """Change what is named; with `if_still`, only if that is still the session's version."""
        answer = await self._transport.request(
            "PATCH",
            f"/v1/sessions/{quoted(session_id)}",
            body=changes,
            headers=if_version(if_still),
        )
        return shaped(Session, answer)

    async def delete(self, session_id: str, *, if_still: int | None = None) -> None:
        """Erase a session with its runs and all below them; with `if_still`, in that version."""
        path = f"/v1/sessions/{quoted(session_id)}"
        await self._transport.request("DELETE", path, headers=if_version(if_still))

    async def messages(
        self, session_id: str, *, limit: int | None = None, after: str | None = None
    ) -> Page[Mapping[str, Any]]:
        """Return what was said, in the order in which it was."""
        params = {"limit": limit, "after": after}
        page = await self._transport.get(f"/v1/sessions/{quoted(session_id)}/messages", params)
        return Page(tuple(page["data"]), page["has_more"], page["next_cursor"])

    async def runs(
        self, session_id: str, *, limit: int | None = None, after: str | None = None
    ) -> Page[Run]:
        """Return the session's runs, the newest first."""
        params = {"limit": limit, "after": after}
        return paged(
            Run, await self._transport.get(f"/v1/sessions/{quoted(session_id)}/runs", params)
        )
