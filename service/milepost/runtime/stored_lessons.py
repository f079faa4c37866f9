"""What runs leave for memory in a service's database: to be read, or what they have learned."""

from collections import Counter
from collections.abc import Collection, Sequence

from milepost.core.agents import Agent
from milepost.core.errors import NotFoundError
from milepost.core.events import Event, MemoryExtracted, RunCompleted, RunIncomplete
from milepost.core.memories import MemoryKind, Owner
from milepost.core.state import State
from milepost.memory import extraction
from milepost.memory.extraction import KEPT_MAX, Learned
from milepost.runtime.clock import Clock, NewId
from milepost.runtime.definitions import Definitions
from milepost.runtime.memory_runs import base_of
from milepost.runtime.recalling import owners_of
from milepost.store import memories, recollections, rollbacks
from milepost.store.memories import NewMemory, Source
from milepost.store.recollections import Read
from milepost.store.records import NO_LESSON, Claim, Lesson
from milepost.store.store import Store

_KEYS_MAX = 2_000


class StoredLessons:
    """Finds what a run leaves for memory, over a store."""

    def __init__(self, store: Store, clock: Clock, new_id: NewId) -> None:
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._definition = store.outlasting(Definitions(store).get)

    async def of(
        self, claim: Claim, agent: Agent, state: State, end: Event
    ) -> tuple[MemoryExtracted | None, Lesson]:
        """Return the event that says so, if one does, and what is to be written beside the end."""
        base_id = base_of(agent.id)
        if base_id is not None:
            return await self._learned(claim, base_id, state, end)
        extract = agent.memory.extract if agent.memory else None
        has_answered = isinstance(end, RunCompleted | RunIncomplete) and state.step > 0
        if extract is None or not has_answered:
            return None, NO_LESSON
        if extract.scope == "user" and claim.user is None:
            return MemoryExtracted(claim.run_id, reason="no_user"), NO_LESSON
        return None, Lesson(is_to_be_read=True)

    async def _learned(
        self, claim: Claim, base_id: str, state: State, end: Event
    ) -> tuple[MemoryExtracted | None, Lesson]:
        """Return what a memory run has learned of the run that it has read."""
        if not isinstance(end, RunCompleted) or state.parent is None or end.output is None:
            return None, NO_LESSON
        of_run, answer = state.parent.run_id, end.output.parsed
        try:
            read = await self._store.look(lambda: recollections.read(claim.tenant, of_run))
        except NotFoundError:
            return MemoryExtracted(of_run, reason="run_gone"), NO_LESSON
        if await self._store.look(lambda: rollbacks.is_rolled_back(claim.tenant, of_run)):
            return MemoryExtracted(of_run, reason="rolled_back"), NO_LESSON
        base = await self._definition(claim.tenant, base_id, claim.agent_version)
        extract = base.memory.extract if base.memory else None
        assert extract is not None, "or its run was not read"
        found = extraction.learned(answer, extract)
        [owner] = owners_of([extract.scope], read.session_id, claim.user, base_id)
        counts = Counter(each.finding.kind for each in found)
        told = MemoryExtracted(
            of_run,
            counts["entity"],
            counts["relation"],
            counts["fact"] + counts["log"],
            await self._pruned(claim.tenant, owner, found),
        )
        shown = extraction.numbers_in("\n".join(each.content for each in state.messages[:1]))
        kept = tuple(self._memory(claim, owner, each, read, shown) for each in found)
        return told, Lesson(memories=kept, kept_max=KEPT_MAX) if kept else NO_LESSON

    async def _pruned(self, tenant: str, owner: Owner, found: Sequence[Learned]) -> int:
        """Return how many memories have to make room."""
        present = await self._store.look(lambda: memories.keys(tenant, owner, _KEYS_MAX))
        after = {*present, *((each.finding.kind, each.finding.key) for each in found)}
        counts: Counter[MemoryKind] = Counter(kind for kind, _ in after)
        touched = {each.finding.kind for each in found}
        return sum(max(0, counts[kind] - KEPT_MAX[kind]) for kind in touched)

    def _memory(
        self, claim: Claim, owner: Owner, learned: Learned, read: Read, shown: Collection[int]
    ) -> NewMemory:
        place = None
        if read.turn is not None and learned.message in shown:
            place = f"{read.turn}.{learned.message}"
        return NewMemory(
            id=self._new_id("mem"),
            tenant=claim.tenant,
            owner=owner,
            finding=learned.finding,
            source=Source("run", claim.user, read.run_id, read.session_id, place),
            now_ms=self._clock(),
        )
