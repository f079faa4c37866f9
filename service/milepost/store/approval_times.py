"""What time makes of approvals that nobody has answered: reminders, other people, and a no.

The database's clock says what is due, as it does for decisions: never both.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from sqlalchemy import ColumnElement, null, select, update

from milepost.core.webhooks import REMINDER_TYPE
from milepost.store import outbox, runs, schema, votes
from milepost.store.approval_rows import COLUMNS, IS_PENDING, ApprovalRow
from milepost.store.dialect import now_ms, number, rows, rows_of
from milepost.store.runs import Letter
from milepost.store.work import Row, Statement, Work

_A = schema.approvals.c
_R = schema.runs.c


def _locking(due: ColumnElement[bool], first: ColumnElement[int]) -> Statement:
    """Lock the runs of what is due, and only them: their lock is the one that comes first."""
    return Statement(
        select(_A.id, _A.tenant, _A.terms, _A.escalated, _A.expires_ms - _A.created_ms)
        .select_from(schema.approvals.join(schema.runs, _R.id == _A.run_id))
        .where(IS_PENDING, due)
        .order_by(first)
        .limit(number("limit"))
        .with_for_update(skip_locked=True, of=schema.runs)
    )


_is_late = _A.expires_ms <= now_ms()
_LOCK_LATE = _locking(_is_late, _A.expires_ms)
_LOCK_UNREMINDED = _locking(_A.remind_ms <= now_ms(), _A.remind_ms)
_late = rows("late", "id", "tenant")
_EXPIRE = Statement(
    update(schema.approvals)
    .where(_A.id == _late.c.id, _A.tenant == _late.c.tenant, IS_PENDING, _is_late)
    .values(
        status="expired",
        decided_ms=number("time_ms"),
        version=_A.version + 1,
        changed_ms=number("time_ms"),
        change="expired",
    )
    .returning(*COLUMNS)
)
_passed_on = rows("passed_on", "id", "tenant", "terms", numbers=("ttl_ms", "remind_after_ms"))
_ESCALATE = Statement(
    update(schema.approvals)
    .where(
        _A.id == _passed_on.c.id,
        _A.tenant == _passed_on.c.tenant,
        IS_PENDING,
        _is_late,
        _A.escalated == 0,
    )
    .values(
        terms=_passed_on.c.terms,
        escalated=1,
        expires_ms=now_ms() + _passed_on.c.ttl_ms,
        remind_ms=now_ms() + _passed_on.c.remind_after_ms,
        version=_A.version + 1,
        changed_ms=number("time_ms"),
        change="escalated",
    )
    .returning(*COLUMNS)
)
_unreminded = rows("unreminded", "id", "tenant")
_REMIND = Statement(
    update(schema.approvals)
    .where(
        _A.id == _unreminded.c.id,
        _A.tenant == _unreminded.c.tenant,
        IS_PENDING,
        _A.remind_ms <= now_ms(),
        _A.expires_ms > now_ms(),
    )
    .values(
        remind_ms=null(),
        version=_A.version + 1,
        changed_ms=number("time_ms"),
        change="reminded",
    )
    .returning(*COLUMNS)
)


def expire_due(time_ms: int, limit: int) -> Work[list[tuple[str, str]]]:
    """Do with what nobody answered in time as its terms say; return the tenants and runs told.

    Whoever is asked in the place of others has as long as they had, and is the last.
    """
    due = yield _LOCK_LATE(limit=limit)
    onward = [_passing_on(row) for row in due if _goes_on(row)]
    ending = [{"id": row[0], "tenant": row[1]} for row in due if not _goes_on(row)]
    told: list[ApprovalRow] = []
    if onward:
        escalated = [
            ApprovalRow(*row)
            for row in (yield _ESCALATE(passed_on=rows_of(onward), time_ms=time_ms))
        ]
        yield votes.void_many((row.tenant, row.id) for row in escalated)
        for row in escalated:
            yield from _tell_escalated(row, time_ms)
        told += escalated
    if ending:
        expired = yield _EXPIRE(late=rows_of(ending), time_ms=time_ms)
        for row in [ApprovalRow(*row) for row in expired]:
            yield from _tell_expired(row, time_ms)
            told.append(row)
    return _runs_of(told)


def _goes_on(due: Row) -> bool:
    """Say whether others are to be asked: once, and only if there are any."""
    _, _, terms, escalated, _ = due
    said = orjson.loads(terms)
    return said.get("on_timeout") == "escalate" and not escalated and bool(said["escalate_to"])


def _passing_on(due: Row) -> dict[str, Any]:
    approval_id, tenant, terms, _, had_ms = due
    said = orjson.loads(terms)
    said["approvers"] = said["escalate_to"]
    ttl_s, remind_s = said.get("ttl_s"), said.get("remind_s")
    return {
        "id": approval_id,
        "tenant": tenant,
        "terms": orjson.dumps(said).decode(),
        "ttl_ms": had_ms if ttl_s is None else round(ttl_s * 1000),
        "remind_after_ms": None if remind_s is None else round(remind_s * 1000),
    }


def _tell_escalated(row: ApprovalRow, time_ms: int) -> Work[None]:
    said = {
        "approval_id": row.id,
        "call_id": row.call_id,
        "approvers": row.terms_shown()["approvers"],
        "expires_at_ms": row.expires_ms,
    }
    yield from _deliver(row, "approval_escalated", said, time_ms)


def _tell_expired(row: ApprovalRow, time_ms: int) -> Work[None]:
    """With `fail` the run ends; a question that went on to others ends as a no."""
    fails = row.terms_shown().get("on_timeout") == "fail"
    said = {
        "approval_id": row.id,
        "call_id": row.call_id,
        "then": "fail" if fails else "deny",
    }
    yield from _deliver(row, "approval_expired", said, time_ms)


def _deliver(row: ApprovalRow, kind: str, said: dict[str, Any], time_ms: int) -> Work[None]:
    letter = Letter(kind, orjson.dumps(said).decode(), "approval", time_ms)
    yield from runs.deliver(row.tenant, row.run_id, letter)


def _runs_of(told: Iterable[ApprovalRow]) -> list[tuple[str, str]]:
    return sorted({(row.tenant, row.run_id) for row in told})


def remind_due(time_ms: int, limit: int) -> Work[Sequence[ApprovalRow]]:
    """Remind of what waits for long, once; return what that was."""
    due = yield _LOCK_UNREMINDED(limit=limit)
    if not due:
        return []
    batch = rows_of({"id": row[0], "tenant": row[1]} for row in due)
    reminded = yield _REMIND(unreminded=batch, time_ms=time_ms)
    shown = [ApprovalRow(*row) for row in reminded]
    for row in shown:
        said = orjson.dumps({"approval_id": row.id, "call_id": row.call_id}).decode()
        yield from outbox.add(row.tenant, REMINDER_TYPE, row.run_id, None, said, time_ms)
    return shown
