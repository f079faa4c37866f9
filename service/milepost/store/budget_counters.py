"""What is spent of budgets, and reserved: a counter for each budget, scope value and period.

Whoever locks several counters locks them in the order of their keys, lest two wait for each other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from sqlalchemy import delete, select, tuple_, update

from milepost.store import schema
from milepost.store.amounts import MEASURES, NOTHING, Amounts, Bounds
from milepost.store.dialect import insert_new, number, rows, rows_of
from milepost.store.listing import Query, paged, where_equal
from milepost.store.records import Page
from milepost.store.work import Call, Row, Statement, Work

PURGE_MAX = 1_000
KEPT_MS = 7 * 86_400_000

_B = schema.budgets.c
_C = schema.budget_counters.c


class CounterKey(NamedTuple):
    """Which counter: that of one budget, for one user, agent or session, in one period.

    `scope_value` is empty for the tenant as a whole, and for runs that act for nobody.
    """

    budget_id: str
    scope_value: str
    period_start_ms: int


@dataclass(frozen=True, slots=True)
class Place:
    """A counter that a call counts in; `id` is what it is called if the call is its first.

    `resets_ms` is when the next period begins, None if there is no next one.
    """

    key: CounterKey
    id: str = ""
    resets_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter with the bounds that its budget has now.

    `warned` has the bit of each measure whose bound was nearly reached.
    """

    tenant: str
    key: CounterKey
    id: str
    resets_ms: int | None
    spent: Amounts
    reserved: Amounts
    warned: int
    bounds: Bounds
    warn_at: float

    @property
    def unspent(self) -> Bounds:
        """What nobody has spent yet."""
        return self.bounds.less(self.spent)

    @property
    def left(self) -> Bounds:
        """What nobody has spent or reserved yet."""
        return self.unspent.less(self.reserved)

    def moved(self, *, spent: Amounts = NOTHING, reserved: Amounts = NOTHING) -> "Counter":
        """Return it with so much more spent and reserved."""
        return replace(self, spent=self.spent.plus(spent), reserved=self.reserved.plus(reserved))


def _named(prefix: str) -> tuple[str, ...]:
    return tuple(f"{prefix}_{name}" for name in MEASURES)


_SPENT, _RESERVED = _named("spent"), _named("reserved")
_COUNTED = (
    _B.tenant, _C.budget_id, _C.scope_value, _C.period_start_ms, _C.id, _C.resets_ms, _C.warned,
    *(_C[name] for name in (*_SPENT, *_RESERVED)),
    *(_B[name] for name in MEASURES), _B.warn_at,
)  # fmt: skip
_asked = rows(
    "asked", "tenant", "budget_id", "scope_value", "id", numbers=("period_start_ms", "resets_ms")
)
_budget = (_B.id == _asked.c.budget_id) & (_B.tenant == _asked.c.tenant)
_in_order = (_asked.c.budget_id, _asked.c.scope_value, _asked.c.period_start_ms)
# The budget is locked as by a foreign key: it cannot go without the counter that begins here.
_OPEN = Statement(
    insert_new(schema.budget_counters).from_select(
        ["budget_id", "scope_value", "period_start_ms", "id", "tenant", "resets_ms"],
        select(*_in_order, _asked.c.id, _asked.c.tenant, _asked.c.resets_ms)
        .where(_budget)
        .order_by(*_in_order)
        .with_for_update(read=True, key_share=True, of=schema.budgets),
    )
)
_LOCK = Statement(
    select(*_COUNTED)
    .where(
        _budget,
        _C.budget_id == _asked.c.budget_id,
        _C.scope_value == _asked.c.scope_value,
        _C.period_start_ms == _asked.c.period_start_ms,
    )
    .order_by(_C.budget_id, _C.scope_value, _C.period_start_ms)
    .with_for_update(of=schema.budget_counters)
)
_counted = rows(
    "counted",
    "budget_id", "scope_value", numbers=("period_start_ms", "warned", *_SPENT, *_RESERVED),
)  # fmt: skip
_KEEP = Statement(
    update(schema.budget_counters)
    .where(
        _C.budget_id == _counted.c.budget_id,
        _C.scope_value == _counted.c.scope_value,
        _C.period_start_ms == _counted.c.period_start_ms,
    )
    .values(**{name: _counted.c[name] for name in (*_SPENT, *_RESERVED, "warned")})
)
_old = schema.budget_counters.alias("old_counters")
_PURGE = Statement(
    delete(schema.budget_counters)
    .where(
        tuple_(_C.budget_id, _C.scope_value, _C.period_start_ms).in_(
            select(_old.c.budget_id, _old.c.scope_value, _old.c.period_start_ms)
            .where(_old.c.resets_ms < number("before_ms"))
            .order_by(_old.c.resets_ms)
            .limit(PURGE_MAX)
            .with_for_update(skip_locked=True)  # Every process purges.
        )
    )
    .returning(_C.id)
)


def opening(places: Iterable[tuple[str, Place]]) -> Call:
    """Return the statement that begins these tenants' counters that are new, before any lock."""
    return _OPEN(asked=rows_of(_asked_for(tenant, place) for tenant, place in places))


def locking(places: Iterable[tuple[str, Place]]) -> Call:
    """Return the statement that locks these tenants' counters, as far as their budgets are there.

    `read` reads what it answers.
    """
    return _LOCK(asked=rows_of(_asked_for(tenant, place) for tenant, place in places))


def read(answer: Iterable[Row]) -> list[Counter]:
    """Return the counters of an answer."""
    return list(map(_counter, answer))


def keeping(counters: Iterable[Counter]) -> Call:
    """Return the statement that writes down how counters stand, all of which are locked."""
    return _KEEP(counted=rows_of(map(_standing, counters)))


def present(
    tenant: str, budget_id: str, period_start_ms: int, page: Page, *, scope_value: str | None = None
) -> Work[list[Counter]]:
    """Return the budget's counters of a period, one more than the page holds if there are more."""
    query: Query = select(*_COUNTED).where(
        _C.budget_id == budget_id,
        _C.period_start_ms == period_start_ms,
        _B.id == _C.budget_id,
        _B.tenant == tenant,
    )
    query = where_equal(query, {_C.scope_value: scope_value})
    return read((yield Statement(paged(query, _C.id, page))()))


def purge(now_ms: int) -> Work[int]:
    """Forget counters of periods long past, so many at a time; return how many that were."""
    return len((yield _PURGE(before_ms=now_ms - KEPT_MS)))


def _counter(row: Row) -> Counter:
    tenant, key, (counter_id, resets_ms, warned) = row[0], row[1:4], row[4:7]
    spent, reserved, bounds = (row[start : start + len(MEASURES)] for start in _THIRDS)
    return Counter(
        tenant,
        CounterKey(*key),
        counter_id,
        resets_ms,
        Amounts(*spent),
        Amounts(*reserved),
        warned,
        Bounds(*bounds),
        row[-1],
    )


_THIRDS = tuple(7 + len(MEASURES) * third for third in range(3))


def _standing(counter: Counter) -> Mapping[str, str | int]:
    return {
        **counter.key._asdict(),
        "warned": counter.warned,
        **dict(zip(_SPENT, counter.spent, strict=True)),
        **dict(zip(_RESERVED, counter.reserved, strict=True)),
    }


def _asked_for(tenant: str, place: Place) -> Mapping[str, str | int | None]:
    return {"tenant": tenant, **place.key._asdict(), "id": place.id, "resets_ms": place.resets_ms}
