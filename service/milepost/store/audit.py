"""The audit trail: who did what to what, written in the transaction that did it."""

from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import insert, select

from milepost.store import schema
from milepost.store.dialect import number, text
from milepost.store.listing import Query, paged, where_between, where_equal
from milepost.store.records import AuditRow, Page
from milepost.store.work import Call, Statement, Work

__all__ = ["AuditFilter", "AuditRow", "add", "adding", "search", "written_down"]

T = TypeVar("T")

_A = schema.audit.c


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which acts a search is after; None means any."""

    actor: str | None = None
    action: str | None = None
    target: str | None = None
    after_ms: int | None = None
    before_ms: int | None = None


_ADD = Statement(
    insert(schema.audit).values(
        id=text("id"),
        tenant=text("tenant"),
        actor=text("actor"),
        action=text("action"),
        target=text("target"),
        details=text("details"),
        time_ms=number("time_ms"),
    )
)


def add(row: AuditRow) -> Work[None]:
    """Write an act down; `yield from` this in the work that does it."""
    yield adding(row)


def written_down(work: Work[T], row: AuditRow) -> Work[T]:
    """Do the work, and write down who did."""
    done = yield from work
    yield from add(row)
    return done


def adding(row: AuditRow) -> Call:
    """Return the statement that writes an act down."""
    return _ADD(
        id=row.id,
        tenant=row.tenant,
        actor=row.actor,
        action=row.action,
        target=row.target,
        details=row.details,
        time_ms=row.time_ms,
    )


def search(tenant: str, wanted: AuditFilter, page: Page) -> Work[list[AuditRow]]:
    """Return the tenant's acts that match, one more than the page holds if there are more."""
    query: Query = select(*_A).where(_A.tenant == tenant)
    query = where_equal(
        query, {_A.actor: wanted.actor, _A.action: wanted.action, _A.target: wanted.target}
    )
    query = where_between(query, _A.time_ms, wanted.after_ms, wanted.before_ms)
    found = yield Statement(paged(query, _A.id, page))()
    return [AuditRow(*row) for row in found]
