"""What the tools `remember` and `recall` keep and find: memories in the service's own database."""

from collections.abc import Sequence

import orjson

from milepost.core.agents import Agent, Remembered
from milepost.core.errors import ToolError
from milepost.core.memories import Finding, MemoryScope, sought
from milepost.memory.extraction import KEPT_MAX
from milepost.runtime.clock import Clock, NewId
from milepost.runtime.definitions import Definitions
from milepost.runtime.recalling import both, in_a_line, owners_of
from milepost.runtime.vectors import Vectors
from milepost.store import erasures, memories, rollbacks, runs
from milepost.store.memories import MemoryRow, NewMemory, Source
from milepost.store.store import Store
from milepost.store.usage import Account
from milepost.store.work import Work
from milepost.tools import ToolContext

FOUND_MAX = 20


class StoredNotes:
    """Keeps for whom the run's agent learns, and looks where it recalls.

    A database that is away is waited for, as by all that a run does.
    """

    def __init__(
        self, store: Store, clock: Clock, new_id: NewId, vectors: Vectors | None = None
    ) -> None:
        self._store = store
        self._vectors = vectors
        self._clock = clock
        self._new_id = new_id
        self._definitions = Definitions(store)

    async def keep(self, context: ToolContext, finding: Finding) -> str:
        """Keep it, once; say whose memory it is in."""
        return await self._store.outlasting(self._keep)(context, finding)

    async def look(self, context: ToolContext, query: str) -> Sequence[str]:
        """Return what is known about it, the best first, a line each."""
        if not (named := sought(query)):
            return ()
        return await self._store.outlasting(self._look)(context, query, named)

    async def _keep(self, context: ToolContext, finding: Finding) -> str:
        agent = await self._agent(context)
        scope = _scope(agent, context)
        [owner] = owners_of([scope], context.session_id, context.user, agent.id)
        new = NewMemory(
            id=self._new_id("mem"),
            tenant=context.tenant,
            owner=owner,
            finding=finding,
            source=Source("tool", context.user, context.run_id, context.session_id),
            now_ms=self._clock(),
        )
        await self._store.write(_kept(new))
        return scope

    async def _look(self, context: ToolContext, query: str, named: Sequence[str]) -> Sequence[str]:
        agent = await self._agent(context)
        wanted = (agent.memory and agent.memory.recall) or Remembered()
        owners = owners_of(wanted.scopes, context.session_id, context.user, agent.id)
        work = memories.matching(context.tenant, owners, named, FOUND_MAX)
        found = await self._store.read(work)
        if self._vectors:
            account = Account(
                context.tenant,
                context.user,
                context.run_id,
                context.session_id,
                agent.name,
                agent.id,
                orjson.dumps(dict(context.metadata)).decode(),
            )
            near = await self._vectors.nearest(account, owners, query, FOUND_MAX)
            found = both(found, near)
        return [in_a_line(row) for row in found[:FOUND_MAX]]

    async def _agent(self, context: ToolContext) -> Agent:
        row = await self._store.read(runs.find(context.tenant, context.run_id))
        return await self._definitions.get(row.tenant, row.agent_id, row.agent_version)


def _scope(agent: Agent, context: ToolContext) -> MemoryScope:
    """Return whose memory it is to be: as the agent learns, or else the user's if there is one."""
    extract = agent.memory.extract if agent.memory else None
    if extract is None:
        return "session" if context.user is None else "user"
    if extract.scope == "user" and context.user is None:
        raise ToolError(
            "nothing was kept: this agent remembers for users, and the run acts for none"
        )
    return extract.scope


def _kept(new: NewMemory) -> Work[MemoryRow]:
    """Keep it, and forget what was not mentioned for longest where there is too much.

    Raises `ToolError` where the run was rolled back: that may not come between.
    """
    source = new.source
    assert source.run_id is not None, "a run has called the tool"
    yield from erasures.require_none(new.tenant, source.user)  # Before any row is held.
    if (yield from rollbacks.is_rolled_back(new.tenant, source.run_id, hold=True)):
        raise ToolError("nothing was kept: the run was rolled back")
    row = yield from memories.keep(new)
    yield memories.pruning(new.tenant, new.owner, row.kind, KEPT_MAX[row.kind])
    return row
