"""`GET /v1/sessions/{id}/events`: what happens in a session, run after run, in one stream."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.accepting import EVENTS, JSON, LINES, accepted, headers_of_a_stream
from milepost.api.cursors import left_at
from milepost.api.event_types import wanted_types
from milepost.api.gradual import GradualResponse
from milepost.api.log_pages import LogPages
from milepost.api.paging import allow, choice, flag, integer, json_response
from milepost.api.requests import caller
from milepost.api.session_cursors import SessionCursor, parse_session_cursor
from milepost.api.session_stream import SessionTail, Start, upcoming
from milepost.api.stream import Selection, Streams, TailResponse
from milepost.core.errors import InvalidError, NotFoundError
from milepost.live.frames import Frame
from milepost.runtime.journal import Ports
from milepost.store import log, session_order, sessions
from milepost.store.session_order import Spot
from milepost.store.sessions import SessionRow


class SessionEvents:
    """Sessions' streams, over a store and a hub."""

    def __init__(self, ports: Ports, streams: Streams) -> None:
        self._ports = ports
        self._streams = streams

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [Route("/v1/sessions/{session_id}/events", self.events, methods=["GET"])]

    async def events(self, request: Request) -> Response:
        """Show the logs of the session's runs: as a stream, a JSON page, or NDJSON."""
        allow(request, "after", "types", "deltas", "until", "limit")
        limit = integer(request, "limit", 100, low=1, high=log.READ_MAX)
        principal = caller(request, "runs:read")
        cursor = parse_session_cursor(left_at(request))
        session_id = request.path_params["session_id"]
        row = await self._ports.store.read(sessions.find(principal.tenant, session_id))
        start = await self._start(row, cursor)
        selection = _selection(request)
        until_idle = choice(request, "until", ("idle",)) == "idle"
        media = accepted(request, EVENTS, JSON, LINES)
        if media == JSON:
            return await self._page(row, start, selection, limit)
        if request.method == "HEAD":
            return headers_of_a_stream(media)
        if media == LINES:
            return GradualResponse(self._lines(row, start, selection), media_type=LINES)
        if until_idle and await self._is_idle(row, start):
            return Response(status_code=204)
        return self._stream(row, start, selection, until_idle=until_idle)

    async def _start(self, row: SessionRow, cursor: SessionCursor) -> Start:
        """Return where the cursor is. Raises `InvalidError` if that is nowhere.

        Behind any place in a log that is gone come the runs behind its own.
        """
        if cursor.run_id is None:
            return Start()
        read = self._ports.store.read
        spot = await read(session_order.spot(row.tenant, row.id, cursor.run_id))
        if spot is None:
            raise InvalidError(
                f"there is no run {cursor.run_id} in session {row.id}, or not any more; begin"
                " without a cursor",
                code="bad_cursor",
            )
        head = await read(log.head(row.tenant, spot.run_id))
        if cursor.within.seq > head > 0:
            raise InvalidError(
                f"event {cursor.within.seq} of run {spot.run_id} is not written yet; its log ends"
                f" at {head}",
                code="cursor_ahead",
            )
        return Start(spot, cursor.within, spot.turn is not None and cursor.within.seq >= head)

    async def _is_idle(self, row: SessionRow, start: Start) -> bool:
        """Say whether there is nothing that the client has not seen."""
        if start.spot is not None and not start.is_over:
            return False
        return await self._ports.store.read(upcoming(row.tenant, row.id, start.spot)) is None

    def _stream(
        self, row: SessionRow, start: Start, selection: Selection, *, until_idle: bool
    ) -> Response:
        tail = SessionTail(
            self._ports.store,
            self._ports.hub,
            (row.tenant, row.id),
            start,
            selection,
            until_idle=until_idle,
        )
        return TailResponse(tail, self._streams).response

    async def _page(
        self, row: SessionRow, start: Start, selection: Selection, limit: int
    ) -> Response:
        found: list[tuple[str, Frame]] = []
        async with aclosing(self._frames(row, start)) as frames:
            async for each in frames:
                found.append(each)
                if len(found) > limit:
                    break
        shown, more = found[:limit], len(found) > limit
        wanted = (frame for _, frame in shown if selection.has(frame.type))
        body = {
            "data": [orjson.Fragment(frame.body) for frame in wanted],
            "has_more": more,
            "next_cursor": f"{shown[-1][0]}.{shown[-1][1].seq}" if more else None,
        }
        return json_response(body)

    async def _lines(
        self, row: SessionRow, start: Start, selection: Selection
    ) -> AsyncIterator[bytes]:
        async with aclosing(self._frames(row, start)) as frames:
            async for _, frame in frames:
                if selection.has(frame.type):
                    yield frame.body + b"\n"

    async def _frames(
        self, row: SessionRow, start: Start
    ) -> AsyncGenerator[tuple[str, Frame], None]:
        """Yield the events behind the cursor, with their runs, up to their present end."""
        spot, after = start.spot, start.within.seq
        read = self._ports.store.read
        if spot is None or start.is_over:
            spot, after = await read(upcoming(row.tenant, row.id, spot)), 0
        while spot is not None and not spot.waits:
            async for frame in self._frames_of(row, spot, after):
                yield spot.run_id, frame
            if spot.turn is None:
                return
            spot, after = await read(upcoming(row.tenant, row.id, spot)), 0

    async def _frames_of(self, row: SessionRow, spot: Spot, after: int) -> AsyncIterator[Frame]:
        pages = LogPages(self._ports.store, row.tenant, spot.run_id)
        head = await self._ports.store.read(log.head(row.tenant, spot.run_id))
        while after < head:
            try:
                page = await pages.behind(after, through=head)
            except NotFoundError:
                return  # It was erased meanwhile.
            if not page.frames:
                return  # Its log was.
            for frame in page.frames:
                yield frame
            after = page.frames[-1].seq


def _selection(request: Request) -> Selection:
    return Selection(
        types=wanted_types(request),
        deltas=flag(request, "deltas", default=True),
    )
