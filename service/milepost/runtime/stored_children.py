"""A store's own runs as the children of others: queued for whichever worker is free."""

from contextlib import suppress

from milepost.core.agents import Agent
from milepost.core.effects import CallTool
from milepost.core.errors import MilepostError, OverloadedError
from milepost.core.events import ChildRunStarted, Event, Failure, ToolCallFailed
from milepost.core.state import State
from milepost.live.hub import QUEUE_BELL
from milepost.runtime.cancelling import abandon_children
from milepost.runtime.child_runs import child_of, tell, with_agents
from milepost.runtime.journal import Ports
from milepost.store import new_runs, runs
from milepost.store.records import Claim
from milepost.tools import Registry


class StoredChildren:
    """Finds agents by their names in the store, and queues their runs there."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def join(self, tools: Registry, agent: Agent, tenant: str) -> Registry:
        """Return the tools with those that the tenant's other agents are."""
        return await with_agents(tools, agent, tenant, self._ports.store)

    async def start(
        self, effect: CallTool, seq: int, claim: Claim, agent: Agent, state: State
    ) -> Event:
        """Queue the run that the call becomes; one that was queued before stays as it is."""
        wanted = await child_of(effect, seq, claim, agent, state, self._ports)
        if isinstance(wanted, Failure):
            return ToolCallFailed(effect.call.id, wanted)
        try:
            await self._ports.store.create(wanted)
        except OverloadedError as error:
            # A full queue refuses before it looks whether the run is there since an earlier try.
            if await self._ports.store.read(new_runs.landed(wanted)) is None:
                failure = Failure(error.code, str(error), error.retryable)
                return ToolCallFailed(effect.call.id, failure)
        self._ports.hub.ring(QUEUE_BELL)
        return ChildRunStarted(effect.call.id, wanted.id, wanted.agent)

    async def part(self, claim: Claim, state: State) -> None:
        """Tell the parent that this run is over, and stop the children that nobody waits for.

        The run has ended whatever comes of this: what fails here, the sweeper does.
        """
        with suppress(MilepostError):
            if state.open_children:
                await abandon_children(self._ports, claim.tenant, claim.run_id)
            if state.parent is not None:
                row = await self._ports.store.read(runs.find(claim.tenant, claim.run_id))
                await tell(self._ports, row)
