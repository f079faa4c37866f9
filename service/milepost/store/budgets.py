"""Budgets: what a tenant allows itself, or each of its users, agents or sessions, in a period."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from sqlalchemy import Double, bindparam, exists, insert, select, update
from sqlalchemy import delete as delete_from

from milepost.core.errors import NotFoundError
from milepost.store import erasures, schema
from milepost.store.amounts import MEASURES, Bounds
from milepost.store.dialect import number, text
from milepost.store.listing import Query, paged, where_equal, where_labelled
from milepost.store.records import Page
from milepost.store.versions import moved
from milepost.store.work import Statement, Work

BudgetScope = Literal["tenant", "user", "agent", "session"]
BudgetPeriod = Literal["total", "hour", "day", "month"]
SCOPES: tuple[BudgetScope, ...] = get_args(BudgetScope)

_A = schema.agents.c
_B = schema.budgets.c
_C = schema.budget_counters.c
_R = schema.budget_reservations.c
_S = schema.sessions.c


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A budget. Where `scope_value` is None it holds for each one of the scope by itself.

    `warn_at` is the share of a bound that is worth a warning; `metadata` is encoded JSON.
    """

    id: str
    tenant: str
    scope: BudgetScope
    scope_value: str | None
    period: BudgetPeriod
    warn_at: float
    metadata: str
    version: int
    created_ms: int
    updated_ms: int
    tokens: int | None = None
    cost_nanos: int | None = None
    model_calls: int | None = None
    tool_calls: int | None = None
    active_ms: int | None = None

    @property
    def bounds(self) -> Bounds:
        """How much of each there may be."""
        return Bounds(
            self.tokens, self.cost_nanos, self.model_calls, self.tool_calls, self.active_ms
        )


@dataclass(frozen=True, slots=True)
class BudgetEdit:
    """What a budget is to be from now on; `metadata` is encoded JSON."""

    bounds: Bounds
    warn_at: float
    metadata: str


@dataclass(frozen=True, slots=True)
class BudgetFilter:
    """Which budgets a search is after; None means any."""

    scope: str | None = None
    scope_value: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


_COLUMNS = (
    _B.id, _B.tenant, _B.scope, _B.scope_value, _B.period, _B.warn_at, _B.metadata, _B.version,
    _B.created_ms, _B.updated_ms, *(_B[name] for name in MEASURES),
)  # fmt: skip
_share = bindparam("warn_at", type_=Double, required=False)
_CREATE = Statement(
    insert(schema.budgets).values(
        id=text("budget_id"),
        tenant=text("tenant"),
        scope=text("scope"),
        scope_value=text("scope_value"),
        period=text("period"),
        **{name: number(name) for name in MEASURES},
        warn_at=_share,
        metadata=text("metadata"),
        created_ms=number("now_ms"),
        updated_ms=number("now_ms"),
    )
)
_own = _B.tenant == text("tenant")
_one = (_B.id == text("budget_id")) & _own
_FIND = Statement(select(*_COLUMNS).where(_one))
_ALL = Statement(select(*_COLUMNS).where(_own).order_by(_B.id))
_of_an_agent = exists().where(
    _A.tenant == _B.tenant,
    (_A.name == _B.scope_value) | (_A.id == _B.scope_value),
    _A.deleted_ms.is_(None),
)
_of_a_session = exists().where(_S.tenant == _B.tenant, _S.id == _B.scope_value)
_FIND_NAMED = Statement(
    select(_B.id).where(
        _own,
        ((_B.scope == "agent") & _of_an_agent) | ((_B.scope == "session") & _of_a_session),
    )
)
_expected = number("expected").is_(None) | (_B.version == number("expected"))
_CHANGE = Statement(
    update(schema.budgets)
    .where(_one, _expected)
    .values(
        **{name: number(name) for name in MEASURES},
        warn_at=_share,
        metadata=text("metadata"),
        version=_B.version + 1,
        updated_ms=number("now_ms"),
    )
    .returning(*_COLUMNS)
)
_DELETE = Statement(delete_from(schema.budgets).where(_one, _expected).returning(_B.id))
_DELETE_RESERVATIONS = Statement(
    delete_from(schema.budget_reservations).where(
        _R.tenant == text("tenant"), _R.budget_id == text("budget_id")
    )
)
_counters = (_C.budget_id == text("budget_id")) & (_C.tenant == text("tenant"))
_LOCK_COUNTERS = Statement(
    select(_C.scope_value)
    .where(_counters)
    .order_by(_C.scope_value, _C.period_start_ms)
    .with_for_update()
)
_DELETE_COUNTERS = Statement(delete_from(schema.budget_counters).where(_counters))


