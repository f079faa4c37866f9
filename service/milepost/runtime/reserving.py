"""What runs take of budgets, whoever keeps these: which apply, and what is reserved in them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from milepost.core.agents import Agent
from milepost.core.events import BudgetExceeded, BudgetWarning
from milepost.core.frozen import dataclass
from milepost.runtime.demands import Demand
from milepost.store.amounts import Amounts
from milepost.store.records import Claim

if TYPE_CHECKING:  # Only who has budgets needs the store that keeps them.
    from milepost.store.budget_counters import Place
    from milepost.store.budgets import BudgetRow
    from milepost.store.reservations import Holder

NOBODY = ""


@dataclass(frozen=True, slots=True)
class Payer:
    """Who makes a call: a run under its claim. `session_id` is that of the uppermost run above it.

    A run that an agent starts has a session of its own, where nobody would look for what it takes.
    """

    claim: Claim
    agent: Agent
    session_id: str


@dataclass(frozen=True, slots=True)
class Reservation:
    """What was granted to a call. `rations` says that its answer must keep within that."""

    holder: "Holder"
    places: tuple["Place", ...]
    granted: Amounts
    rations: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """A budget has too little left; `why` is for people."""

    event: BudgetExceeded
    why: str


class Budgets(Protocol):
    """The budgets of all tenants, and what is reserved in them."""

    async def of(self, tenant: str) -> tuple["BudgetRow", ...]:
        """Return the tenant's budgets."""

    async def reserve(
        self, payer: Payer, subject: str, demand: Demand, rows: tuple["BudgetRow", ...]
    ) -> Reservation | Refused:
        """Reserve what the call may take in each of `rows`, in the present period."""

    async def settle(self, reservation: Reservation, billed: Amounts) -> list[BudgetWarning]:
        """Put what was billed in the place of what was reserved; return what to warn of."""


def applying(rows: Iterable["BudgetRow"], payer: Payer, demand: Demand) -> tuple["BudgetRow", ...]:
    """Return the budgets that have something to say about a call of this run."""
    return tuple(
        row for row in rows if demand.concerns(row.bounds) and counted_for(row, payer) is not None
    )


def counted_for(row: "BudgetRow", payer: Payer) -> str | None:
    """Return for whom the budget counts this run; None: it does not."""
    name, *others = _names(row, payer)
    if row.scope_value is None:
        return name
    return row.scope_value if row.scope_value in {name, *others} else None


def _names(row: "BudgetRow", payer: Payer) -> tuple[str, ...]:
    """Return what a budget may call the run's own. Runs that act for nobody are as one user's."""
    match row.scope:
        case "tenant":
            return (NOBODY,)
        case "user":
            return (payer.claim.user or NOBODY,)
        case "agent":
            return (payer.agent.name, payer.agent.id)
        case "session":
            return (payer.session_id, payer.claim.session_id)
