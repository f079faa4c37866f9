"""What runs are driven with: the parts of the process that a run's loop may use."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from milepost.core.agents import Agent
from milepost.core.errors import FencedError
from milepost.core.events import Event, MemoryExtracted
from milepost.core.policy import Standing
from milepost.core.state import State
from milepost.guardrails.verdicts import Rail
from milepost.providers.catalog import Catalog
from milepost.providers.chains import Chains
from milepost.providers.pricing import Pricing
from milepost.runtime.children import Children
from milepost.runtime.permits import Listed
from milepost.runtime.ports import RunPorts
from milepost.runtime.rates import Rates
from milepost.runtime.reserving import Budgets
from milepost.runtime.result_cache import ResultCache
from milepost.runtime.stashes import Stashes
from milepost.runtime.stops import StopCondition
from milepost.runtime.structured import AnswerCheck
from milepost.runtime.transactions import Transactions
from milepost.store.records import Claim, Lesson
from milepost.tools import Invoker, Registry

LEASE_PAUSE_S = 0.1


class StandingOf(Protocol):
    """What finds the rules that hold besides an agent's own."""

    async def __call__(self, tenant: str, session_id: str, /, *, fresh: bool = False) -> Standing:
        """Return the rules of a tenant and of a session; `fresh` ones are as they are just now."""


class PermissionsOf(Protocol):
    """What finds to whom a tenant permits which tools."""

    async def __call__(self, tenant: str, /, *, fresh: bool = False) -> Listed:
        """Return the tenant's map; a `fresh` one is as it is just now."""


class Lease(Protocol):
    """What says whether this process may still act in the world."""

    def check(self) -> None:
        """Raise `FencedError` when the lease may have lapsed."""


class Recall(Protocol):
    """What finds what is known from earlier conversations."""

    async def context(self, claim: Claim, agent: Agent, query: str) -> str:
        """Return what a run that is asked this is told beside its session; nothing if nothing is.

        Raises only what any reading of the store may raise.
        """


class Lessons(Protocol):
    """What finds what a run leaves for memory when it ends."""

    async def of(
        self, claim: Claim, agent: Agent, state: State, end: Event
    ) -> tuple[MemoryExtracted | None, Lesson]:
        """Return the event that says so, if one does, and what is to be written beside the end."""


@dataclass(frozen=True, slots=True)
class Means:
    """What runs are driven with: everything that does not differ from run to run.

    `tools` are the installation's; `tools_of` adds those that a tenant has declared itself, and
    `permissions_of` says to whom the tenant permits which. `chains` finds who answers for an agent
    with fallbacks; without them its first model does. `rails` are the guardrails in Python, by
    name. `standing_of` finds the rules of tenants and sessions, `rates` counts for those that need
    it. `transactions` are for the tools that write in the run's own database. `recall` finds what
    is known from earlier conversations, `lessons` what a run leaves for later ones.
    """

    ports: RunPorts
    providers: Catalog
    tools: Registry
    invoker: Invoker
    pricing: Pricing
    lease: Lease
    drain_s: float = 20.0
    lease_wait_s: float = 10.0  # Its thread may be connecting for half of that.
    stop_s: float = 4.0  # More than the invoker needs, and less than a cancellation's grace.
    content: bool = False
    tools_of: Callable[[str], Awaitable[Registry]] | None = None
    permissions_of: PermissionsOf | None = None
    results: ResultCache | None = None
    budgets: Budgets | None = None
    stop_condition: StopCondition | None = None
    answer_check: AnswerCheck | None = None
    chains: Chains | None = None
    children: Children | None = None
    stashes: Stashes | None = None
    rails: Mapping[str, Rail] = field(default_factory=dict)
    standing_of: StandingOf | None = None
    rates: Rates | None = None
    transactions: Transactions | None = None
    recall: Recall | None = None
    lessons: Lessons | None = None

    async def await_lease(self) -> None:
        """Wait out the moment in which the database is back, and our lease is not yet.

        What the log says is begun would else be taken for lost, although it never began. Raises
        `FencedError` where the lease stays away.
        """
        for _ in range(round(self.lease_wait_s / LEASE_PAUSE_S)):
            try:
                self.lease.check()
            except FencedError:
                await asyncio.sleep(LEASE_PAUSE_S)
            else:
                return
        self.lease.check()