def create(row: BudgetRow) -> Work[BudgetRow]:
    """Keep a budget. Raises `UserBeingErasedError` if it is of such a user."""
    if row.scope == "user":
        yield from erasures.require_none(row.tenant, row.scope_value)
    yield _CREATE(
        budget_id=row.id,
        tenant=row.tenant,
        scope=row.scope,
        scope_value=row.scope_value,
        period=row.period,
        **row.bounds._asdict(),
        warn_at=row.warn_at,
        metadata=row.metadata,
        now_ms=row.created_ms,
    )
    return row


def find(tenant: str, budget_id: str) -> Work[BudgetRow]:
    """Return the budget; raise `NotFoundError` if the tenant has none such."""
    found = yield _FIND(tenant=tenant, budget_id=budget_id)
    if not found:
        raise NotFoundError(f"there is no budget {budget_id}", code="budget_not_found")
    return BudgetRow(*found[0])


def all_of(tenant: str) -> Work[tuple[BudgetRow, ...]]:
    """Return the tenant's budgets, the oldest first."""
    return tuple(BudgetRow(*row) for row in (yield _ALL(tenant=tenant)))


def named(tenant: str) -> Work[frozenset[str]]:
    """Return which of the tenant's budgets name an agent or a session that there is."""
    return frozenset(budget_id for (budget_id,) in (yield _FIND_NAMED(tenant=tenant)))


def search(tenant: str, wanted: BudgetFilter, page: Page) -> Work[list[BudgetRow]]:
    """Return the tenant's budgets that match, one more than the page holds if there are more."""
    query: Query = select(*_COLUMNS).where(_B.tenant == tenant)
    query = where_equal(query, {_B.scope: wanted.scope, _B.scope_value: wanted.scope_value})
    query = where_labelled(query, _B.metadata, wanted.metadata)
    found = yield Statement(paged(query, _B.id, page))()
    return [BudgetRow(*row) for row in found]


def change(
    tenant: str, budget_id: str, edit: BudgetEdit, *, now_ms: int, expected_version: int
) -> Work[BudgetRow]:
    """Change the budget; what is spent stays spent.

    Raises `ConflictError` with the code precondition_failed if it has another version by now.
    """
    changed = yield _CHANGE(
        tenant=tenant,
        budget_id=budget_id,
        **edit.bounds._asdict(),
        warn_at=edit.warn_at,
        metadata=edit.metadata,
        now_ms=now_ms,
        expected=expected_version,
    )
    if not changed:
        raise moved("budget", (yield from find(tenant, budget_id)), expected_version)
    return BudgetRow(*changed[0])


def delete(tenant: str, budget_id: str, *, expected_version: int | None = None) -> Work[None]:
    """Forget the budget and what was spent of it; calls under way go on.

    Its counters are locked in their order, as by everybody, lest two wait for each other.
    """
    bound = {"tenant": tenant, "budget_id": budget_id}
    if not (yield _DELETE(**bound, expected=expected_version)):
        raise moved("budget", (yield from find(tenant, budget_id)), expected_version)
    yield _DELETE_RESERVATIONS(**bound), _LOCK_COUNTERS(**bound), _DELETE_COUNTERS(**bound)
