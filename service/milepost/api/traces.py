"""`/v1/traces`: what runs did, how long it took and what it cost."""

from typing import get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

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
from milepost.api.requests import caller
from milepost.api.runs_shown import STATUSES
from milepost.api.traces_shown import SpanFilter, show_trace, whole_trace
from milepost.core.errors import InvalidError
from milepost.core.spans import SpanKind, SpanStatus
from milepost.core.usage import NANOS_PER_MICRO
from milepost.runtime.journal import Ports
from milepost.store import runs, traces
from milepost.store.records import RunFilter
from milepost.store.traces import TraceFilter
from milepost.telemetry.otlp_json import otlp_json

BOUND_MAX = 10**15
KINDS = get_args(SpanKind)


class Traces:
    """Traces, over a store. `service_name` is who an exported trace says it is from."""

    def __init__(self, ports: Ports, service_name: str) -> None:
        self._ports = ports
        self._service_name = service_name

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/traces", self.search, methods=["GET"]),
            Route("/v1/traces/{run_id}", self.get, methods=["GET"]),
        ]

    async def search(self, request: Request) -> Response:
        """List runs with what their traces add up to, the newest first."""
        allow(
            request, "limit", "after", "order", "status", "agent", "session_id", "user", "tool",
            "model", "min_duration_ms", "min_cost_usd_micros", "errors", "error", "created_after",
            "created_before", "metadata",
        )  # fmt: skip
        principal = caller(request, "runs:read")
        stretch = page(request, of="run")
        found = await self._ports.store.read(
            traces.search(principal.tenant, _wanted(request), stretch)
        )
        return listed(found, stretch, show_trace, lambda row: row.run.id)

    async def get(self, request: Request) -> Response:
        """Show a run's trace, as JSON or as the OTLP document that a collector takes."""
        allow(request, "format", "type", "status")
        principal = caller(request, "runs:read")
        run_id = request.path_params["run_id"]
        store, wanted = self._ports.store, spans_wanted(request)
        if choice(request, "format", ("json", "otlp")) == "otlp":
            await store.read(runs.find(principal.tenant, run_id))
            spans = await store.read(traces.spans(principal.tenant, run_id))
            chosen = [span for span in spans if wanted.has(span)]
            return json_response(otlp_json(chosen, service_name=self._service_name))
        return json_response(await store.read(whole_trace(principal.tenant, run_id, wanted)))


def spans_wanted(request: Request) -> SpanFilter:
    """Return which spans of a trace the query asks for."""
    text = words(request, "type") or ""
    kinds = tuple(part.strip() for part in text.split(",") if part.strip())
    for kind in kinds:
        if kind not in KINDS:
            raise InvalidError(
                f"there is no type of step {kind!r}; there are: {', '.join(KINDS)}",
                code="bad_query",
            )
    return SpanFilter(kinds, choice(request, "status", get_args(SpanStatus)))


def _wanted(request: Request) -> TraceFilter:
    cost_micros = integer(request, "min_cost_usd_micros", None, low=0, high=BOUND_MAX)
    return TraceFilter(
        runs=RunFilter(
            status=choice(request, "status", STATUSES),
            agent=words(request, "agent"),
            session_id=words(request, "session_id"),
            user=words(request, "user"),
            created_after_ms=moment_ms(request, "created_after"),
            created_before_ms=moment_ms(request, "created_before"),
            metadata=metadata(request),
        ),
        tool=words(request, "tool"),
        model=words(request, "model"),
        duration_min_ms=integer(request, "min_duration_ms", None, low=0, high=BOUND_MAX),
        cost_min_nanos=None if cost_micros is None else cost_micros * NANOS_PER_MICRO,
        errors_only=flag(request, "errors", default=False),
        error=words(request, "error"),
    )
