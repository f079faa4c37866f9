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
    from milepost.store.usage import Account

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
    claim, agent = payer.claim, payer.agent
    sessions = (payer.session_id, claim.session_id)
    return _counted_as(row, claim.user, (agent.name, agent.id), sessions)


def charged_for(row: "BudgetRow", account: "Account", session_id: str) -> str | None:
    """Return for whom the budget counts what was taken on this account; None: it does not.

    `session_id` is that of the uppermost run above the account's, as for a `Payer`.
    """
    agents = (account.agent, account.agent_id) if account.agent else ()
    sessions = (session_id, account.session_id) if account.session_id else ()
    return _counted_as(row, account.user, agents, sessions)


def _counted_as(
    row: "BudgetRow", user: str | None, agents: tuple[str, ...], sessions: tuple[str, ...]
) -> str | None:
    """Return the one of these that the budget counts. What is done for nobody is as one user's."""
    names = {"tenant": (NOBODY,), "user": (user or NOBODY,), "agent": agents, "session": sessions}
    own = names[row.scope]
    if not own or row.scope_value is None:
        return own[0] if own else None
    return row.scope_value if row.scope_value in own else None
