"""Traces as clients read them: what a run adds up to, and its spans."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from milepost.api.runs_shown import shown_status
from milepost.core.codec import decode, usage_shown
from milepost.core.events import MessageStarted
from milepost.core.reasoning import thoughts
from milepost.core.spans import Span
from milepost.live.frames import rfc3339, rfc3339_or_none
from milepost.store import runs, traces, usage
from milepost.store.records import LogEntry
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
        "parent_run_id": run.parent_run_id,
        "user": run.user,
        "created_at": rfc3339(run.created_ms),
        "started_at": rfc3339(row.start_ms),
        "ended_at": rfc3339_or_none(run.ended_ms),
        "duration_ms": row.duration_ms,
        "span_count": row.spans,
        "tool_calls": row.tool_calls,
        "errors": row.errors,
        "error": outcome.get("error"),
        "usage": usage_shown(row.usage),
        "metadata": orjson.loads(run.metadata),
    }


@dataclass(frozen=True, slots=True)
class SpanFilter:
    """Which spans of a trace are shown; nothing means any."""

    kinds: tuple[str, ...] = ()
    status: str | None = None

    def has(self, span: Span) -> bool:
        """Say whether the span is wanted."""
        is_kind = not self.kinds or span.kind in self.kinds
        return is_kind and self.status in {None, span.status}


def whole_trace(tenant: str, run_id: str, wanted: SpanFilter) -> Work[dict[str, Any]]:
    """Return a run's trace with those of its spans that have ended and are wanted.

    What the spans add up to is that of them all.
    """
    run = yield from runs.find(tenant, run_id)
    spans = yield from traces.spans(tenant, run_id)
    used = yield from usage.total(tenant, run_id)
    reasoning = _Reasoning((yield from traces.said(tenant, run_id)))
    row = TraceRow(
        run=run,
        start_ms=min((span.start_ms for span in spans), default=run.created_ms),
        spans=len(spans),
        tool_calls=sum(span.kind == "execute_tool" for span in spans),
        errors=sum(span.status == "error" for span in spans),
        usage=used,
    )
    return {
        **show_trace(row),
        "total_duration_ms": _total_ms(spans),
        "reasoning": reasoning.last,
        "reasoning_history": reasoning.history,
        "spans": [
            show_span(span, row.start_ms, reasoning.beside(span))
            for span in spans
            if wanted.has(span)
        ],
    }


def show_span(span: Span, trace_start_ms: int, reasoning: str | None) -> dict[str, Any]:
    """Return one span of a trace that began then, with what its model said of its reasons."""
    return {
        "span_id": span.span_id,
        "parent_id": span.parent_id,
        "trace_id": span.trace_id,
        "seq": span.seq,
        "kind": span.kind,
        "name": span.name,
        "started_at": rfc3339(span.start_ms),
        "ended_at": rfc3339(span.end_ms),
        "offset_ms": span.start_ms - trace_start_ms,
        "duration_ms": span.end_ms - span.start_ms,
        "status": span.status,
        "error": span.error,
        "model": span.model,
        "tool": span.tool,
        "reasoning": reasoning,
        "attributes": span.attributes,
    }


class _Reasoning:
    """What a run's model said of its reasons, as clients read it."""

    def __init__(self, said: Sequence[LogEntry]) -> None:
        events = [(entry.seq, decode(entry.type, entry.data)) for entry in said]
        known = thoughts(event for _, event in events if event)
        self.history = [
            {
                "step": one.step,
                "message_id": one.message_id,
                "text": one.text or None,
                "thinking": one.thinking or None,
                "tools": one.tools,
            }
            for one in known
        ]
        self.last = known[-1].reasoning if known else None
        by_message = {thought.message_id: thought.reasoning for thought in known}
        self._by_seq: Mapping[int, str | None] = {
            seq: by_message.get(event.message_id)
            for seq, event in events
            if isinstance(event, MessageStarted)
        }

    def beside(self, span: Span) -> str | None:
        """Return what was said in the span, if that is a message."""
        return self._by_seq.get(span.seq)


def _total_ms(spans: Sequence[Span]) -> int:
    """Return how long all steps took, one after the other: an agent's stretch is made of them."""
    return sum(span.end_ms - span.start_ms for span in spans if span.kind != "invoke_agent")


def _trace_id(run: RunRow) -> str:
    caller = TraceContext.parse(run.trace_parent)
    return caller.trace_id if caller else trace_id_of(run.id)
