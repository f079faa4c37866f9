"""Where tenants' own tools come from. A source never changes: another one takes its place."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete as delete_from
from sqlalchemy import select

from milepost.core.errors import ConflictError, NotFoundError
from milepost.store import schema
from milepost.store.dialect import insert_new, number, text
from milepost.store.listing import Query, paged
from milepost.store.records import Page
from milepost.store.work import Statement, Work

_T = schema.tool_sources.c


@dataclass(frozen=True, slots=True)
class ToolSourceRow:
    """A source. `spec` is how it was declared, `listing` what its server said, both as JSON.

    `tools` is the JSON list of the names of its tools.
    """

    id: str
    tenant: str
    name: str
    kind: str
    spec: str
    listing: str
    tools: str
    created_ms: int


_COLUMNS = tuple(_T)
_OWN = _T.tenant == text("tenant")
_ADD = Statement(
    insert_new(schema.tool_sources)
    .values(
        id=text("id"),
        tenant=text("tenant"),
        name=text("name"),
        kind=text("kind"),
        spec=text("spec"),
        listing=text("listing"),
        tools=text("tools"),
        created_ms=number("created_ms"),
    )
    .returning(_T.id)
)
_FIND = Statement(select(*_COLUMNS).where(_OWN, _T.id == text("source_id")))
_DELETE = Statement(
    delete_from(schema.tool_sources).where(_OWN, _T.id == text("source_id")).returning(_T.id)
)
_IDS = Statement(select(_T.id).where(_OWN).order_by(_T.id))
_TOOLS = Statement(select(_T.name, _T.tools).where(_OWN).order_by(_T.id))
_ALL = Statement(select(*_COLUMNS).where(_OWN).order_by(_T.id))


def add(row: ToolSourceRow) -> Work[ToolSourceRow]:
    """Keep a source; raise `ConflictError` if the tenant has one of that name."""
    kept = yield _ADD(
        id=row.id,
        tenant=row.tenant,
        name=row.name,
        kind=row.kind,
        spec=row.spec,
        listing=row.listing,
        tools=row.tools,
        created_ms=row.created_ms,
    )
    if not kept:
        raise ConflictError(
            f"there is a tool source {row.name!r} already; delete it first, or take another name",
            code="tool_source_exists",
        )
    return row


def find(tenant: str, source_id: str) -> Work[ToolSourceRow]:
    """Return the source; raise `NotFoundError` if the tenant has none such."""
    found = yield _FIND(tenant=tenant, source_id=source_id)
    if not found:
        raise _not_found(source_id)
    return ToolSourceRow(*found[0])


def delete(tenant: str, source_id: str) -> Work[None]:
    """Forget a source; raise `NotFoundError` if the tenant has none such."""
    if not (yield _DELETE(tenant=tenant, source_id=source_id)):
        raise _not_found(source_id)


def ids(tenant: str) -> Work[tuple[str, ...]]:
    """Return which sources the tenant has: as long as that is the same, so are its tools."""
    return tuple(source_id for (source_id,) in (yield _IDS(tenant=tenant)))


def tools(tenant: str) -> Work[Sequence[tuple[str, str]]]:
    """Return the name of each of the tenant's sources, with its tools as JSON."""
    return [(name, listed) for name, listed in (yield _TOOLS(tenant=tenant))]


def all_of(tenant: str) -> Work[list[ToolSourceRow]]:
    """Return the tenant's sources, the oldest first."""
    return [ToolSourceRow(*row) for row in (yield _ALL(tenant=tenant))]


def search(tenant: str, page: Page) -> Work[list[ToolSourceRow]]:
    """Return the tenant's sources, one more than the page holds if there are more."""
    query: Query = select(*_COLUMNS).where(_T.tenant == tenant)
    found = yield Statement(paged(query, _T.id, page))()
    return [ToolSourceRow(*row) for row in found]


def _not_found(source_id: str) -> NotFoundError:
    return NotFoundError(f"there is no tool source {source_id}", code="tool_source_not_found")
