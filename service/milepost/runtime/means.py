"""What runs are driven with: the parts of the process that a run's loop may use."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from milepost.providers.catalog import Catalog
from milepost.providers.pricing import Pricing
from milepost.runtime.journal import Ports
from milepost.runtime.permits import Listed
from milepost.runtime.result_cache import ResultCache
from milepost.runtime.stops import StopCondition
from milepost.tools import Invoker, Registry


class Lease(Protocol):
    """What says whether this process may still act in the world."""

    def check(self) -> None:
        """Raise `FencedError` when the lease may have lapsed."""


@dataclass(frozen=True, slots=True)
class Means:
    """What runs are driven with: everything that does not differ from run to run.

    `tools` are the installation's; `tools_of` adds those that a tenant has declared itself, and
    `permissions_of` says to whom the tenant permits which.
    """

    ports: Ports
    providers: Catalog
    tools: Registry
    invoker: Invoker
    pricing: Pricing
    lease: Lease
    drain_s: float = 20.0
    lease_wait_s: float = 2.0  # Its thread tries twice a second while the database is away.
    stop_s: float = 4.0  # More than the invoker needs, and less than a cancellation's grace.
    content: bool = False
    tools_of: Callable[[str], Awaitable[Registry]] | None = None
    permissions_of: Callable[[str], Awaitable[Listed]] | None = None
    results: ResultCache | None = None
    stop_condition: StopCondition | None = None
