"""Votes on approvals: one for each person, in the place of their earlier one."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import delete, insert, select

from milepost.store import keys, schema
from milepost.store.dialect import among, number, rows, rows_of, rows_of_ids, text
from milepost.store.work import Call, Statement, Work

_V = schema.votes.c
_named = (_V.approval_id == text("approval_id"), _V.tenant == text("tenant"))


@dataclass(frozen=True, slots=True)
class VoteRow:
    """One person's vote. `actor` is the key that gave it, `digest` that of the call it is about.

    `stands` says that this key has not been revoked since.
    """

    approval_id: str
    voter: str
    actor: str
    decision: str
    digest: str
    comment: str | None
    created_ms: int
    stands: bool = True


_COLUMNS = (
    _V.approval_id, _V.voter, _V.actor, _V.decision, _V.digest, _V.comment, _V.created_ms,
    keys.revoked_ms_of(_V.actor, _V.tenant).is_(None),
)  # fmt: skip
_OF = Statement(select(*_COLUMNS).where(*_named).order_by(_V.created_ms, _V.voter))
_shown = rows("shown", "id")
_OF_MANY = Statement(
    select(*_COLUMNS)
    .where(
        among(_V.approval_id, select(_shown.c.id).scalar_subquery()), _V.tenant == text("tenant")
    )
    .order_by(_V.created_ms, _V.voter)
)
_VOID = Statement(delete(schema.votes).where(*_named))
_voided = rows("voided", "id", "tenant")
_VOID_MANY = Statement(
    delete(schema.votes).where(
        among(_V.approval_id, select(_voided.c.id).scalar_subquery()),
        _V.tenant.in_(select(_voided.c.tenant)),
    )
)
_TAKE_BACK = Statement(delete(schema.votes).where(*_named, _V.voter == text("voter")))
_CAST = Statement(
    insert(schema.votes).values(
        approval_id=text("approval_id"),
        voter=text("voter"),
        tenant=text("tenant"),
        actor=text("actor"),
        decision=text("decision"),
        digest=text("digest"),
        comment=text("comment"),
        created_ms=number("time_ms"),
    )
)


def of(tenant: str, approval_id: str) -> Call:
    """Return the statement for an approval's votes, the oldest first."""
    return _OF(tenant=tenant, approval_id=approval_id)


def of_many(tenant: str, approval_ids: Iterable[str]) -> Work[list[VoteRow]]:
    """Return the votes on these approvals of a tenant, the oldest first."""
    shown = rows_of_ids(approval_ids)
    return [VoteRow(*row) for row in (yield _OF_MANY(tenant=tenant, shown=shown))]


def void_many(approvals: Iterable[tuple[str, str]]) -> Call:
    """Return the statement that voids all votes on approvals, named by tenant and id."""
    named = ({"id": approval_id, "tenant": tenant} for tenant, approval_id in approvals)
    return _VOID_MANY(voided=rows_of(named))


def cast(tenant: str, vote: VoteRow, *, alone: bool) -> Work[None]:
    """Write a vote down, in the place of the voter's earlier one; `alone` voids everybody's."""
    named = {"tenant": tenant, "approval_id": vote.approval_id}
    yield (
        _VOID(**named) if alone else _TAKE_BACK(**named, voter=vote.voter),
        _CAST(
            **named,
            voter=vote.voter,
            actor=vote.actor,
            decision=vote.decision,
            digest=vote.digest,
            comment=vote.comment,
            time_ms=vote.created_ms,
        ),
    )
