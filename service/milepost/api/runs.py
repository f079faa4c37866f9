"""`/v1/runs`: start a run, follow it, steer it, look it up."""

from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Annotated

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.accepting import EVENTS, JSON, LINES, accepted, asks_for, headers_of_a_stream
from milepost.api.access import Principal
from milepost.api.bodies import Body, read_body, read_optional
from milepost.api.cursors import Cursor, left_at, parse_cursor
from milepost.api.event_types import wanted_types
from milepost.api.gradual import GradualResponse
from milepost.api.log_pages import LogPages
from milepost.api.new_runs import MadeRun, NewRuns, RunCreate
from milepost.api.paging import (
    allow,
    choice,
    flag,
    integer,
    json_response,
    listed,
    metadata,
    moment_ms,
    page,
    words,
)
from milepost.api.partials import is_structured
from milepost.api.replays import Made, asked, once
from milepost.api.requests import caller
from milepost.api.runs_shown import STATUSES, show_log_entry, show_run
from milepost.api.stream import Selection, Streams, Tail, TailResponse
from milepost.api.tool_usage_shown import show_tool_group
from milepost.api.traces import spans_wanted
from milepost.api.traces_shown import whole_trace
from milepost.api.waiting import WAIT_S_MAX, attend_run, wait_s
from milepost.core.codec import usage_shown
from milepost.core.errors import ConflictError, InvalidError
from milepost.live.frames import Frame
from milepost.live.hub import QUEUE_BELL, inbox_bell
from milepost.runtime.cancelling import Cancellation, cancel_run
from milepost.runtime.journal import Ports
from milepost.store import log, runs, tool_usage, usage
from milepost.store.records import RunFilter
from milepost.store.runs import Letter, RunRow
from milepost.store.usage import UsageFilter
from milepost.store.work import Work
from milepost.telemetry.export import Exporter


class RunCancel(Body):
    """What `POST /v1/runs/{id}/cancel` takes."""

    reason: Annotated[str, Field(max_length=2_000)] | None = None


class RunRetry(Body):
    """What `POST /v1/runs/{id}/retry` takes: nothing so far."""


