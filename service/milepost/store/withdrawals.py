"""Withdrawals: questions taken back by whoever has no need of an answer any more."""

from dataclasses import dataclass

import orjson
from sqlalchemy import update

from milepost.store import runs, schema
from milepost.store.approval_rows import COLUMNS, FIND, IS_PENDING, ApprovalRow, only
from milepost.store.approvals import LOCK_RUN, Decided, expired, fell_away, require_open
from milepost.store.dialect import now_ms, number, text
from milepost.store.runs import Letter
from milepost.store.work import Statement, Work

_A = schema.approvals.c


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A question taken back by whoever has no need of an answer any more."""

    by: str
    reason: str | None = None
    name: str | None = None


_WITHDRAW = Statement(
    update(schema.approvals)
    .where(
        _A.id == text("approval_id"),
        _A.tenant == text("tenant"),
        IS_PENDING,
        _A.expires_ms > now_ms(),
    )
    .values(
        status="withdrawn",
        decided_by=text("decided_by"),
        comment=text("comment"),
        decided_ms=number("time_ms"),
        version=_A.version + 1,
        changed_ms=number("time_ms"),
        change="withdrawn",
    )
    .returning(*COLUMNS)
)


def withdraw(tenant: str, approval_id: str, withdrawal: Withdrawal, now_ms: int) -> Work[Decided]:
    """Take a question back, which means no, and tell the run; twice changes nothing."""
    named = {"tenant": tenant, "approval_id": approval_id}
    _, found = yield LOCK_RUN(**named), FIND(**named)
    row = only(found, approval_id)
    if (row.status, row.decided_by) == ("withdrawn", withdrawal.by):
        return Decided(row, repeated=True)
    require_open(row)
    taken = yield _WITHDRAW(
        **named, decided_by=withdrawal.by, comment=withdrawal.reason, time_ms=now_ms
    )
    if not taken:
        raise expired(row)
    said = {
        "approval_id": row.id,
        "call_id": row.call_id,
        "by": withdrawal.name or withdrawal.by,
        "reason": withdrawal.reason,
    }
    letter = Letter("approval_withdrawn", orjson.dumps(said).decode(), "approval", now_ms)
    status = yield from runs.deliver(tenant, row.run_id, letter)
    if status is None:
        raise fell_away(row)
    return Decided(ApprovalRow(*taken[0]), run_status=status)
