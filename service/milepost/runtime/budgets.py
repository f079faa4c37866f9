"""Tenants' budgets, as their runs meet them: which ones apply, and what they still give."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from weakref import WeakValueDictionary

from milepost.core.events import BudgetExceeded, BudgetWarning
from milepost.core.usage import NANOS_PER_MICRO, Usage
from milepost.live.frames import rfc3339
from milepost.runtime.clock import Clock, NewId
from milepost.runtime.demands import Demand
from milepost.runtime.periods import period_of
from milepost.runtime.recent import Recent
from milepost.runtime.reserving import (
    NOBODY,
    Payer,
    Refused,
    Reservation,
    charged_for,
    counted_for,
)
from milepost.store import children, reservations
from milepost.store.amounts import Amounts
from milepost.store.budget_counters import CounterKey, Place
from milepost.store.budgets import BudgetRow
from milepost.store.reservations import Holder
from milepost.store.spending import Shortage
from milepost.store.store import Store
from milepost.store.usage import Account

FRESH_MS = 2_000
FREES_MAX = 100
WAIT_S = 30.0
POLL_S = 0.1

LIMITS = {
    "tokens": ("tokens", 1),
    "cost_nanos": ("cost_usd_micros", NANOS_PER_MICRO),
    "model_calls": ("model_calls", 1),
    "tool_calls": ("tool_calls", 1),
    "active_ms": ("active_s", 1_000),
}
"""What is counted, with the name under which people bound it, and how much one of theirs is."""


class TenantBudgets:
    """All tenants' budgets. A new one holds everywhere within `FRESH_MS`, and here at once.

    What its bounds are and what is left is asked of the store with each call.
    """

    def __init__(
        self, store: Store, *, clock: Clock, new_id: NewId, wait_s: float = WAIT_S
    ) -> None:
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._wait_s = wait_s
        self._lines: WeakValueDictionary[CounterKey, asyncio.Lock] = WeakValueDictionary()
        self._rows: Recent[str, tuple[BudgetRow, ...]] = Recent(
            store.budgets, clock=clock, fresh_ms=FRESH_MS
        )

    async def of(self, tenant: str) -> tuple[BudgetRow, ...]:
        """Return the tenant's budgets. Most have none, which costs their runs next to nothing."""
        return await self._rows.of(tenant)

    def forget(self, tenant: str) -> None:
        """Look anew at what the tenant has."""
        self._rows.forget(tenant)

    async def reserve(
        self, payer: Payer, subject: str, demand: Demand, rows: tuple[BudgetRow, ...]
    ) -> Reservation | Refused:
        """Reserve what the call may take in each of `rows`, in the present period.

        Before it is refused, what dead workers had reserved is given back; and where it is only
        what others have reserved that is missing, these may settle for less.
        """
        claim = payer.claim
        holder = Holder(claim.tenant, claim.run_id, claim.epoch, subject)
        rations = any(row.tokens is not None or row.cost_nanos is not None for row in rows)

        async def attempt() -> Reservation | Shortage:
            places = tuple(self._places(rows, payer))
            outcome = await self._store.reserve(holder, places, demand.fit)
            if isinstance(outcome, Shortage):
                return outcome
            return Reservation(holder, places, outcome, rations)

        outcome = await attempt()
        if isinstance(outcome, Shortage) and await self._free(claim.tenant):
            outcome = await attempt()
        if isinstance(outcome, Shortage) and outcome.may_pass:
            outcome = await self._wait(outcome, attempt)
        if isinstance(outcome, Shortage):
            (row,) = (row for row in rows if row.id == outcome.counter.key.budget_id)
            return _refused(outcome, row)
        return outcome

    async def settle(self, reservation: Reservation, billed: Amounts) -> list[BudgetWarning]:
        """Put what was billed in the place of what was reserved; return what to warn of."""
        crossings = await self._store.settle(reservation.holder, reservation.places, billed)
        return [
            BudgetWarning(
                each.budget_id,
                LIMITS[each.measure][0],
                shown(each.measure, each.spent),
                shown(each.measure, each.bound),
            )
            for each in crossings
        ]

    async def charge(self, account: Account, usage: Usage) -> None:
        """Count what was taken on this account in all budgets that bound it. It is not refused."""
        present = [row for row in await self.of(account.tenant) if _bounds_models(row)]
        above = account.session_id
        if account.run_id and any(row.scope == "session" for row in present):
            found = await self._store.read(children.session_above(account.tenant, account.run_id))
            above = found or above
        named = [(row, charged_for(row, account, above)) for row in present]
        places = tuple(self._place(row, name) for row, name in named if name is not None)
        if places:
            tokens = usage.input_tokens + usage.output_tokens
            billed = Amounts(tokens, usage.cost_nanos, usage.model_calls)
            await self._store.charge(account.tenant, places, billed)

    async def _wait(
        self, short: Shortage, attempt: Callable[[], Awaitable[Reservation | Shortage]]
    ) -> Reservation | Shortage:
        """Try again until calls under way are settled, one at a time and in the order of coming.

        While a thousand wait, their counter is still asked no more often than by one.
        """
        line = self._lines.setdefault(short.counter.key, asyncio.Lock())
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._wait_s
        try:
            async with asyncio.timeout_at(until_s):
                await line.acquire()
        except TimeoutError:
            return short
        try:
            while isinstance(outcome := await attempt(), Shortage) and outcome.may_pass:
                if loop.time() + POLL_S > until_s:
                    break
                await asyncio.sleep(POLL_S)
        finally:
            line.release()
        return outcome

    async def _free(self, tenant: str) -> bool:
        freed = False
        for _ in range(FREES_MAX):
            found = await self._store.free(tenant)
            freed = freed or found > 0
            if found < reservations.FREE_MAX:
                break
        return freed

    def _places(self, rows: tuple[BudgetRow, ...], payer: Payer) -> Iterator[Place]:
        for row in rows:
            yield self._place(row, counted_for(row, payer) or NOBODY)

    def _place(self, row: BudgetRow, name: str) -> Place:
        start_ms, resets_ms = period_of(row.period, self._clock())
        return Place(CounterKey(row.id, name, start_ms), self._new_id("bct"), resets_ms)


