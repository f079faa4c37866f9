"""Approvals: questions to people, and the one answer that each of them gets.

Whatever changes an approval holds the lock of its run first, as everywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import orjson
from sqlalchemy import delete, func, insert, select, update

from milepost.core.errors import ConflictError, InvalidError, NotFoundError
from milepost.store import runs, schema
from milepost.store.dialect import now_ms, number, rows, rows_of, text, word
from milepost.store.listing import Query, paged, where_equal
from milepost.store.records import Page
from milepost.store.runs import Letter
from milepost.store.work import Row, Rows, Statement, Work

_A = schema.approvals.c
_V = schema.votes.c
_R = schema.runs.c


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """A question and what became of it; `arguments` is encoded JSON.

    `status` is pending, approved, denied, expired, withdrawn or superseded.
    """

    id: str
    tenant: str
    run_id: str
    session_id: str
    agent: str
    user: str | None
    call_id: str
    tool: str
    arguments: str
    digest: str
    preview: str
    reason: str
    status: str
    required: int
    decided_by: str | None
    decision: str | None
    comment: str | None
    decided_ms: int | None
    created_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class ApprovalFilter:
    """Which approvals a search is after; None means any."""

    status: str | None = None
    agent: str | None = None
    tool: str | None = None
    session_id: str | None = None
    user: str | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """The call as its approver wants it; `arguments` is encoded JSON."""

    arguments: str
    digest: str
    preview: str


@dataclass(frozen=True, slots=True)
class Decision:
    """One principal's answer. `digest` is that of the call it saw, if it says so.

    `by` is who counts: nobody votes twice. `name` is what the run's log calls them.
    """

    decision: Literal["approve", "deny"]
    by: str
    comment: str | None = None
    digest: str | None = None
    edit: Edit | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """What a decision made of its approval; still pending where more votes are required.

    `run_status` is that of the run which has been told, None where nothing was to be told.
    `repeated` says that this principal had answered the same before.
    """

    approval: ApprovalRow
    run_status: str | None = None
    repeated: bool = False


class DecidedError(ConflictError):
    """Somebody else was faster; `winner` is the approval with their answer."""

    code = "approval_decided"

    def __init__(self, winner: ApprovalRow) -> None:
        super().__init__(f"approval {winner.id} was {winner.status} by {winner.decided_by}")
        self.winner = winner


_COLUMNS = tuple(_A)
_FIND = Statement(
    select(*_COLUMNS).where(_A.id == text("approval_id"), _A.tenant == text("tenant"))
)
_LOCK_RUN = Statement(
    select(_R.id)
    .where(
        _R.tenant == text("tenant"),
        _R.id
        == select(_A.run_id)
        .where(_A.id == text("approval_id"), _A.tenant == text("tenant"))
        .scalar_subquery(),
    )
    .with_for_update()
)
_VOTES = Statement(
    select(_V.voter, _V.decision, _V.digest).where(
        _V.approval_id == text("approval_id"), _V.tenant == text("tenant")
    )
)
_VOID = Statement(
    delete(schema.votes).where(_V.approval_id == text("approval_id"), _V.tenant == text("tenant"))
)
_WITHDRAW_VOTE = Statement(
    delete(schema.votes).where(
        _V.approval_id == text("approval_id"),
        _V.tenant == text("tenant"),
        _V.voter == text("voter"),
    )
)
_VOTE = Statement(
    insert(schema.votes).values(
        approval_id=text("approval_id"),
        voter=text("voter"),
        tenant=text("tenant"),
        decision=text("decision"),
        digest=text("digest"),
        comment=text("comment"),
        created_ms=number("time_ms"),
    )
)
_DECIDE = Statement(
    update(schema.approvals)
    .where(
        _A.id == text("approval_id"),
        _A.tenant == text("tenant"),
        _A.status == word("pending"),
        _A.digest == text("seen"),
        _A.expires_ms > now_ms(),
    )
    .values(
        status=text("status"),
        decided_by=text("decided_by"),
        decision=text("decision"),
        comment=text("comment"),
        decided_ms=number("decided_ms"),
        arguments=func.coalesce(text("arguments"), _A.arguments),
        digest=func.coalesce(text("digest"), _A.digest),
        preview=func.coalesce(text("preview"), _A.preview),
    )
    .returning(*_COLUMNS)
)
# Locks the runs and only them: their lock is the one that comes first.
_LOCK_DUE = Statement(
    select(_A.id, _A.tenant)
    .select_from(schema.approvals.join(schema.runs, _R.id == _A.run_id))
    .where(_A.status == word("pending"), _A.expires_ms <= now_ms())
    .order_by(_A.expires_ms)
    .limit(number("limit"))
    .with_for_update(skip_locked=True, of=schema.runs)
)
_due = rows("due", "id", "tenant")
_EXPIRE = Statement(
    update(schema.approvals)
    .where(
        _A.id == _due.c.id,
        _A.tenant == _due.c.tenant,
        _A.status == word("pending"),
        _A.expires_ms <= now_ms(),
    )
    .values(status="expired", decided_ms=number("time_ms"))
    .returning(_A.tenant, _A.run_id, _A.id, _A.call_id)
)


def find(tenant: str, approval_id: str) -> Work[ApprovalRow]:
    """Return the approval; raise `NotFoundError` if the tenant has none such."""
    found = yield _FIND(tenant=tenant, approval_id=approval_id)
    return _only(found, approval_id)


def _only(found: Rows, approval_id: str) -> ApprovalRow:
    if not found:
        raise NotFoundError(f"there is no approval {approval_id}", code="approval_not_found")
    return ApprovalRow(*found[0])


def search(tenant: str, wanted: ApprovalFilter, page: Page) -> Work[list[ApprovalRow]]:
    """Return the tenant's approvals that match, one more than the page holds if there are more."""
    query: Query = select(*_COLUMNS).where(_A.tenant == tenant)
    query = where_equal(
        query,
        {
            _A.status: wanted.status,
            _A.agent: wanted.agent,
            _A.tool: wanted.tool,
            _A.session_id: wanted.session_id,
            _A.user_id: wanted.user,
            _A.run_id: wanted.run_id,
        },
    )
    found = yield Statement(paged(query, _A.id, page))()
    return [ApprovalRow(*row) for row in found]