class Runs:
    """Runs, over a store and a hub."""

    def __init__(self, ports: Ports, streams: Streams, exporter: Exporter | None = None) -> None:
        self._ports = ports
        self._streams = streams
        self._new_runs = NewRuns(ports, exporter)

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/runs", self.create, methods=["POST"]),
            Route("/v1/runs", self.search, methods=["GET"]),
            Route("/v1/runs/{run_id}", self.get, methods=["GET"]),
            Route("/v1/runs/{run_id}/events", self.events, methods=["GET"]),
            Route("/v1/runs/{run_id}/wait", self.wait, methods=["GET"]),
            Route("/v1/runs/{run_id}/cancel", self.cancel, methods=["POST"]),
            Route("/v1/runs/{run_id}/retry", self.retry, methods=["POST"]),
            Route("/v1/runs/{run_id}/trace", self.trace, methods=["GET"]),
            Route("/v1/runs/{run_id}/usage", self.usage, methods=["GET"]),
        ]

    async def create(self, request: Request) -> Response:
        """Queue a run. The same request may wait for its end, or stream it."""
        allow(request, "wait", "partials")
        # What does not fit is refused before anything is queued.
        flag(request, "partials", default=False)
        wait_s(request)
        principal = caller(request, "runs:write")
        body, raw = await read_body(request, RunCreate)
        run_id, hub = self._ports.new_id("run"), self._ports.hub
        with ExitStack() as held:
            # Held from before the commit, so that a stream of the run needs no look at its log.
            tail = held.enter_context(hub.hold(run_id))
            made = await self._new_runs.create(request, body, raw, run_id)
            if made.wanted is None:
                await self._find(principal, made.run_id)  # It may have been erased since.
                return await self._answer(request, principal, body, made)
            entry = made.wanted.queued
            tail.add([Frame(run_id, 1, entry.type, entry.time_ms, entry.data.encode())])
            if made.status == "queued":
                hub.ring(QUEUE_BELL)
            answering = self._answer(request, principal, body, made, held)
            return await self._new_runs.answered(request, made, "POST /v1/runs", answering)

    async def search(self, request: Request) -> Response:
        """List runs, the newest first."""
        allow(
            request, "limit", "after", "order", "status", "agent", "session_id", "user",
            "created_after", "created_before", "metadata", "parent_run_id", "forked_from",
            "made_by",
        )  # fmt: skip
        principal = caller(request, "runs:read")
        wanted = RunFilter(
            parent_run_id=words(request, "parent_run_id"),
            forked_from=words(request, "forked_from"),
            status=choice(request, "status", STATUSES),
            agent=words(request, "agent"),
            session_id=words(request, "session_id"),
            user=words(request, "user"),
            made_by=words(request, "made_by"),
            created_after_ms=moment_ms(request, "created_after"),
            created_before_ms=moment_ms(request, "created_before"),
            metadata=metadata(request),
        )
        stretch = page(request, of="run")
        found = await self._ports.store.read(runs.search(principal.tenant, wanted, stretch))
        return listed(found, stretch, show_run, lambda row: row.id)

    async def get(self, request: Request) -> Response:
        """Show one run."""
        allow(request)
        return json_response(show_run(await self._found(request)))

    async def events(self, request: Request) -> Response:
        """Show the run's log: as a stream, a JSON page, or NDJSON, as `Accept` says."""
        allow(request, "after", "types", "deltas", "partials", "until", "limit")
        # What does not fit is refused in every form, also in one that it says nothing of.
        limit = integer(request, "limit", 100, low=1, high=log.READ_MAX)
        wanted = _selection(request)
        row = await self._found(request)
        cursor = parse_cursor(left_at(request))
        head = await self._ports.store.read(log.head(row.tenant, row.id))
        if cursor.seq > head > 0:  # Behind no place in a log that is gone comes anything.
            raise InvalidError(
                f"event {cursor.seq} is not written yet; the log ends at {head}",
                code="cursor_ahead",
            )
        media = accepted(request, EVENTS, JSON, LINES)
        if media == JSON:
            return await self._log_page(row, cursor, wanted, limit)
        if request.method == "HEAD":
            return headers_of_a_stream(media)
        if media == LINES:
            lines = self._log_lines(row, cursor, head, wanted)
            return GradualResponse(lines, media_type=LINES)
        if row.ended_ms is not None and cursor.seq >= head:
            return Response(status_code=204)
        selection = await self._selected(wanted, row)
        return self._stream(row.tenant, row.id, cursor, selection).response

    async def wait(self, request: Request) -> Response:
        """Show the run once it has ended, or as it is when the time is up."""
        allow(request, "timeout_s")
        timeout_s = integer(request, "timeout_s", 30, low=0, high=WAIT_S_MAX)
        row = await self._found(request)
        if row.ended_ms is None and request.method != "HEAD":
            await attend_run(request, self._ports, row.id, timeout_s)
            row = await self._found(request)
        return json_response(show_run(row))

    async def cancel(self, request: Request) -> Response:
        """End a run, wherever it is. A run that is over stays as it is."""
        allow(request)
        principal = caller(request, "runs:write")
        body, raw = await read_optional(request, RunCancel)
        run_id = request.path_params["run_id"]
        wish = asked(request, raw, run_id, self._ports.clock())
        wanted = Cancellation(principal.tenant, run_id, principal.name, body.reason, wish)
        replayed = await cancel_run(self._ports, wanted)
        made = Made(await self._find(principal, run_id), replayed)
        return json_response(show_run(made.resource), headers=made.headers())

    async def retry(self, request: Request) -> Response:
        """Send a run on that waits for an operator, since it had crashed its workers."""
        allow(request)
        principal = caller(request, "runs:write")
        _, raw = await read_optional(request, RunRetry)
        run_id, now = request.path_params["run_id"], self._ports.clock()
        letter = Letter("retry", orjson.dumps({"by": principal.name}).decode(), "retry", now)
        find = partial(runs.find, principal.tenant)
        made = await self._ports.store.write(
            once(asked(request, raw, run_id, now), _sent_on(find(run_id), letter), find)
        )
        if not made.replayed:
            self._ports.hub.ring(QUEUE_BELL)
            self._ports.hub.ring(inbox_bell(run_id))
        return json_response(show_run(made.resource), headers=made.headers())

    async def trace(self, request: Request) -> Response:
        """Show the run's trace, as `/v1/traces/{run_id}` does."""
        allow(request, "type", "status")
        principal = caller(request, "runs:read")
        wanted = spans_wanted(request)
        trace = whole_trace(principal.tenant, request.path_params["run_id"], wanted)
        return json_response(await self._ports.store.read(trace))

    async def usage(self, request: Request) -> Response:
        """Show what the run has used so far, and what became of its tool calls."""
        allow(request)
        row = await self._found(request)
        read = self._ports.store.read
        total = await read(usage.total(row.tenant, row.id))
        by_tool = tool_usage.grouped(row.tenant, ["tool"], UsageFilter(run_id=row.id))
        tools = [{"tool": group.key[0], **show_tool_group(group)} for group in await read(by_tool)]
        return json_response({"run_id": row.id, **usage_shown(total), "tools": tools})

    async def _found(self, request: Request) -> RunRow:
        return await self._find(caller(request, "runs:read"), request.path_params["run_id"])

    async def _find(self, principal: Principal, run_id: str) -> RunRow:
        return await self._ports.store.read(runs.find(principal.tenant, run_id))

    async def _answer(
        self,
        request: Request,
        principal: Principal,
        body: RunCreate,
        made: MadeRun,
        held: ExitStack | None = None,
    ) -> Response:
        run_id = made.run_id
        headers = {"Location": f"/v1/runs/{run_id}"}
        if made.steered:
            headers["Milepost-Steered"] = ", ".join(made.steered)
        if made.replayed:
            headers["Idempotency-Replayed"] = "true"
        if body.stream or asks_for(request, EVENTS, instead_of=JSON):
            selection = Selection()
            if flag(request, "partials", default=False):
                row = await self._find(principal, run_id)
                selection = await self._selected(_selection(request), row)
            answer = self._stream(principal.tenant, run_id, Cursor(), selection, headers)
            if held is not None:
                answer.release = held.pop_all().close
            if body.on_disconnect == "cancel" and not made.steered:
                left = Cancellation(principal.tenant, run_id, principal.name, "its client left")
                answer.on_gone = partial(cancel_run, self._ports, left)
            return answer.response
        waits_s = wait_s(request)
        if waits_s:
            await attend_run(request, self._ports, run_id, waits_s)
        elif made.wanted is not None and made.status in {"queued", "scheduled"}:
            return json_response(show_run(runs.new_row(made.wanted, made.status)), 202, headers)
        row = await self._find(principal, run_id)
        status = 200 if waits_s and row.ended_ms is not None else 202
        return json_response(show_run(row), status, headers)

    async def _selected(self, selection: Selection, row: RunRow) -> Selection:
        """Return what of the stream is wanted; only a structured answer has partial values."""
        if selection.partials and not await self._ports.store.read(is_structured(row)):
            return replace(selection, partials=False)
        return selection

    def _stream(
        self,
        tenant: str,
        run_id: str,
        cursor: Cursor,
        selection: Selection,
        headers: dict[str, str] | None = None,
    ) -> TailResponse:
        tail = Tail(self._ports.store, self._ports.hub, tenant, run_id, cursor, selection)
        return TailResponse(tail, self._streams, headers)

    async def _log_page(
        self, row: RunRow, cursor: Cursor, selection: Selection, limit: int
    ) -> Response:
        found = await self._ports.store.read(
            log.read(row.tenant, row.id, after=cursor.seq, limit=limit + 1)
        )
        shown = found[:limit]
        more = len(found) > limit
        body = {
            "data": [show_log_entry(row.id, each) for each in shown if selection.has(each.type)],
            "has_more": more,
            "next_cursor": str(shown[-1].seq) if more else None,
        }
        return json_response(body)

    async def _log_lines(
        self, row: RunRow, cursor: Cursor, head: int, selection: Selection
    ) -> AsyncIterator[bytes]:
        """Yield the log up to its present end, a page at a time, or as long as it is there."""
        pages = LogPages(self._ports.store, row.tenant, row.id)
        after = cursor.seq
        while after < head:
            found = await pages.behind(after, through=head)
            if not found.frames:
                return
            wanted = (frame for frame in found.frames if selection.has(frame.type))
            yield b"".join(frame.body + b"\n" for frame in wanted)
            after = found.frames[-1].seq


def _sent_on(find: Work[RunRow], letter: Letter) -> Work[RunRow]:
    """Send a run on that waits for an operator; return it as it is then."""
    row = yield from find
    waits = orjson.loads(row.waiting_for or "{}").get("for")
    if row.status != "waiting" or waits != "operator":
        raise ConflictError(
            f"run {row.id} is {row.status}; only a run that waits for an operator is retried",
            code="not_waiting_for_operator",
        )
    yield from runs.deliver(row.tenant, row.id, letter)
    return (yield from runs.find(row.tenant, row.id))


def _selection(request: Request) -> Selection:
    return Selection(
        types=wanted_types(request),
        deltas=flag(request, "deltas", default=True),
        partials=flag(request, "partials", default=False),
        until_waiting=choice(request, "until", ("waiting",)) == "waiting",
    )
