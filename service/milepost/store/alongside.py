"""What is written beside a run's events: spans, usage, questions, and what it leaves behind."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import orjson
from sqlalchemy import Table, insert, select

from milepost.core.spans import Span
from milepost.store import lessons, outbox, schema, usage
from milepost.store.dialect import rows, rows_of
from milepost.store.records import Append, UsageRow
from milepost.store.work import Call, Statement


def _insert_of(table: Table, parameter: str, numbers: tuple[str, ...]) -> Statement:
    """Return an insert of a whole batch into `table`, whose other columns are text."""
    texts = [item.name for item in table.columns if item.name not in numbers]
    source = rows(parameter, *texts, numbers=numbers)
    names = [*texts, *numbers]
    return Statement(insert(table).from_select(names, select(*(source.c[name] for name in names))))


INSERT_SPANS = _insert_of(schema.spans, "spans", ("seq", "start_ms", "end_ms"))
INSERT_USAGE = _insert_of(schema.usage, "usage", ("seq", "time_ms", *usage.NUMBERS))
_INSERT_APPROVALS = _insert_of(
    schema.approvals,
    "approvals",
    (
        "required",
        "decided_ms",
        "created_ms",
        "expires_ms",
        "remind_ms",
        "escalated",
        "version",
        "changed_ms",
    ),
)
_INSERT_ARTIFACTS = _insert_of(schema.artifacts, "artifacts", ("size", "created_ms"))
_INSERT_SUMMARIES = _insert_of(
    schema.summaries,
    "summaries",
    ("from_turn", "from_index", "through_turn", "through_index", "created_ms", "reverted_ms"),
)


def calls(appends: Sequence[Append]) -> dict[str, Call]:
    """Return the statements by name; of what no run brings there is none."""
    found: dict[str, Call] = {}
    if spans := [span_row(item.tenant, each) for item in appends for each in item.spans]:
        found["spans"] = INSERT_SPANS(spans=rows_of(spans))
    if used := [
        usage_row(item.run_id, item.tenant, each) for item in appends for each in item.usage
    ]:
        found["usage"] = INSERT_USAGE(usage=rows_of(used))
    if approvals := [row for item in appends for row in _approval_rows(item)]:
        found["approvals"] = _INSERT_APPROVALS(approvals=rows_of(approvals))
    if left := [
        {**asdict(each), "run_id": item.run_id, "tenant": item.tenant}
        for item in appends
        for each in item.artifacts
    ]:
        found["artifacts"] = _INSERT_ARTIFACTS(artifacts=rows_of(left))
    if trimmed := [
        {**asdict(each), "run_id": item.run_id, "tenant": item.tenant}
        for item in appends
        for each in item.summaries
    ]:
        found["summaries"] = _INSERT_SUMMARIES(summaries=rows_of(trimmed))
    found |= lessons.calls(appends)
    if told := [
        row
        for item in appends
        for row in outbox.event_rows(item.tenant, item.run_id, item.head + 1, item.entries)
    ]:
        found["outbox"] = outbox.put(told)
    return found


def span_row(tenant: str, span: Span) -> dict[str, Any]:
    """Return the row for `INSERT_SPANS`."""
    row = {name: getattr(span, name) for name in span.__slots__}
    row["attributes"] = orjson.dumps(span.attributes).decode()
    row["tenant"] = tenant
    return row


def usage_row(run_id: str, tenant: str, used: UsageRow) -> dict[str, Any]:
    """Return the row for `INSERT_USAGE`."""
    return {
        "run_id": run_id,
        "tenant": tenant,
        "seq": used.seq,
        "session_id": used.session_id,
        "agent": used.agent,
        "model": used.model,
        "user_id": used.user,
        "metadata": used.metadata,
        "time_ms": used.time_ms,
        **{name: getattr(used.usage, name) for name in usage.NUMBERS},
    }


def _approval_rows(item: Append) -> Iterable[dict[str, Any]]:
    for asked in item.approvals:
        row, terms = asdict(asked), asked.terms
        row["user_id"] = row.pop("user")
        said = row["terms"]
        if speakers := row.pop("speakers"):
            said["speakers"] = speakers
        remind_ms = None
        if terms.remind_s is not None:
            remind_ms = asked.created_ms + round(terms.remind_s * 1000)
        yield {
            **row,
            "tenant": item.tenant,
            "status": "pending",
            "required": terms.required,
            "terms": orjson.dumps(said).decode(),
            "remind_ms": remind_ms,
            "escalated": 0,
            "version": 1,
            "changed_ms": asked.created_ms,
            "change": "requested",
        }
