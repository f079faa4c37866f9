"""The rules by which calls of an agent are judged here and now, for whoever asks from outside."""

import orjson

from milepost.core.agents import Agent
from milepost.core.rulings import Rules
from milepost.runtime.child_runs import with_agents
from milepost.runtime.means import StandingOf
from milepost.runtime.permits import Identity, Permits
from milepost.runtime.rules import rules_for
from milepost.runtime.toolsets import Toolsets
from milepost.store import permissions
from milepost.store.store import Store
from milepost.tools import Registry


class Judging:
    """Finds what a worker would find at this moment: tools, permissions, and standing rules."""

    def __init__(self, store: Store, toolsets: Toolsets, standing_of: StandingOf) -> None:
        self._store = store
        self._toolsets = toolsets
        self._standing_of = standing_of

    async def tools(self, tenant: str, agent: Agent) -> Registry:
        """Return the tools that are there for an agent, other agents among them."""
        return await with_agents(await self._toolsets.of(tenant), agent, tenant, self._store)

    async def rules(
        self, tenant: str, agent: Agent, identity: Identity, session_id: str, tools: Registry
    ) -> Rules:
        """Return the rules for a run of the agent in a session, on behalf of `identity`."""
        kept = await self._store.read(permissions.get(tenant))
        permits = Permits(identity, orjson.loads(kept.permissions))
        standing = await self._standing_of(tenant, session_id, fresh=True)
        return rules_for(agent, tools, permits, standing)
