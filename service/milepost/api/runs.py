"""`/v1/runs`: start a run, follow it, steer it, look it up."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Annotated, Literal

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from milepost.api.access import Principal
from milepost.api.bodies import Body, read_body
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
from milepost.api.requests import idempotent, principal_of
from milepost.api.runs_shown import STATUSES, show_log_entry, show_run
from milepost.api.stream import (
    Cursor,
    Selection,
    Streams,
    Tail,
    TailResponse,
    parse_cursor,
)
from milepost.api.traces_shown import whole_trace
from milepost.core.codec import encode, usage_shown
from milepost.core.errors import ConflictError, InvalidError
from milepost.core.events import InputMessage, RunCancelled, RunQueued
from milepost.live.frames import Frame
from milepost.live.hub import QUEUE_BELL, inbox_bell
from milepost.runtime.agent_spec import Metadata
from milepost.runtime.ending import end_run
from milepost.runtime.journal import Ports
from milepost.store import agents, log, runs, usage
from milepost.store.records import Entry, LogEntry, NewRun, RunFilter
from milepost.store.runs import Letter, RunRow, StaleError
from milepost.telemetry.context import TraceContext, request_context
from milepost.telemetry.export import Exporter

WAIT_S_MAX = 120
DELAY_S_MAX = 366 * 86_400
CANCEL_GRACE_MS = 10_000
INPUT_MESSAGES_MAX = 1_000
CANCEL_TRIES = 5


class InputMessageBody(Body):
    """One message of the input."""

    role: Literal["user", "assistant", "system"]
    content: str


class RunCreate(Body):
    """What `POST /v1/runs` takes."""

    agent: Annotated[str, Field(min_length=1, max_length=128)]
    input: (
        Annotated[str, Field(min_length=1)]
        | Annotated[list[InputMessageBody], Field(min_length=1, max_length=INPUT_MESSAGES_MAX)]
    )
    session_id: Annotated[str, Field(max_length=64)] | None = None
    metadata: Metadata = Field(default_factory=dict)
    user: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    stream: bool = False
    on_disconnect: Literal["continue", "cancel"] = "continue"
    deadline_s: Annotated[float, Field(gt=0, le=DELAY_S_MAX)] | None = None
    delay_s: Annotated[float, Field(gt=0, le=DELAY_S_MAX)] | None = None
    priority: Annotated[int, Field(ge=-100, le=100)] = 0


class RunCancel(Body):
    """What `POST /v1/runs/{id}/cancel` takes."""

    reason: Annotated[str, Field(max_length=2_000)] | None = None


class Runs:
    """Runs, over a store and a hub."""

    def __init__(self, ports: Ports, streams: Streams, exporter: Exporter | None = None) -> None:
        self._ports = ports
        self._streams = streams
        self._exporter = exporter

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
        allow(request, "wait")
        principal = principal_of(request)
        principal.require("runs:write")
        body, raw = await read_body(request, RunCreate)
        wanted = await self._new_run(request, principal, body, raw)
        hub = self._ports.hub
        with ExitStack() as held:
            # Held from before the commit, so that a stream of the run needs no look at its log.
            tail = held.enter_context(hub.hold(wanted.id))
            created = await self._ports.store.create(wanted)
            if created.replayed:
                return await self._answer(request, principal, body, created)
            self._export(request, wanted)
            entry = wanted.queued
            tail.add([Frame(wanted.id, 1, entry.type, entry.time_ms, entry.data.encode())])
            if created.status == "queued":
                hub.ring(QUEUE_BELL)
            return await self._answer(request, principal, body, created, held)

    async def search(self, request: Request) -> Response:
        """List runs, the newest first."""
        allow(
            request, "limit", "after", "order", "status", "agent", "session_id", "user",
            "created_after", "created_before", "metadata",
        )  # fmt: skip
        principal = principal_of(request)
        principal.require("runs:read")
        wanted = RunFilter(
            status=choice(request, "status", STATUSES),
            agent=words(request, "agent"),
            session_id=words(request, "session_id"),
            user=words(request, "user"),
            created_after_ms=moment_ms(request, "created_after"),
            created_before_ms=moment_ms(request, "created_before"),
            metadata=metadata(request),
        )
        stretch = page(request)
        found = await self._ports.store.read(runs.search(principal.tenant, wanted, stretch))
        return listed(found, stretch, show_run, lambda row: row.id)

    async def get(self, request: Request) -> Response:
        """Show one run."""
        allow(request)
        return json_response(show_run(await self._found(request)))

    async def events(self, request: Request) -> Response:
        """Show the run's log: as a stream, a JSON page, or NDJSON, as `Accept` says."""
        allow(request, "after", "types", "deltas", "until", "limit")
        row = await self._found(request)
        text = request.headers.get("last-event-id") or request.query_params.get("after")
        cursor = parse_cursor(text)
        head = await self._ports.store.read(log.head(row.tenant, row.id))
        if cursor.seq > head:
            raise InvalidError(
                f"event {cursor.seq} is not written yet; the log ends at {head}",
                code="cursor_ahead",
            )
        match _media(request):
            case "application/json":
                return await self._log_page(request, row, cursor)
            case "application/x-ndjson":
                return StreamingResponse(
                    self._log_lines(row, cursor, head), media_type="application/x-ndjson"
                )
            case _:
                if row.ended_ms is not None and cursor.seq == head:
                    return Response(status_code=204)
                return self._stream(row.tenant, row.id, cursor, _selection(request)).response

    async def wait(self, request: Request) -> Response:
        """Show the run once it has ended, or as it is when the time is up."""
        allow(request, "timeout_s")
        timeout_s = integer(request, "timeout_s", 30, low=0, high=WAIT_S_MAX)
        row = await self._found(request)
        if row.ended_ms is None:
            await self._wait(row.tenant, row.id, timeout_s)
            row = await self._found(request)
        return json_response(show_run(row))

    async def cancel(self, request: Request) -> Response:
        """End a run, wherever it is. A run that is over stays as it is."""
        allow(request)
        principal = principal_of(request)
        principal.require("runs:write")
        body = RunCancel()
        if request.headers.get("content-length", "0") != "0" or _is_chunked(request):
            body, _ = await read_body(request, RunCancel)
        run_id = request.path_params["run_id"]
        await self._cancel(principal, run_id, body.reason)
        return json_response(show_run(await self._find(principal, run_id)))

    async def retry(self, request: Request) -> Response:
        """Send a run on that waits for an operator, since it had crashed its workers."""
        allow(request)
        principal = principal_of(request)
        principal.require("runs:write")
        row = await self._find(principal, request.path_params["run_id"])
        waits = orjson.loads(row.waiting_for or "{}").get("for")
        if row.status != "waiting" or waits != "operator":
            raise ConflictError(
                f"run {row.id} is {row.status}; only a run that waits for an operator is retried",
                code="not_waiting_for_operator",
            )
        await self._deliver(principal, row.id, "retry", {"by": principal.name}, "retry")
        return json_response(show_run(await self._find(principal, row.id)))

    async def trace(self, request: Request) -> Response:
        """Show the run's trace, as `/v1/traces/{run_id}` does."""
        allow(request)
        principal = principal_of(request)
        principal.require("runs:read")
        trace = whole_trace(principal.tenant, request.path_params["run_id"])
        return json_response(await self._ports.store.read(trace))

    async def usage(self, request: Request) -> Response:
        """Show what the run has used so far."""
        allow(request)
        row = await self._found(request)
        total = await self._ports.store.read(usage.total(row.tenant, row.id))
        return json_response({"run_id": row.id, **usage_shown(total)})

    async def _found(self, request: Request) -> RunRow:
        principal = principal_of(request)
        principal.require("runs:read")
        return await self._find(principal, request.path_params["run_id"])

    async def _find(self, principal: Principal, run_id: str) -> RunRow:
        return await self._ports.store.read(runs.find(principal.tenant, run_id))

    async def _new_run(
        self, request: Request, principal: Principal, body: RunCreate, raw: bytes
    ) -> NewRun:
        user = principal.acting_as(body.user)
        agent = await self._ports.store.read(agents.find(principal.tenant, body.agent))
        now = self._ports.clock()
        scheduled_ms = None if body.delay_s is None else now + round(body.delay_s * 1000)
        deadline_ms = None if body.deadline_s is None else now + round(body.deadline_s * 1000)
        session_id = body.session_id or self._ports.new_id("ses")
        queued = RunQueued(
            agent=agent.name,
            agent_id=agent.id,
            agent_version=agent.version,
            session_id=session_id,
            input=_input(body),
            reason="ready" if scheduled_ms is None else "scheduled",
            user=user,
            deadline_ms=deadline_ms,
        )
        run_id = self._ports.new_id("run")
        return NewRun(
            id=run_id,
            tenant=principal.tenant,
            session_id=session_id,
            session_is_new=body.session_id is None,
            agent_id=agent.id,
            agent=agent.name,
            agent_version=agent.version,
            user=user,
            metadata=orjson.dumps(body.metadata).decode(),
            lane=body.priority,
            created_ms=now,
            scheduled_ms=scheduled_ms,
            deadline_ms=deadline_ms,
            trace_parent=self._trace_parent(request, run_id),
            queued=Entry(queued.type, now, encode(queued).decode()),
            request=idempotent(request, raw),
        )

    def _trace_parent(self, request: Request, run_id: str) -> str | None:
        """Return what the run's spans hang on: this request's own span, where one is exported."""
        caller = TraceContext.parse(request.headers.get("traceparent"))
        if self._exporter is not None:
            return request_context(run_id, caller).header()
        return caller.header() if caller else None

    def _export(self, request: Request, wanted: NewRun) -> None:
        """Export this request's span: it ends when the run is durable, whoever streams on."""
        if self._exporter is None:
            return
        caller = TraceContext.parse(request.headers.get("traceparent"))
        place = request_context(wanted.id, caller)
        now = self._ports.clock()
        self._exporter.export_server("POST /v1/runs", place, wanted.created_ms, now, 202)

    async def _answer(
        self,
        request: Request,
        principal: Principal,
        body: RunCreate,
        created: runs.Created,
        held: ExitStack | None = None,
    ) -> Response:
        run_id = created.run_id
        headers = {"Location": f"/v1/runs/{run_id}"}
        if created.replayed:
            headers["Idempotency-Replayed"] = "true"
        if body.stream or "text/event-stream" in request.headers.get("accept", ""):
            answer = self._stream(principal.tenant, run_id, Cursor(), Selection(), headers)
            if held is not None:
                answer.release = held.pop_all().close
            if body.on_disconnect == "cancel":
                answer.on_gone = lambda: self._cancel(principal, run_id, "its client left")
            return answer.response
        wait_s = _wait_s(request)
        if wait_s:
            await self._wait(principal.tenant, run_id, wait_s)
        row = await self._find(principal, run_id)
        status = 200 if wait_s and row.ended_ms is not None else 202
        return json_response(show_run(row), status, headers)

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

    async def _wait(self, tenant: str, run_id: str, timeout_s: float) -> None:
        tail = Tail(
            self._ports.store, self._ports.hub, tenant, run_id, Cursor(), Selection(deltas=False)
        )
        try:
            async with asyncio.timeout(timeout_s):
                async for _ in tail.pieces():
                    pass
        except TimeoutError:
            return

    async def _cancel(self, principal: Principal, run_id: str, reason: str | None) -> None:
        """Ask the worker that holds the run; where none does, end it here by compare-and-set."""
        for _ in range(CANCEL_TRIES):
            row = await self._find(principal, run_id)
            if row.ended_ms is not None:
                return
            if row.status == "running":
                said = {"by": principal.name, "reason": reason}
                await self._deliver(principal, run_id, "cancel", said, "cancel")
                return
            try:
                await end_run(
                    self._ports,
                    row,
                    lambda used: RunCancelled(principal.name, reason, (), used),
                )
            except StaleError:
                continue
            return
        raise StaleError(f"run {run_id} changes too fast to be cancelled; try again")

    async def _deliver(
        self, principal: Principal, run_id: str, kind: str, said: dict[str, str | None], why: str
    ) -> None:
        grace_ms = CANCEL_GRACE_MS if kind == "cancel" else None
        letter = Letter(kind, orjson.dumps(said).decode(), why, self._ports.clock(), grace_ms)
        status = await self._ports.store.write(runs.deliver(principal.tenant, run_id, letter))
        if status == "queued":
            self._ports.hub.ring(QUEUE_BELL)
        self._ports.hub.ring(inbox_bell(run_id))

    async def _log_page(self, request: Request, row: RunRow, cursor: Cursor) -> Response:
        limit = integer(request, "limit", 100, low=1, high=log.READ_MAX)
        selection = _selection(request)
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

    async def _log_lines(self, row: RunRow, cursor: Cursor, head: int) -> AsyncIterator[bytes]:
        """Yield the log up to its present end, a page at a time."""
        after = cursor.seq
        while after < head:
            entries: list[LogEntry] = await self._ports.store.read(
                log.read(row.tenant, row.id, after=after, through=head)
            )
            yield b"".join(_line(row.id, entry) for entry in entries)
            after = entries[-1].seq


