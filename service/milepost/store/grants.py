"""A person's yes that holds for a session, until it expires or is revoked."""

from dataclasses import dataclass

from sqlalchemy import and_, insert, not_, select, update

from milepost.core.errors import NotFoundError
from milepost.store import keys, schema
from milepost.store.dialect import now_ms, number, text
from milepost.store.listing import Query, paged, where_equal
from milepost.store.records import Page
from milepost.store.work import Statement, Work

_A = schema.approvals.c
_G = schema.grants.c
_giver_revoked_ms = keys.revoked_ms_of(_G.granted_by, _G.tenant)
COLUMNS = (
    _G.id, _G.tenant, _G.session_id, _G.tool, _G.digest, _G.approval_id, _G.granted_by,
    _G.created_ms, _G.expires_ms, _G.revoked_by, _G.revoked_ms,
    _giver_revoked_ms,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GrantRow:
    """To a tool, or to it with the arguments that `digest` binds; `approval_id` led to it.

    It holds no longer than the key that gave it, which may have been revoked at `giver_revoked_ms`.
    `terms`, `made_by` and `requester` are that approval's, where they were looked up.
    """

    id: str
    tenant: str
    session_id: str
    tool: str
    digest: str | None
    approval_id: str
    granted_by: str
    created_ms: int
    expires_ms: int
    revoked_by: str | None = None
    revoked_ms: int | None = None
    giver_revoked_ms: int | None = None
    terms: str | None = None
    made_by: str | None = None
    requester: str | None = None

    def holds(self, now_ms: int) -> bool:
        """Say whether it does just now."""
        is_revoked = self.revoked_ms is not None or self.giver_revoked_ms is not None
        return not is_revoked and self.expires_ms > now_ms


@dataclass(frozen=True, slots=True)
class GrantFilter:
    """Which grants a search is after; None means any. `active` ones hold just now."""

    session_id: str | None = None
    tool: str | None = None
    active: bool | None = None


_holds = (_G.revoked_ms.is_(None), _giver_revoked_ms.is_(None), _G.expires_ms > now_ms())
STANDING = Statement(
    select(*COLUMNS, _A.terms, _A.made_by, _A.requester)
    .join_from(
        schema.grants,
        schema.approvals,
        and_(_A.id == _G.approval_id, _A.tenant == _G.tenant),
        isouter=True,
    )
    .where(_G.session_id == text("session_id"), _G.tenant == text("tenant"), *_holds)
    .order_by(_G.id)
)
ANY = Statement(select(_G.id).where(_G.tenant == text("tenant")).limit(1))
_FIND = Statement(select(*COLUMNS).where(_G.id == text("grant_id"), _G.tenant == text("tenant")))
_OF_APPROVAL = Statement(
    select(_G.id).where(
        _G.approval_id == text("approval_id"),
        _G.session_id == text("session_id"),
        _G.tenant == text("tenant"),
    )
)
_ADD = Statement(
    insert(schema.grants).values(
        id=text("id"),
        tenant=text("tenant"),
        session_id=text("session_id"),
        tool=text("tool"),
        digest=text("digest"),
        approval_id=text("approval_id"),
        granted_by=text("granted_by"),
        created_ms=number("created_ms"),
        expires_ms=number("expires_ms"),
    )
)
_REVOKE = Statement(
    update(schema.grants)
    .where(_G.id == text("grant_id"), _G.tenant == text("tenant"), _G.revoked_ms.is_(None))
    .values(revoked_by=text("revoked_by"), revoked_ms=number("now_ms"))
    .returning(*COLUMNS)
)


def add(grant: GrantRow) -> Work[None]:
    """Keep a grant that was just given."""
    yield _ADD(
        id=grant.id,
        tenant=grant.tenant,
        session_id=grant.session_id,
        tool=grant.tool,
        digest=grant.digest,
        approval_id=grant.approval_id,
        granted_by=grant.granted_by,
        created_ms=grant.created_ms,
        expires_ms=grant.expires_ms,
    )


def find(tenant: str, grant_id: str) -> Work[GrantRow]:
    """Return the grant; raise `NotFoundError` if the tenant has none such."""
    found = yield _FIND(tenant=tenant, grant_id=grant_id)
    if not found:
        raise NotFoundError(f"there is no grant {grant_id}", code="grant_not_found")
    return GrantRow(*found[0])


def came_of(tenant: str, session_id: str, approval_id: str) -> Work[bool]:
    """Say whether the decision on this approval has given a grant for its session."""
    named = {"tenant": tenant, "session_id": session_id, "approval_id": approval_id}
    return bool((yield _OF_APPROVAL(**named)))


def search(tenant: str, wanted: GrantFilter, page: Page) -> Work[list[GrantRow]]:
    """Return the tenant's grants that match, one more than the page holds if there are more."""
    query: Query = select(*COLUMNS).where(_G.tenant == tenant)
    query = where_equal(query, {_G.session_id: wanted.session_id, _G.tool: wanted.tool})
    if wanted.active is True:
        query = query.where(*_holds)
    elif wanted.active is False:
        query = query.where(not_(and_(*_holds)))
    found = yield Statement(paged(query, _G.id, page))()
    return [GrantRow(*row) for row in found]


def revoke(tenant: str, grant_id: str, by: str, now_ms: int) -> Work[tuple[GrantRow, bool]]:
    """Take the grant back; return it, and whether it was this that did so."""
    revoked = yield _REVOKE(tenant=tenant, grant_id=grant_id, revoked_by=by, now_ms=now_ms)
    if revoked:
        return GrantRow(*revoked[0]), True
    return (yield from find(tenant, grant_id)), False
