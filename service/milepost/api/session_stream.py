"""One client's tail of a session: of its runs one after the other, in the order of their line.

Each run is followed by a tail of its own, whose frames have the run before their ids. Between two
runs the bell of the session is waited for.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import orjson

from milepost.api.cursors import Cursor
from milepost.api.stream import HEARTBEAT, HEARTBEAT_S, RETRY, Selection, Tail
from milepost.core.errors import NotFoundError
from milepost.live.frames import sent_event
from milepost.live.hub import Hub, session_bell
from milepost.live.reminder import Reminder
from milepost.store import log, session_order, sessions
from milepost.store.session_order import Spot
from milepost.store.store import Store
from milepost.store.work import Work


@dataclass(frozen=True, slots=True)
class Start:
    """Where a client comes in: within the log of a run or, if `is_over`, behind its end.

    Without a run it is before the session's first.
    """

    spot: Spot | None = None
    within: Cursor = field(default_factory=Cursor)
    is_over: bool = False


class SessionTail:
    """Reads a session's runs, for one client, from its cursor on, until the client leaves.

    With `until_idle` only as long as there is a run that has not been shown.
    """

    def __init__(
        self,
        store: Store,
        hub: Hub,
        place: tuple[str, str],
        start: Start,
        selection: Selection,
        *,
        until_idle: bool = False,
    ) -> None:
        self.ended = False
        self.heartbeat_s = HEARTBEAT_S
        self._store = store
        self._hub = hub
        self._tenant, self._session_id = place
        self._selection = selection
        self._until_idle = until_idle
        self._spot = start.spot
        self._within = start.within
        self._is_over = start.is_over
        self._tail: Tail | None = None
        self._woken: asyncio.Event | None = None
        self._farewell: bytes | None = None
        self._beat_is_due = False
        self._closed = False

    @property
    def seq(self) -> str:
        """How far it goes with the piece that is out: a cursor, or nothing before the first run."""
        if self._spot is None:
            return ""
        return f"{self._spot.run_id}.{self._tail.seq if self._tail else self._within.seq}"

    def close(self, farewell: bytes | None = None) -> None:
        """End the stream soon, with a last word if there is one to say."""
        self._closed = True
        self._farewell = farewell
        if self._tail is not None:
            self._tail.close()
        if self._woken is not None:
            self._woken.set()

    def notice(self, kind: str, data: dict[str, Any]) -> bytes:
        """Return an event about the stream itself."""
        body = orjson.dumps({"type": kind, "session_id": self._session_id, "data": data})
        return sent_event(kind, body)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield whole frames, joined as they are ready.

        Registers first and reads second, so that no run falls between the two. Raises
        `NotFoundError` if the session is erased meanwhile.
        """
        yield RETRY
        with (
            self._hub.bell(session_bell(self._session_id)) as self._woken,
            Reminder(self.heartbeat_s, self._beat),
        ):
            while not self._closed:
                self._woken.clear()
                upcoming = await self._upcoming()
                if upcoming is not None and not upcoming.waits:
                    async with aclosing(self._run(upcoming)) as pieces:
                        async for piece in pieces:
                            yield piece
                elif upcoming is None and self._until_idle:
                    self.ended = True
                    yield self.notice("stream.idle", {})
                    return
                else:
                    await self._woken.wait()
                    if self._beat_is_due:
                        self._beat_is_due = False
                        yield HEARTBEAT
        if self._farewell:
            yield self._farewell

    async def _upcoming(self) -> Spot | None:
        """Return the run that is to be shown now, or that has to begin first."""
        if self._spot is None or self._is_over:
            read = upcoming(self._tenant, self._session_id, self._spot)
            return await self._store.read(read)
        if not self._spot.waits:
            return self._spot
        read = session_order.spot(self._tenant, self._session_id, self._spot.run_id)
        found = await self._store.read(read)
        self._is_over = found is None
        return found or self._spot

    async def _run(self, spot: Spot) -> AsyncGenerator[bytes, None]:
        """Yield one run, from where the client is in it to its end."""
        if self._spot is None or spot.run_id != self._spot.run_id:
            self._within = Cursor()
        self._spot, self._is_over = spot, False
        if spot.turn is not None and await self._is_silent(spot):
            self._is_over = True
            return
        self._tail = Tail(
            self._store, self._hub, self._tenant, spot.run_id, self._within, self._selection
        )
        self._tail.within = f"{spot.run_id}."
        self._tail.heartbeat_s = self.heartbeat_s
        if self._closed:
            return
        try:
            async with aclosing(self._tail.pieces()) as pieces:
                async for piece in pieces:
                    yield piece
        except NotFoundError:
            self._is_over = True  # It was erased; whether the session is still there shows next.
        self._is_over = self._is_over or self._tail.ended

    async def _is_silent(self, spot: Spot) -> bool:
        """Say whether a run that is over has nothing more to tell: its log is not kept for ever."""
        return await self._store.read(log.head(self._tenant, spot.run_id)) <= self._within.seq

    def _beat(self) -> None:
        """Show that somebody is here; while a run is followed, its own tail does."""
        self._beat_is_due = self._tail is None or self._is_over
        if self._beat_is_due and self._woken is not None:
            self._woken.set()


def upcoming(tenant: str, session_id: str, behind: Spot | None) -> Work[Spot | None]:
    """Return the run behind that one, if there is one yet.

    Raises `NotFoundError` if the session is not there any more.
    """
    found = yield from session_order.following(tenant, session_id, behind)
    if found is None:
        yield from sessions.find(tenant, session_id)
    return found