def decide(tenant: str, approval_id: str, decision: Decision, now_ms: int) -> Work[Decided]:
    """Count an answer, and tell the run if that settles the question.

    Raises `DecidedError` with the winning answer, or a `ConflictError` that says what else came
    before this one.
    """
    named = {"tenant": tenant, "approval_id": approval_id}
    _, found, cast = yield _LOCK_RUN(**named), _FIND(**named), _VOTES(**named)
    row = _only(found, approval_id)
    votes = {voter: (answer, digest) for voter, answer, digest in cast}
    if votes.get(decision.by) == (decision.decision, _digest_meant(row, decision)):
        return Decided(row, repeated=True)
    _require_open(row)
    _require_same_call(row, decision)
    yield from _vote(row, decision, now_ms)
    decided = yield from _settle(row, decision, _status_after(row, decision, votes), now_ms)
    if decided.status == "pending":
        return Decided(decided)
    status = yield from runs.deliver(
        tenant, row.run_id, Letter("approval", _letter(decided, decision), "approval", now_ms)
    )
    if status is None:
        raise _withdrawn(row)
    return Decided(decided, run_status=status)


def _digest_meant(row: ApprovalRow, decision: Decision) -> str:
    if decision.edit:
        return decision.edit.digest
    return decision.digest or row.digest


def _require_open(row: ApprovalRow) -> None:
    match row.status:
        case "pending":
            return
        case "approved" | "denied":
            raise DecidedError(row)
        case "expired":
            raise _expired(row)
        case _:
            raise _withdrawn(row)


def _expired(row: ApprovalRow) -> ConflictError:
    return ConflictError(
        f"approval {row.id} expired before it was decided, which means no", code="approval_expired"
    )


