"""`/v1/batches`: many runs of one agent at once, and what became of each."""

import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.accepting import EVENTS, JSON, LINES, accepted, headers_of_a_stream
from milepost.api.batch_acts import BatchActs
from milepost.api.batch_stream import BatchTail
from milepost.api.batches_shown import show_batch, show_result
from milepost.api.bodies import Body, read_optional
from milepost.api.cursors import left_at
from milepost.api.gradual import GradualResponse
from milepost.api.new_batches import NewBatches
from milepost.api.paging import (
    LIMIT_MAX,
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
from milepost.api.stream import Streams, TailResponse
from milepost.core.errors import InvalidError
from milepost.live.hub import BATCHES_BELL, batch_bell
from milepost.runtime.journal import Ports
from milepost.store import batches
from milepost.store.batches import BatchFilter, BatchRow
from milepost.store.records import Page

STATUSES = ("running", "cancelling", "completed", "cancelled")

_SEQ = re.compile(r"0|[1-9][0-9]{0,17}")
_PLACE = re.compile(r"[0-9]{1,9}")


class BatchCancel(Body):
    """What `POST /v1/batches/{id}/cancel` takes."""

    reason: Annotated[str, Field(max_length=2_000)] | None = None


class Batches:
    """Batches, over a store and a hub."""

    def __init__(self, ports: Ports, streams: Streams) -> None:
        self._ports = ports
        self._streams = streams
        self._new_batches = NewBatches(ports)

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/batches", self.create, methods=["POST"]),
            Route("/v1/batches", self.search, methods=["GET"]),
            Route("/v1/batches/{batch_id}", self.get, methods=["GET"]),
            Route("/v1/batches/{batch_id}", self.delete, methods=["DELETE"]),
            Route("/v1/batches/{batch_id}/results", self.results, methods=["GET"]),
            Route("/v1/batches/{batch_id}/events", self.events, methods=["GET"]),
            Route("/v1/batches/{batch_id}/cancel", self.cancel, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        """Keep a batch; its items become runs from now on."""
        caller(request, "runs:write")
        made = await self._new_batches.create(request)
        self._ports.hub.ring(BATCHES_BELL)
        headers = made.headers(Location=f"/v1/batches/{made.resource.id}")
        return json_response(show_batch(made.resource), 202, headers)

    async def search(self, request: Request) -> Response:
        """List batches, the newest first."""
        allow(
            request, "limit", "after", "order", "status", "agent", "user", "created_after",
            "created_before", "metadata", "made_by",
        )  # fmt: skip
        principal = caller(request, "runs:read")
        wanted = BatchFilter(
            status=choice(request, "status", STATUSES),
            agent=words(request, "agent"),
            user=words(request, "user"),
            made_by=words(request, "made_by"),
            created_after_ms=moment_ms(request, "created_after"),
            created_before_ms=moment_ms(request, "created_before"),
            metadata=metadata(request),
        )
        stretch = page(request, of="bat")
        found = await self._ports.store.read(batches.search(principal.tenant, wanted, stretch))
        return listed(found, stretch, show_batch, lambda row: row.id)

    async def get(self, request: Request) -> Response:
        """Show one batch."""
        allow(request)
        return json_response(show_batch(await self._found(request)))

    async def delete(self, request: Request) -> Response:
        """Erase a batch that is over, with its items; its runs stay."""
        allow(request)
        principal = caller(request, "runs:write")
        batch_id = request.path_params["batch_id"]
        await self._ports.store.write(BatchActs(self._ports, principal).delete(batch_id))
        self._ports.hub.ring(batch_bell(batch_id))
        return Response(status_code=204)

    async def results(self, request: Request) -> Response:
        """Show what became of the items, in their order: a JSON page, or all as NDJSON."""
        allow(request, "limit", "after", "done")
        row = await self._found(request)
        done = flag(request, "done", default=False)
        stretch = page(request, order="asc")
        if stretch.after is not None and not _PLACE.fullmatch(stretch.after):
            raise InvalidError(f"{stretch.after!r} is no cursor of this list", code="bad_cursor")
        if accepted(request, JSON, LINES) == LINES:
            if request.method == "HEAD":
                return headers_of_a_stream(LINES)
            return GradualResponse(self._result_lines(row, stretch, done), media_type=LINES)
        found = await self._ports.store.read(
            batches.results(row.tenant, row.id, stretch, done=done)
        )
        return listed(found, stretch, show_result, lambda result: str(result.place))

    async def events(self, request: Request) -> Response:
        """Stream how far the batch is, until it is over."""
        allow(request, "after")
        row = await self._found(request)
        media = accepted(request, EVENTS)
        seq = _parse_seq(left_at(request))
        if seq > row.seq:
            raise InvalidError(
                f"state {seq} has not come yet; the batch is at {row.seq}", code="cursor_ahead"
            )
        if request.method == "HEAD":
            return headers_of_a_stream(media)
        if seq == row.seq and not row.is_open:
            return Response(status_code=204)
        tail = BatchTail(self._ports.store, self._ports.hub, row, seq)
        return TailResponse(tail, self._streams).response

    async def cancel(self, request: Request) -> Response:
        """Let no other item begin, and stop those under way. What is over stays as it is."""
        allow(request)
        principal = caller(request, "runs:write")
        body, raw = await read_optional(request, BatchCancel)
        batch_id = request.path_params["batch_id"]
        wish = asked(request, raw, batch_id, self._ports.clock())
        cancelling = BatchActs(self._ports, principal).cancel(batch_id, body.reason)
        find = partial(batches.find, principal.tenant)
        made = await self._ports.store.write(once(wish, cancelling, find))
        self._ports.hub.ring(BATCHES_BELL)
        self._ports.hub.ring(batch_bell(batch_id))
        return json_response(show_batch(made.resource), headers=made.headers())

    async def _found(self, request: Request) -> BatchRow:
        principal = caller(request, "runs:read")
        batch_id = request.path_params["batch_id"]
        return await self._ports.store.read(batches.find(principal.tenant, batch_id))

    async def _result_lines(self, row: BatchRow, stretch: Page, done: bool) -> AsyncIterator[bytes]:
        """Yield all results behind the cursor, so many at a time as a page holds."""
        after: str | None = stretch.after
        while True:
            found = await self._ports.store.read(
                batches.results(row.tenant, row.id, Page(LIMIT_MAX, after, True), done=done)
            )
            shown = found[:LIMIT_MAX]
            yield b"".join(orjson.dumps(show_result(each)) + b"\n" for each in shown)
            if len(found) <= LIMIT_MAX:
                return
            after = str(shown[-1].place)


def _parse_seq(text: str | None) -> int:
    if not text:
        return 0
    if not _SEQ.fullmatch(text):
        raise InvalidError(
            f"{text[:100]!r} is no position in this stream; send the id of the last event that"
            " you got, such as 42",
            code="bad_cursor",
        )
    return int(text)
