"""Budgets and their counters as clients read them."""

from collections.abc import Container
from typing import Any

import orjson

from milepost.core.codec import dollars
from milepost.live.frames import rfc3339, rfc3339_or_none
from milepost.runtime.budgets import LIMITS, shown
from milepost.store.amounts import MEASURES, Amounts, Bounds
from milepost.store.budget_counters import Counter
from milepost.store.budgets import BudgetRow


def show_budget(row: BudgetRow, named: Container[str]) -> dict[str, Any]:
    """Return the budget; its version counts the changes made to it.

    `named` has the budgets whose agent or session there is. Users are not kept: nobody knows them.
    """
    names_one = row.scope in {"agent", "session"} and row.scope_value is not None
    return {
        "id": row.id,
        "scope": row.scope,
        "scope_value": row.scope_value,
        "known": row.id in named if names_one else None,
        "period": row.period,
        "limits": show_bounds(row.bounds),
        "warn_at": row.warn_at,
        "version": row.version,
        "created_at": rfc3339(row.created_ms),
        "updated_at": rfc3339(row.updated_ms),
        "metadata": orjson.loads(row.metadata),
    }


def show_bounds(bounds: Bounds) -> dict[str, int | None]:
    """Return all limits, in the units in which people name them."""
    return {
        LIMITS[measure][0]: None if bound is None else shown(measure, bound)
        for measure, bound in zip(MEASURES, bounds, strict=True)
    }


def show_counter(counter: Counter) -> dict[str, Any]:
    """Return what is counted, as far as there is a limit to it.

    `scope_value` is null for the tenant as a whole, and for runs that act for nobody.
    """
    left = Amounts(*(max(0, rest or 0) for rest in counter.left))
    return {
        "scope_value": counter.key.scope_value or None,
        "resets_at": rfc3339_or_none(counter.resets_ms),
        "spent": _show(counter.spent, counter.bounds),
        "reserved": _show(counter.reserved, counter.bounds),
        "remaining": _show(left, counter.bounds),
    }


def _show(amounts: Amounts, bounds: Bounds) -> dict[str, int | str]:
    shown_amounts: dict[str, int | str] = {
        LIMITS[measure][0]: shown(measure, amount)
        for measure, amount, bound in zip(MEASURES, amounts, bounds, strict=True)
        if bound is not None
    }
    if bounds.cost_nanos is not None:
        shown_amounts["cost_usd"] = dollars(amounts.cost_nanos)
    return shown_amounts