def _bounds_models(row: BudgetRow) -> bool:
    bounds = row.bounds
    return any(each is not None for each in (bounds.tokens, bounds.cost_nanos, bounds.model_calls))


def shown(measure: str, amount: int) -> int:
    """Return an amount in the unit in which people bound it."""
    return amount // LIMITS[measure][1]


def _refused(short: Shortage, row: BudgetRow) -> Refused:
    limit = LIMITS[short.measure][0]
    spent, bound = shown(short.measure, short.spent), shown(short.measure, short.bound)
    resets_ms = short.counter.resets_ms
    return Refused(BudgetExceeded(row.id, limit, spent, bound, resets_ms), _why(short, row))


def _why(short: Shortage, row: BudgetRow) -> str:
    name = LIMITS[short.measure][0]
    spent, reserved, bound, wanted = (
        shown(short.measure, amount)
        for amount in (short.spent, short.reserved, short.bound, short.wanted)
    )
    whose = f" of {row.scope} {short.counter.key.scope_value or 'nobody'!r}"
    said = [f"{spent} of {bound} {name} are spent"]
    if reserved:
        said.append(f"{reserved} reserved for calls under way")
    if short.measure in {"tokens", "cost_nanos"}:
        said.append(f"this call may take {wanted}; a smaller limits.max_output_tokens takes less")
    resets_ms = short.counter.resets_ms
    again = "" if resets_ms is None else f"; the next {row.period} begins at {rfc3339(resets_ms)}"
    return (
        f"budget {row.id}{whose if row.scope != 'tenant' else ''} has too little left:"
        f" {', '.join(said)}{again}"
    )
