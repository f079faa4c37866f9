"""`client.budgets`."""

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from milepost.client.shapes import Budget, BudgetCounter, Page, paged, shaped
from milepost.client.transport import Transport, filtered, if_version, quoted


class BudgetFields(TypedDict, total=False):
    """What a budget may be given anew: how much of each there may be, and when it warns."""

    limits: Mapping[str, int | None]
    warn_at: float
    metadata: Mapping[str, str]


class NewBudgetFields(BudgetFields, total=False):
    """What only a new budget may be given: whose it is, and its period."""

    scope: str
    scope_value: str | None
    period: str


class BudgetFilters(TypedDict, total=False):
    """Which budgets a list is to hold, and which stretch of it."""

    scope: str | None
    scope_value: str | None
    metadata: Mapping[str, str]
    limit: int | None
    after: str | None
    order: str | None


class Budgets:
    """How much calls may take, and how much of that is left."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(self, **fields: Unpack[NewBudgetFields]) -> Budget:
        """Make a budget."""
        return shaped(Budget, await self._transport.post("/v1/budgets", fields))

    async def get(self, budget_id: str) -> Budget:
        """Return a budget."""
        return shaped(Budget, await self._transport.get(f"/v1/budgets/{quoted(budget_id)}"))

    async def list(self, **filters: Unpack[BudgetFilters]) -> Page[Budget]:
        """Return budgets, the newest first."""
        return paged(Budget, await self._transport.get("/v1/budgets", filtered(filters)))

    async def counters(
        self,
        budget_id: str,
        *,
        scope_value: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Page[BudgetCounter]:
        """Return what is spent, reserved and left in the present period, by whose it is."""
        params: dict[str, Any] = {"scope_value": scope_value, "limit": limit, "after": after}
        path = f"/v1/budgets/{quoted(budget_id)}/counters"
        return paged(BudgetCounter, await self._transport.get(path, params))

    async def update(
        self, budget_id: str, *, if_still: int | None = None, **changes: Unpack[BudgetFields]
    ) -> Budget:
        """Change what is named; with `if_still`, only if that is still the budget's version."""
        answer = await self._transport.request(
            "PATCH", f"/v1/budgets/{quoted(budget_id)}", body=changes, headers=if_version(if_still)
        )
        return shaped(Budget, answer)

    async def delete(self, budget_id: str, *, if_still: int | None = None) -> None:
        """Take a budget away; with `if_still`, only in that version."""
        path = f"/v1/budgets/{quoted(budget_id)}"
        await self._transport.change("DELETE", path, headers=if_version(if_still))
