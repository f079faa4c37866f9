"""What became of a tenant's latest calls of its tools: read from spans and logs, within bounds."""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson
from sqlalchemy import func, select

from milepost.core.spans import CACHE_HIT, CALL_ID, CHUNKS, COERCED, ERROR_TYPE, PARAMETERS
from milepost.store import schema
from milepost.store.dialect import json_text, text, word
from milepost.store.work import Row, Statement, Work

CALLS_MAX = 200
RUNS_MAX = 200

_S = schema.spans.c
_R = schema.runs.c


@dataclass(frozen=True, slots=True)
class CallRow:
    """One attempt at a call that ran; `result_chars` is None where it brought no result.

    `code` is that of its error, and `parameters` are the names of those that it was given.
    """

    status: str
    took_ms: int
    result_chars: int | None
    code: str | None = None
    coerced: bool = False
    cached: bool = False
    chunks: int = 0
    parameters: tuple[str, ...] = ()


_latest = (
    select(_S.run_id, _S.seq, _S.status, _S.start_ms, _S.end_ms, _S.attributes)
    .where(_S.tenant == text("tenant"), _S.tool == text("tool"), _S.kind == word("execute_tool"))
    .order_by(_S.run_id.desc(), _S.seq.desc())
    .limit(CALLS_MAX)
    .cte("latest")
    # Postgres would plan it with a view to the log's partitions, which cost more than all of it.
    .prefix_with("MATERIALIZED", dialect="postgresql")
)
_done = schema.events.alias("done")
_CALLS = Statement(
    select(
        _latest.c.status,
        _latest.c.end_ms - _latest.c.start_ms,
        func.length(json_text(_done.c.data, word("result"))),
        _latest.c.attributes,
    ).select_from(
        _latest.outerjoin(
            _done,
            (_done.c.run_id == _latest.c.run_id)
            & (_done.c.seq > _latest.c.seq)
            & (_done.c.type == word("tool_call.completed"))
            & (
                json_text(_done.c.data, word("call_id"))
                == json_text(_latest.c.attributes, word(CALL_ID))
            ),
        )
    )
)

_recent = (
    select(_R.id)
    .where(_R.tenant == text("tenant"))
    .order_by(_R.id.desc())
    .limit(RUNS_MAX)
    .cte("recent")
)
_DENIALS = Statement(
    select(_S.tool, func.count())
    .select_from(
        _recent.join(schema.spans, (_S.run_id == _recent.c.id) & (_S.kind == word("denial")))
    )
    .group_by(_S.tool)
)


def calls(tenant: str, tool: str) -> Work[Sequence[CallRow]]:
    """Return the latest `CALLS_MAX` attempts at calls of the tool."""
    found = yield _CALLS(tenant=tenant, tool=tool)
    return [_call(row) for row in found]


def _call(row: Row) -> CallRow:
    status, took_ms, chars, attributes = row
    told = orjson.loads(attributes)
    return CallRow(
        status,
        took_ms,
        chars,
        code=told.get(ERROR_TYPE),
        coerced=COERCED in told,
        cached=CACHE_HIT in told,
        chunks=told.get(CHUNKS, 0),
        parameters=tuple(told.get(PARAMETERS, ())),
    )


def denials(tenant: str) -> Work[dict[str, int]]:
    """Return how many calls of each tool were denied in the tenant's latest `RUNS_MAX` runs."""
    return dict((yield _DENIALS(tenant=tenant)))