def _withdrawn(row: ApprovalRow) -> ConflictError:
    return ConflictError(
        f"approval {row.id} fell away: its run {row.run_id} is over", code="approval_withdrawn"
    )


def _require_same_call(row: ApprovalRow, decision: Decision) -> None:
    if decision.digest is None and row.required > 1:
        raise InvalidError(
            f"approval {row.id} needs {row.required} votes for one call; send its digest along",
            code="digest_required",
            pointer="/digest",
        )
    if decision.digest not in {None, row.digest}:
        raise ConflictError(
            f"approval {row.id} is now about another call, with digest {row.digest};"
            " look at it again",
            code="digest_mismatch",
        )


def _vote(row: ApprovalRow, decision: Decision, now_ms: int) -> Work[None]:
    """Write the vote down in the place of an earlier one; an edit voids everybody's."""
    if decision.edit:
        void = _VOID(tenant=row.tenant, approval_id=row.id)
    else:
        void = _WITHDRAW_VOTE(tenant=row.tenant, approval_id=row.id, voter=decision.by)
    yield (
        void,
        _VOTE(
            approval_id=row.id,
            voter=decision.by,
            tenant=row.tenant,
            decision=decision.decision,
            digest=_digest_meant(row, decision),
            comment=decision.comment,
            time_ms=now_ms,
        ),
    )


def _status_after(
    row: ApprovalRow, decision: Decision, votes: Mapping[str, tuple[str, str]]
) -> str:
    """Return what the vote makes of the question: one no is no, a yes may need others."""
    if decision.decision == "deny":
        return "denied"
    others = {
        voter
        for voter, vote in votes.items()
        if vote == ("approve", row.digest) and not decision.edit
    }
    return "approved" if len(others | {decision.by}) >= row.required else "pending"


def _settle(row: ApprovalRow, decision: Decision, status: str, now_ms: int) -> Work[ApprovalRow]:
    """Change the approval if it is still pending, in time, and about the same call."""
    open_still = status == "pending"
    edit = decision.edit
    found = yield _DECIDE(
        tenant=row.tenant,
        approval_id=row.id,
        seen=row.digest,
        status=status,
        decided_by=None if open_still else decision.by,
        decision=None if open_still else decision.decision,
        comment=None if open_still else decision.comment,
        decided_ms=None if open_still else now_ms,
        arguments=edit.arguments if edit else None,
        digest=edit.digest if edit else None,
        preview=edit.preview if edit else None,
    )
    if not found:
        _require_open((yield from find(row.tenant, row.id)))
        raise _expired(row)
    return ApprovalRow(*found[0])


def _letter(row: ApprovalRow, decision: Decision) -> str:
    """Return what the run is told; arguments and digest only where the call was edited."""
    edit = decision.edit
    said = {
        "approval_id": row.id,
        "call_id": row.call_id,
        "decision": decision.decision,
        "by": decision.name or decision.by,
        "comment": decision.comment,
        "arguments": orjson.Fragment(edit.arguments) if edit else None,
        "digest": edit.digest if edit else None,
    }
    return orjson.dumps(said).decode()


def expire_due(now_ms: int, limit: int) -> Work[list[tuple[str, str]]]:
    """Expire what nobody answered in time; return the tenants and runs that were told.

    The database's clock says what is due, as it does for decisions: never both.
    """
    due = yield _LOCK_DUE(limit=limit)
    if not due:
        return []
    batch = rows_of({"id": approval_id, "tenant": tenant} for approval_id, tenant in due)
    expired = yield _EXPIRE(due=batch, time_ms=now_ms)
    for row in expired:
        yield from _tell_expired(row, now_ms)
    return sorted({(tenant, run_id) for tenant, run_id, *_ in expired})


def _tell_expired(expired: Row, now_ms: int) -> Work[None]:
    tenant, run_id, approval_id, call_id = expired
    said = orjson.dumps({"approval_id": approval_id, "call_id": call_id}).decode()
    yield from runs.deliver(tenant, run_id, Letter("approval_expired", said, "approval", now_ms))
