"""What tests of budgets put into the store: budgets, and calls that take of them."""

from collections.abc import Sequence
from typing import Any

from milepost.store import budget_counters, budgets
from milepost.store.amounts import Amounts
from milepost.store.budget_counters import Counter, CounterKey, Place
from milepost.store.budgets import BudgetRow
from milepost.store.records import Claim, Page
from milepost.store.reservations import Holder
from milepost.store.spending import (
    Charge,
    Fit,
    Outcome,
    Reserve,
    Settle,
    Spending,
    spend,
)
from milepost.store.store import Store
from milepost.store.work import Work
from tests.store.making import NOW_MS, TENANT, an_id

CALL = Amounts(model_calls=1)
DAY_MS = 86_400_000


def a_budget(**changes: Any) -> BudgetRow:
    """Return a tenant's budget of three model calls."""
    row: dict[str, Any] = {
        "id": an_id("bud"),
        "tenant": TENANT,
        "scope": "tenant",
        "scope_value": None,
        "period": "total",
        "warn_at": 0.8,
        "metadata": "{}",
        "version": 1,
        "created_ms": NOW_MS,
        "updated_ms": NOW_MS,
        "model_calls": 3,
    }
    return BudgetRow(**{**row, **changes})


async def kept(store: Store, **changes: Any) -> BudgetRow:
    """Keep a budget."""
    return await store.write(budgets.create(a_budget(**changes)))


def place_in(
    budget: BudgetRow, value: str = "", start_ms: int = 0, resets_ms: int | None = None
) -> Place:
    """Return the counter of a budget that a call counts in."""
    return Place(CounterKey(budget.id, value, start_ms), an_id("bct"), resets_ms)


def a_call_of(claim: Claim) -> Holder:
    """Return another call of the run."""
    return Holder(claim.tenant, claim.run_id, claim.epoch, an_id("msg"))


def reserving(holder: Holder, *places: Place, takes: Amounts = CALL) -> Work[Outcome]:
    """Return the work of reserving exactly this."""
    return fitting(holder, *places, fit=lambda _: takes)


def fitting(holder: Holder, *places: Place, fit: Fit) -> Work[Outcome]:
    """Return the work of reserving what fits."""
    return alone(Reserve(holder, places, fit))


def settling(holder: Holder, *places: Place, billed: Amounts = CALL) -> Work[Outcome]:
    """Return the work of settling for this."""
    return alone(Settle(holder, places, billed))


def charging(*places: Place, billed: Amounts = CALL) -> Work[Outcome]:
    """Return the work of charging this."""
    return alone(Charge(TENANT, places, billed))


def alone(item: Spending) -> Work[Outcome]:
    """Return the work of a group of one."""
    (outcome,) = yield from spend([item])
    return outcome


async def counters(store: Store, budget: BudgetRow, start_ms: int = 0) -> Sequence[Counter]:
    """Return the budget's counters of a period, the oldest first."""
    page = Page(100, ascending=True)
    return await store.read(budget_counters.present(budget.tenant, budget.id, start_ms, page))


async def counted(store: Store, budget: BudgetRow) -> tuple[int, int]:
    """Return how many model calls are spent and how many reserved, of the budget's only counter."""
    (counter,) = await counters(store, budget)
    return counter.spent.model_calls, counter.reserved.model_calls
