"""Approvals as the table has them: finding them, and what changed since."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import orjson
from sqlalchemy import ColumnElement, and_, not_, or_, select

from milepost.core.approvers import OPEN_ID, Approver, has_asked, is_asked
from milepost.core.errors import NotFoundError
from milepost.store import schema
from milepost.store.dialect import (
    json_flag,
    json_list_has,
    json_list_is_empty,
    now_ms,
    number,
    rows,
    rows_of_ids,
    text,
    word,
)
from milepost.store.listing import Query, paged, where_between, where_equal
from milepost.store.records import Page
from milepost.store.votes import VoteRow
from milepost.store.work import Call, Rows, Statement, Work

CHANGES_MAX = 500

_A = schema.approvals.c
_K = schema.keys.c


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """A question and what became of it; `arguments`, `original` and `terms` are encoded JSON.

    `status` is pending, approved, denied, answered, expired, withdrawn or superseded. `version`
    grows with every change, and `change` says what the last one was while it is pending.
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
    kind: str = "call"
    terms: str = "{}"
    requester: str | None = None
    original: str | None = None
    remind_ms: int | None = None
    escalated: int = 0
    version: int = 1
    changed_ms: int = 0
    change: str = "requested"
    made_by: str | None = None

    def terms_shown(self) -> dict[str, Any]:
        """Return the terms, decoded."""
        terms: dict[str, Any] = orjson.loads(self.terms)
        return terms

    def asks(self, who: Approver) -> bool:
        """Say whether the answer is theirs to give, be it a no."""
        return is_asked(self.terms_shown().get("approvers", ()), who)

    def has_lost(self, vote: VoteRow) -> bool:
        """Say whether a vote is none any more, since its key was revoked while it was counted."""
        return self.status == "pending" and not vote.stands

    def is_own(self, who: Approver) -> bool:
        """Say whether they may have asked for it themselves, where that matters."""
        terms = self.terms_shown()
        if terms.get("self_approval", True):
            return False
        return has_asked(self.made_by, self.requester, terms.get("speakers", ()), who)


@dataclass(frozen=True, slots=True)
class ApprovalFilter:
    """Which approvals a search is after; None means any. `mine` are those that one may approve."""

    status: str | None = None
    agent: str | None = None
    tool: str | None = None
    session_id: str | None = None
    user: str | None = None
    run_id: str | None = None
    kind: str | None = None
    created_after_ms: int | None = None
    created_before_ms: int | None = None
    mine: Approver | None = None

    def pending(self) -> "ApprovalFilter":
        """Return the same for what waits."""
        return replace(self, status="pending")

    def fits(self, row: ApprovalRow) -> bool:
        """Say whether a search would find the row; whoever lost a question to others hears so."""
        wanted = (
            (self.status, row.status),
            (self.agent, row.agent),
            (self.tool, row.tool),
            (self.session_id, row.session_id),
            (self.user, row.user),
            (self.run_id, row.run_id),
            (self.kind, row.kind),
        )
        after, before, who = self.created_after_ms, self.created_before_ms, self.mine
        return (
            all(want is None or want == has for want, has in wanted)
            and (after is None or row.created_ms > after)
            and (before is None or row.created_ms < before)
            and (who is None or bool(row.escalated) or (row.asks(who) and not row.is_own(who)))
        )


COLUMNS = tuple(_A)
FIND = Statement(select(*COLUMNS).where(_A.id == text("approval_id"), _A.tenant == text("tenant")))
_CLOCK = Statement(select(now_ms()))
_wanted = rows("wanted", "id")
_THESE = Statement(
    select(*COLUMNS).where(_A.id.in_(select(_wanted.c.id)), _A.tenant == text("tenant"))
)
_CHANGED = Statement(
    select(_A.id, _A.version, _A.changed_ms)
    .where(
        _A.tenant == text("tenant"),
        _A.changed_ms >= number("after_ms"),
        or_(
            _A.changed_ms > number("after_ms"),
            and_(_A.changed_ms == number("after_ms"), _A.id > text("after_id")),
        ),
    )
    .order_by(_A.changed_ms, _A.id)
    .limit(number("limit"))
)


def find(tenant: str, approval_id: str) -> Work[ApprovalRow]:
    """Return the approval; raise `NotFoundError` if the tenant has none such."""
    return only((yield FIND(tenant=tenant, approval_id=approval_id)), approval_id)


def only(found: Rows, approval_id: str) -> ApprovalRow:
    """Return the one row that was found; raise `NotFoundError` if there is none."""
    if not found:
        raise NotFoundError(f"there is no approval {approval_id}", code="approval_not_found")
    return ApprovalRow(*found[0])


def search(tenant: str, wanted: ApprovalFilter, page: Page) -> Work[list[ApprovalRow]]:
    """Return the tenant's approvals that match, one more than the page holds if there are more."""
    query: Query = select(*COLUMNS).where(_A.tenant == tenant)
    query = where_equal(
        query,
        {
            _A.status: wanted.status,
            _A.agent: wanted.agent,
            _A.tool: wanted.tool,
            _A.session_id: wanted.session_id,
            _A.user_id: wanted.user,
            _A.run_id: wanted.run_id,
            _A.kind: wanted.kind,
        },
    )
    query = where_between(query, _A.created_ms, wanted.created_after_ms, wanted.created_before_ms)
    if wanted.mine is not None:
        query = query.where(*_mine(tenant, wanted.mine))
    found = yield Statement(paged(query, _A.id, page))()
    return [ApprovalRow(*row) for row in found]


def _mine(tenant: str, who: Approver) -> tuple[ColumnElement[bool], ...]:
    """Return what `ApprovalRow.asks` and `is_own` say, for the database."""
    own_keys = select(_K.id).where(_K.tenant == tenant, _K.subject == who.subject)
    foreign = [_A.made_by != OPEN_ID, _A.made_by.is_not(None), _A.made_by != who.key]
    if who.subject is not None:
        foreign += [
            or_(_A.requester.is_(None), _A.requester != who.subject),
            _A.made_by.not_in(own_keys),
        ]
    mine = {OPEN_ID, who.key or OPEN_ID, *who.own_keys}
    foreign.append(not_(json_list_has(_A.terms, "speakers", sorted(mine))))
    named = json_list_has(_A.terms, "approvers", sorted(who.names))
    return (
        or_(json_list_is_empty(_A.terms, "approvers"), named),
        or_(json_flag(_A.terms, "self_approval"), and_(*foreign)),
    )


def clock() -> Call:
    """Return the statement for the database's clock."""
    return _CLOCK()


def changed(tenant: str, after_ms: int, after_id: str = "") -> Work[list[tuple[str, int, int]]]:
    """Return id, version and time of what changed after this place, the oldest change first."""
    found = yield _CHANGED(tenant=tenant, after_ms=after_ms, after_id=after_id, limit=CHANGES_MAX)
    return [(approval_id, version, time_ms) for approval_id, version, time_ms in found]


def these(tenant: str, approval_ids: Iterable[str]) -> Work[list[ApprovalRow]]:
    """Return these approvals, in the order of their changes."""
    wanted = rows_of_ids(approval_ids)
    found = [ApprovalRow(*row) for row in (yield _THESE(tenant=tenant, wanted=wanted))]
    return sorted(found, key=lambda row: (row.changed_ms, row.id))


IS_PENDING = _A.status == word("pending")
