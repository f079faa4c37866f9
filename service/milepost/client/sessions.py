"""`client.sessions`."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from milepost.client.following import Following
from milepost.client.foreign import listed, ours
from milepost.client.session_following import SessionPosition, SessionWanted
from milepost.client.shapes import Event, Page, Run, Session, paged, paged_raw, shaped
from milepost.client.transport import Transport, filtered, if_version, quoted


class SessionFields(TypedDict, total=False):
    """What a session may be given."""

    title: str | None
    metadata: Mapping[str, str]
    ttl_s: int | None
    keep_s: int | None


class SessionChanges(SessionFields, total=False):
    """What only a session that is there may be given: its place in the archive."""

    archived: bool


class NewSessionFields(SessionFields, total=False):
    """What only a new session may be given: whose it is."""

    user: str | None


class ForkFields(NewSessionFields, total=False):
    """What only a fork may be given: the last message that it is to share."""

    at: str | None


class SessionFilters(TypedDict, total=False):
    """Which sessions a list is to hold, and which stretch of it; chats, unless `kind` says any."""

    kind: str | None
    user: str | None
    title: str | None
    archived: bool | None
    forked_from: str | None
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
        self, session_id: str, *, if_still: int | None = None, **changes: Unpack[SessionChanges]
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
        await self._transport.change("DELETE", path, headers=if_version(if_still))

    async def fork(self, session_id: str, **fields: Unpack[ForkFields]) -> Session:
        """Begin a session that shares this one's past up to the message at `at`, or all of it."""
        path = f"/v1/sessions/{quoted(session_id)}/fork"
        return shaped(Session, await self._transport.post(path, fields))

    async def state(
        self, session_id: str, *, at: str | None = None, agent: str | None = None
    ) -> Mapping[str, Any]:
        """Return the prompt that ends with the message at `at`, or what the next run's begins with.

        `agent` says whose run that would be; that of the last run, unless said.
        """
        path = f"/v1/sessions/{quoted(session_id)}/state"
        return ours(await self._transport.get(path, {"at": at, "agent": agent}), "messages")

    async def export(self, session_id: str) -> Mapping[str, Any]:
        """Return the session written down, as `import_` takes it."""
        return ours(await self._transport.get(f"/v1/sessions/{quoted(session_id)}/export"), "runs")

    async def import_(self, exported: Mapping[str, Any]) -> Session:
        """Make a session out of one that was exported, here or elsewhere."""
        return shaped(Session, await self._transport.post("/v1/session_imports", exported))

    async def messages(
        self,
        session_id: str,
        *,
        run_id: str | None = None,
        rolled_back: bool | None = None,
        limit: int | None = None,
        after: str | None = None,
        order: str | None = None,
    ) -> Page[Mapping[str, Any]]:
        """Return what was said, in the order in which it was; with `run_id` only in that run.

        `rolled_back` shows also what the conversation goes on without, `order="desc"` the latest
        first.
        """
        params = {
            "run_id": run_id,
            "rolled_back": rolled_back,
            "limit": limit,
            "after": after,
            "order": order,
        }
        path = f"/v1/sessions/{quoted(session_id)}/messages"
        return paged_raw(await self._transport.get(path, params))

    def stream(
        self,
        session_id: str,
        *,
        after: str | None = None,
        types: Sequence[str] = (),
        deltas: bool = True,
        until_idle: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """Yield what happens in a session, run after run, from the first or behind `after`.

        Broken connections are mended on the way: nothing is lost and nothing comes twice.
        `until_idle` ends the stream where no run is under way or waits for its turn.
        """
        wanted = SessionWanted(types, deltas, until_idle)
        path = f"/v1/sessions/{quoted(session_id)}/events"
        return Following(self._transport, path, wanted, SessionPosition(after)).events()

    async def summaries(
        self, session_id: str, *, limit: int | None = None, after: str | None = None
    ) -> Page[Mapping[str, Any]]:
        """Return what fell out of sight and what is told of it, the newest first."""
        params = {"limit": limit, "after": after}
        path = f"/v1/sessions/{quoted(session_id)}/summaries"
        return paged_raw(await self._transport.get(path, params))

    async def revert(self, session_id: str, summary_id: str) -> None:
        """Have messages shown again that fell out of sight; the newest summary goes first."""
        path = f"/v1/sessions/{quoted(session_id)}/summaries/{quoted(summary_id)}"
        await self._transport.change("DELETE", path)

    async def pins(self, session_id: str) -> Sequence[str]:
        """Return the places of the pinned messages."""
        return tuple(listed(await self._transport.get(f"/v1/sessions/{quoted(session_id)}/pins")))

    async def pin(self, session_id: str, place: str) -> None:
        """Have a message shown to every run, wherever its window begins."""
        path = f"/v1/sessions/{quoted(session_id)}/messages/{quoted(place)}/pin"
        await self._transport.change("PUT", path)

    async def unpin(self, session_id: str, place: str) -> None:
        """Leave a message to the window again."""
        path = f"/v1/sessions/{quoted(session_id)}/messages/{quoted(place)}/pin"
        await self._transport.change("DELETE", path)

    async def runs(
        self, session_id: str, *, limit: int | None = None, after: str | None = None
    ) -> Page[Run]:
        """Return the session's runs, the newest first."""
        params = {"limit": limit, "after": after}
        return paged(
            Run, await self._transport.get(f"/v1/sessions/{quoted(session_id)}/runs", params)
        )
