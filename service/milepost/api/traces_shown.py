"""Traces as clients read them: what a run adds up to, and its spans."""

from typing import Any

import orjson

from milepost.api.runs_shown import shown_status
from milepost.core.codec import usage_shown
from milepost.core.spans import Span
from milepost.live.frames import rfc3339
from milepost.store import runs, traces, usage
from milepost.store.runs import RunRow
from milepost.store.traces import TraceRow
from milepost.store.work import Work
from milepost.telemetry.context import TraceContext, trace_id_of


def show_trace(row: TraceRow) -> dict[str, Any]:
    """Return what a list shows of a trace."""
    run = row.run
    outcome = orjson.loads(run.outcome) if run.outcome else {}
    return {
        "run_id": run.id,
        "trace_id": _trace_id(run),
        "status": shown_status(run.status),
        "agent": run.agent,
        "agent_id": run.agent_id,
        "agent_version": run.agent_version,
        "session_id": run.session_id,
        "user": run.user,
        "created_at": rfc3339(run.created_ms),
        "started_at": rfc3339(row.start_ms),
        "ended_at": None if run.ended_ms is None else rfc3339(run.ended_ms),
        "duration_ms": row.duration_ms,
        "span_count": row.spans,
        "tool_calls": row.tool_calls,
        "errors": row.errors,
        "error": outcome.get("error"),
        "usage": usage_shown(row.usage),
        "metadata": orjson.loads(run.metadata),
    }


def show_span(span: Span) -> dict[str, Any]:
    """Return one span."""
    return {
        "span_id": span.span_id,
        "parent_id": span.parent_id,
        "trace_id": span.trace_id,
        "seq": span.seq,
        "kind": span.kind,
        "name": span.name,
        "started_at": rfc3339(span.start_ms),
        "ended_at": rfc3339(span.end_ms),
        "duration_ms": span.end_ms - span.start_ms,
        "status": span.status,
        "error": span.error,
        "model": span.model,
        "tool": span.tool,
        "attributes": span.attributes,
    }


def whole_trace(tenant: str, run_id: str) -> Work[dict[str, Any]]:
    """Return a run's trace with all of its spans that have ended."""
    run = yield from runs.find(tenant, run_id)
    spans = yield from traces.spans(tenant, run_id)
    used = yield from usage.total(tenant, run_id)
    row = TraceRow(
        run=run,
        start_ms=min((span.start_ms for span in spans), default=run.created_ms),
        spans=len(spans),
        tool_calls=sum(span.kind == "execute_tool" for span in spans),
        errors=sum(span.status == "error" for span in spans),
        usage=used,
    )
    return {**show_trace(row), "spans": [show_span(span) for span in spans]}


def _trace_id(run: RunRow) -> str:
    caller = TraceContext.parse(run.trace_parent)
    return caller.trace_id if caller else trace_id_of(run.id)
