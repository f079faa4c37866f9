"""What became of a tenant's latest calls of its tools: read from spans and logs, within bounds."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select

from milepost.store import schema
from milepost.store.dialect import json_text, text, word
from milepost.store.work import Statement, Work

CALLS_MAX = 200
RUNS_MAX = 200

_CALL_ID = "gen_ai.tool.call.id"
_S = schema.spans.c
_R = schema.runs.c


@dataclass(frozen=True, slots=True)
class CallRow:
    """One attempt at a call that ran; `result_chars` is None where it brought no result."""

    failed: bool
    took_ms: int
    result_chars: int | None


_latest = (
    select(_S.run_id, _S.seq, _S.status, _S.start_ms, _S.end_ms, _S.attributes)
    .where(_S.tenant == text("tenant"), _S.tool == text("tool"), _S.kind == word("execute_tool"))
    .order_by(_S.run_id.desc(), _S.seq.desc())
    .limit(CALLS_MAX)
    .cte("latest")
)
_done = schema.events.alias("done")
_CALLS = Statement(
    select(
        _latest.c.status,
        _latest.c.end_ms - _latest.c.start_ms,
        func.length(json_text(_done.c.data, word("result"))),
    ).select_from(
        _latest.outerjoin(
            _done,
            (_done.c.run_id == _latest.c.run_id)
            & (_done.c.seq > _latest.c.seq)
            & (_done.c.type == word("tool_call.completed"))
            & (
                json_text(_done.c.data, word("call_id"))
                == json_text(_latest.c.attributes, word(_CALL_ID))
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
_denied = schema.events.alias("denied")
_asked = schema.events.alias("asked")
_name = json_text(_asked.c.data, word("name"))
_DENIALS = Statement(
    select(_name, func.count())
    .select_from(
        _recent.join(
            _denied,
            (_denied.c.run_id == _recent.c.id) & (_denied.c.type == word("tool_call.denied")),
        ).join(
            _asked,
            (_asked.c.run_id == _denied.c.run_id)
            & (_asked.c.seq < _denied.c.seq)
            & (_asked.c.type == word("tool_call.requested"))
            & (
                json_text(_asked.c.data, word("call_id"))
                == json_text(_denied.c.data, word("call_id"))
            ),
        )
    )
    .group_by(_name)
)


def calls(tenant: str, tool: str) -> Work[Sequence[CallRow]]:
    """Return the latest `CALLS_MAX` attempts at calls of the tool."""
    found = yield _CALLS(tenant=tenant, tool=tool)
    return [CallRow(status == "error", took_ms, chars) for status, took_ms, chars in found]


def denials(tenant: str) -> Work[dict[str, int]]:
    """Return how many calls of each tool were denied in the tenant's latest `RUNS_MAX` runs."""
    return dict((yield _DENIALS(tenant=tenant)))
