"""Which version the agents had when they were last looked up, so that few runs need a look."""

from dataclasses import dataclass, replace

from milepost.store import agents
from milepost.store.store import Store

KNOWN_MAX = 1_024


@dataclass(frozen=True, slots=True)
class AgentVersion:
    """An agent's newest version, as it was just found or, `is_remembered`, some time ago."""

    id: str
    name: str
    version: int
    is_remembered: bool = False


class KnownAgents:
    """Remembers agents by tenant and by the name or id that they were asked for.

    Nobody tells it when one changes: what is remembered holds only where it is confirmed.
    """

    def __init__(self, store: Store, *, known_max: int = KNOWN_MAX) -> None:
        self._store = store
        self._known_max = known_max
        self._known: dict[tuple[str, str], AgentVersion] = {}

    def remembered(self, tenant: str, named: str) -> AgentVersion | None:
        """Return the agent as it was, None if it was not looked up lately."""
        return self._known.get((tenant, named))

    def forget(self, tenant: str, named: str) -> None:
        """Forget what proved outdated."""
        self._known.pop((tenant, named), None)

    async def look_up(self, tenant: str, named: str) -> AgentVersion:
        """Return the agent as it is; raise `NotFoundError` if the tenant has none such."""
        row = await self._store.read(agents.find(tenant, named))
        found = AgentVersion(row.id, row.name, row.version)
        self.forget(tenant, named)
        if len(self._known) >= self._known_max:
            del self._known[next(iter(self._known))]
        self._known[tenant, named] = replace(found, is_remembered=True)
        return found
