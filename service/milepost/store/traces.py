"""Traces: the spans of runs."""

from typing import Any

import orjson
from sqlalchemy import select

from milepost.core.spans import Span
from milepost.store import schema
from milepost.store.dialect import text
from milepost.store.work import Statement, Work

_S = schema.spans.c
_COLUMNS = (
    _S.run_id, _S.seq, _S.trace_id, _S.span_id, _S.parent_id, _S.kind, _S.name, _S.start_ms,
    _S.end_ms, _S.status, _S.error, _S.model, _S.tool, _S.attributes,
)  # fmt: skip
_SPANS = Statement(
    select(*_COLUMNS)
    .where(_S.tenant == text("tenant"), _S.run_id == text("run_id"))
    .order_by(_S.start_ms, _S.seq)
)


def spans(tenant: str, run_id: str) -> Work[list[Span]]:
    """Return the run's spans that have ended, in the order in which they began."""
    found = yield _SPANS(tenant=tenant, run_id=run_id)
    return [Span(*row[:-1], orjson.loads(row[-1])) for row in found]


def show(span: Span) -> dict[str, Any]:
    """Return a span as clients read it."""
    return {name: getattr(span, name) for name in span.__slots__}