def _is_chunked(request: Request) -> bool:
    """Say whether a body comes whose length nobody has told."""
    return "transfer-encoding" in request.headers


def _input(body: RunCreate) -> tuple[InputMessage, ...]:
    if isinstance(body.input, str):
        return (InputMessage("user", body.input),)
    return tuple(InputMessage(turn.role, turn.content) for turn in body.input)


def _line(run_id: str, entry: LogEntry) -> bytes:
    return Frame(run_id, entry.seq, entry.type, entry.time_ms, entry.data.encode()).body + b"\n"


def _media(request: Request) -> str:
    """Return which of the three forms `Accept` asks for; anything that takes all is streamed."""
    accepted = request.headers.get("accept", "*/*")
    offers = [part.partition(";")[0].strip().lower() for part in accepted.split(",")]
    for offer in offers:
        if offer in {"application/json", "application/x-ndjson"}:
            return offer
        if offer in {"text/event-stream", "text/*", "*/*", ""}:
            return "text/event-stream"
    raise InvalidError(
        f"events come as text/event-stream, application/json or application/x-ndjson, not"
        f" {accepted!r}",
        code="not_acceptable",
    )


def _selection(request: Request) -> Selection:
    types = words(request, "types")
    return Selection(
        types=tuple(part.strip() for part in types.split(",")) if types else (),
        deltas=flag(request, "deltas", default=True),
        until_waiting=choice(request, "until", ("waiting",)) == "waiting",
    )


def _wait_s(request: Request) -> int:
    """Return for how long the client wants to wait: `Prefer: wait=30` (RFC 7240) or `?wait=30`."""
    prefer = re.search(r"(?:^|[,;\s])wait=([0-9]{1,6})\b", request.headers.get("prefer", ""))
    if prefer:
        return min(int(prefer[1]), WAIT_S_MAX)
    return integer(request, "wait", 0, low=0, high=WAIT_S_MAX)
