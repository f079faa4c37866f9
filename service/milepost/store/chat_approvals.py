"""Approvals as the user of a chat meets them: those of the run that the conversation waits for."""

from sqlalchemy import case, select, update

from milepost.store import schema
from milepost.store.approvals import ApprovalRow
from milepost.store.dialect import now_ms, number, text, word, words
from milepost.store.work import Statement, Work

WAITING_MAX = 100

_A = schema.approvals.c
_R = schema.runs.c
_S = schema.sessions.c
_children = schema.runs.alias("children").c

_under_way = (
    select(_R.id)
    .where(
        _R.session_id == text("session_id"),
        _R.tenant == text("tenant"),
        _R.status.in_(words(schema.ACTIVE)),
    )
    .cte("under_way", recursive=True)
)
# What it has started asks for it: its user sees one conversation.
_family = _under_way.union(
    select(_children.id).where(
        _children.parent_run_id == _under_way.c.id, _children.tenant == text("tenant")
    )
)
_is_waiting = (
    (_A.tenant == text("tenant")) & (_A.status == word("pending")) & (_A.expires_ms > now_ms())
)
_COLUMNS = tuple(_A)
_WAITING = Statement(
    select(*_COLUMNS)
    .select_from(schema.approvals.join(_family, _family.c.id == _A.run_id))
    .where(_is_waiting, _A.kind == word("call"))
    .order_by(_A.id)
    .limit(WAITING_MAX)
)
# A session's lock comes before its runs': who goes on makes a run in it behind this.
_LOCK_SESSION = Statement(
    select(_S.id).where(_S.id == text("session_id"), _S.tenant == text("tenant")).with_for_update()
)
_LOCK_RUN = Statement(
    select(_R.id)
    .where(
        _R.session_id == text("session_id"),
        _R.tenant == text("tenant"),
        _R.status.in_(words(schema.ACTIVE)),
    )
    .with_for_update()
)
_SUPERSEDE = Statement(
    update(schema.approvals)
    .where(_A.id == text("approval_id"), _is_waiting)
    .values(
        status="superseded",
        change="superseded",
        decided_by=text("decided_by"),
        decided_ms=number("time_ms"),
        changed_ms=number("time_ms"),
        version=_A.version + 1,
    )
    .returning(_A.id)
)
_TIGHTEN = Statement(
    update(schema.approvals)
    .where(_A.id == text("approval_id"), _is_waiting)
    .values(
        expires_ms=case(
            (_A.expires_ms > now_ms() + number("ttl_ms"), now_ms() + number("ttl_ms")),
            else_=_A.expires_ms,
        ),
        change="tightened",
        changed_ms=number("time_ms"),
        version=_A.version + 1,
    )
    .returning(*_COLUMNS)
)


def waiting_in(tenant: str, session_id: str) -> Work[list[ApprovalRow]]:
    """Return what the session's run asks people for, and the runs that it has started; by age."""
    found = yield _WAITING(tenant=tenant, session_id=session_id)
    return [ApprovalRow(*row) for row in found]


def run_of(tenant: str, session_id: str) -> Work[str | None]:
    """Return the run that the conversation waits for; None if there is none.

    Its lock is held, and its session's before that.
    """
    named = {"tenant": tenant, "session_id": session_id}
    _, held = yield _LOCK_SESSION(**named), _LOCK_RUN(**named)
    return str(held[0][0]) if held else None


def supersede(row: ApprovalRow, session_id: str, by: str, time_ms: int) -> Work[str | None]:
    """Take a question back since its user went on; return the run to stop, None if it is late."""
    held = yield from run_of(row.tenant, session_id)
    taken = yield _SUPERSEDE(tenant=row.tenant, approval_id=row.id, decided_by=by, time_ms=time_ms)
    return held if taken else None


def tighten(row: ApprovalRow, ttl_ms: int, time_ms: int) -> Work[ApprovalRow | None]:
    """Leave a question no more time than this, and never more than it has; None if it is over."""
    found = yield _TIGHTEN(tenant=row.tenant, approval_id=row.id, ttl_ms=ttl_ms, time_ms=time_ms)
    return ApprovalRow(*found[0]) if found else None
