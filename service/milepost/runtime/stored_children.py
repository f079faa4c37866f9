"""A store's own runs as the children of others: queued for whichever worker is free."""

import asyncio
from contextlib import suppress

from milepost.core.agents import Agent
from milepost.core.effects import CallTool
from milepost.core.errors import MilepostError, OverloadedError
from milepost.core.events import ChildRunStarted, Event, Failure, ToolCallFailed
from milepost.core.state import State
from milepost.live.hub import QUEUE_BELL, inbox_bell
from milepost.runtime.cancelling import abandon_children
from milepost.runtime.child_runs import child_of, tell, with_agents
from milepost.runtime.journal import Ports
from milepost.store import children, new_runs, runs
from milepost.store.records import Claim
from milepost.tools import Registry

LOOK_S = 0.2


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
        return await self._ports.store.outlasting(self._start)(effect, seq, claim, agent, state)

    async def _start(
        self, effect: CallTool, seq: int, claim: Claim, agent: Agent, state: State
    ) -> Event:
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

    async def call_off(self, claim: Claim, state: State, within_s: float) -> frozenset[str]:
        """Tell them to stop, and wait for so long until they are over."""
        asked = state.open_children
        bell = self._ports.hub.bell(inbox_bell(claim.run_id))
        with suppress(MilepostError, TimeoutError), bell as told:
            await abandon_children(self._ports, claim.tenant, claim.run_id)
            async with asyncio.timeout(within_s):
                while await self._open(claim):
                    await _heard(told)
        return asked - await self._open(claim)

    async def _open(self, claim: Claim) -> frozenset[str]:
        tenant, run_id = claim.tenant, claim.run_id
        return frozenset(await self._ports.store.look(lambda: children.open_of(tenant, run_id)))

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


async def _heard(told: asyncio.Event) -> None:
    """Wait for the bell that a child rings when it is over; of one elsewhere it may be lost."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_S):
            await told.wait()
    told.clear()
