"""Traces: the spans of runs, and runs by what their spans say."""

from dataclasses import dataclass, field

import orjson
from sqlalchemy import ColumnElement, and_, case, exists, func, or_, select

from milepost.core.spans import Span
from milepost.core.usage import Usage
from milepost.store import runs, schema, usage
from milepost.store.dialect import json_text, text, word, words
from milepost.store.listing import Query, paged
from milepost.store.records import LogEntry, Page, RunFilter
from milepost.store.runs import RunRow
from milepost.store.work import Row, Statement, Work

_S = schema.spans.c
_E = schema.events.c
_R = schema.runs.c
_U = schema.usage.c


@dataclass(frozen=True, slots=True)
class TraceFilter:
    """Which runs' traces a search is after; None means any.

    `tool` ran in the run, and `model` was called in it. A run has errors if it failed or a span of
    it did; `error` is a part of such an error's text, in any case of letters. A duration has a run
    that is over.
    """

    runs: RunFilter = field(default_factory=RunFilter)
    tool: str | None = None
    model: str | None = None
    duration_min_ms: int | None = None
    cost_min_nanos: int | None = None
    errors_only: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TraceRow:
    """A run and the sums of its trace; `start_ms` is when its first span began."""

    run: RunRow
    start_ms: int
    spans: int
    tool_calls: int
    errors: int
    usage: Usage

    @property
    def duration_ms(self) -> int | None:
        """Say how long the run took, if it is over."""
        return None if self.run.ended_ms is None else self.run.ended_ms - self.start_ms


_COLUMNS = (
    _S.run_id, _S.seq, _S.trace_id, _S.span_id, _S.parent_id, _S.kind, _S.name, _S.start_ms,
    _S.end_ms, _S.status, _S.error, _S.model, _S.tool, _S.attributes,
)  # fmt: skip
_SPANS = Statement(
    select(*_COLUMNS)
    .where(_S.tenant == text("tenant"), _S.run_id == text("run_id"))
    .order_by(_S.start_ms, _S.seq)
)


# What was said in the run's messages, and where: of which step, and of which span.
_SAID = (
    "step.started", "message.started", "message.completed", "reasoning.completed",
    "tool_call.requested",
)  # fmt: skip
_WORDS = Statement(
    select(_E.seq, _E.type, _E.time_ms, _E.data)
    .where(_E.run_id == text("run_id"), _E.tenant == text("tenant"), _E.type.in_(words(_SAID)))
    .order_by(_E.seq)
)


def said(tenant: str, run_id: str) -> Work[list[LogEntry]]:
    """Return those events of the run's log that tell what its model said."""
    found = yield _WORDS(tenant=tenant, run_id=run_id)
    return [LogEntry(*row) for row in found]


def spans(tenant: str, run_id: str) -> Work[list[Span]]:
    """Return the run's spans that have ended, in the order in which they began."""
    found = yield _SPANS(tenant=tenant, run_id=run_id)
    return [_span(row) for row in found]


def _span(row: Row) -> Span:
    attributes = orjson.loads(row[13])
    return Span(
        run_id=row[0],
        seq=row[1],
        trace_id=row[2],
        span_id=row[3],
        parent_id=row[4],
        kind=row[5],
        name=row[6],
        start_ms=row[7],
        end_ms=row[8],
        status=row[9],
        error=row[10],
        model=row[11],
        tool=row[12],
        attributes={
            name: tuple(value) if isinstance(value, list) else value
            for name, value in attributes.items()
        },
    )


def search(tenant: str, wanted: TraceFilter, page: Page) -> Work[list[TraceRow]]:
    """Return the runs that match with what their traces add up to, one more if there are more."""
    chosen = paged(_matching(tenant, wanted), _R.id, page).cte("chosen")
    ids = select(chosen.c.id)
    traced = (
        select(
            _S.run_id,
            func.min(_S.start_ms).label("start_ms"),
            func.count().label("spans"),
            usage.total_of(case((_S.kind == word("execute_tool"), 1), else_=0)).label("tool_calls"),
            usage.total_of(case((_S.status == word("error"), 1), else_=0)).label("errors"),
        )
        .where(_S.tenant == tenant, _S.run_id.in_(ids))
        .group_by(_S.run_id)
        .subquery("traced")
    )
    used = (
        select(_U.run_id, *(total.label(name) for name, total in usage.TOTALS.items()))
        .where(_U.tenant == tenant, _U.run_id.in_(ids), usage.IN_LOG)
        .group_by(_U.run_id)
        .subquery("used")
    )
    query = (
        select(
            *chosen.c,
            func.coalesce(traced.c.start_ms, chosen.c.created_ms),
            *(func.coalesce(traced.c[name], 0) for name in ("spans", "tool_calls", "errors")),
            *(func.coalesce(used.c[name], 0) for name in usage.TOTALS),
        )
        .select_from(
            chosen.outerjoin(traced, traced.c.run_id == chosen.c.id).outerjoin(
                used, used.c.run_id == chosen.c.id
            )
        )
        .order_by(chosen.c.id if page.ascending else chosen.c.id.desc())
    )
    found = yield Statement(query)()
    return [_trace(row) for row in found]


def _trace(row: Row) -> TraceRow:
    width = len(runs.COLUMNS)
    start_ms, count, tool_calls, errors, *used = row[width:]
    return TraceRow(RunRow(*row[:width]), start_ms, count, tool_calls, errors, Usage(*used))


def _matching(tenant: str, wanted: TraceFilter) -> Query:
    query = runs.matching(tenant, wanted.runs)
    if wanted.tool is not None:
        ran = _S.kind == word("execute_tool")
        query = query.where(_has_span(_S.tenant == tenant, _S.tool == wanted.tool, ran))
    if wanted.model is not None:
        query = query.where(_has_span(_S.tenant == tenant, _S.model == wanted.model))
    if wanted.duration_min_ms is not None:
        query = query.where(_R.ended_ms - _start_ms() >= wanted.duration_min_ms)
    if wanted.cost_min_nanos is not None:
        cost = select(usage.TOTALS["cost_nanos"]).where(
            _U.run_id == _R.id, _U.tenant == tenant, usage.IN_LOG
        )
        query = query.where(cost.scalar_subquery() >= wanted.cost_min_nanos)
    if wanted.errors_only:
        failed = _has_span(_S.tenant == tenant, _S.status == word("error"))
        query = query.where(or_(_R.status == word("failed"), failed))
    if wanted.error is not None:
        said = _has_span(_S.tenant == tenant, _S.error.icontains(wanted.error, autoescape=True))
        outcome = json_text(_R.outcome, "error")
        query = query.where(or_(outcome.icontains(wanted.error, autoescape=True), said))
    return query


def _has_span(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    return exists().where(and_(_S.run_id == _R.id, *conditions))


def _start_ms() -> ColumnElement[int]:
    first = select(func.min(_S.start_ms)).where(_S.run_id == _R.id).scalar_subquery()
    return func.coalesce(first, _R.created_ms)
