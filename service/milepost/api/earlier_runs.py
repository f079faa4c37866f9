"""Runs that were made before, for who looks at them again: their logs, and under whose rules."""

from milepost.core.agents import Agent
from milepost.core.errors import ConflictError
from milepost.runtime.definitions import Definitions
from milepost.store import agents, log
from milepost.store.records import LogEntry
from milepost.store.runs import RunRow
from milepost.store.store import Store

EVENTS_MAX = 20_000
BYTES_MAX = 67_108_864


class EarlierRuns:
    """Reads logs within bounds, and finds the agents that they are to be held against."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._definitions = Definitions(store)

    async def log(self, row: RunRow) -> tuple[list[LogEntry], bool]:
        """Return the run's log as far as the bounds allow, and whether that is all of it.

        Raises `ConflictError` if the run has been kept for longer than its log.
        """
        entries: list[LogEntry] = []
        size = 0
        while (room := min(EVENTS_MAX - len(entries), log.READ_MAX)) > 0 and size < BYTES_MAX:
            after = entries[-1].seq if entries else 0
            page = await self._store.read(log.read(row.tenant, row.id, after=after, limit=room))
            entries += page
            size += sum(len(entry.data) for entry in page)
            if not entries:
                raise ConflictError(
                    f"the log of run {row.id} was kept no longer, and only its outcome is left",
                    code="log_gone",
                )
            if len(page) < room:
                return entries, True
        return entries, entries[-1].seq == await self._store.read(log.head(row.tenant, row.id))

    async def whole_log(self, row: RunRow) -> list[LogEntry]:
        """Return the run's log; raise `ConflictError` where it is too long."""
        entries, whole = await self.log(row)
        if not whole:
            raise ConflictError(
                f"the log of run {row.id} is longer than {EVENTS_MAX} events or {BYTES_MAX} bytes,"
                " and no run is forked off such a one",
                code="log_too_long",
            )
        return entries

    async def own_agent(self, row: RunRow) -> Agent:
        """Return the very version that the run has."""
        return await self._definitions.get(row.tenant, row.agent_id, row.agent_version)

    async def agent(self, row: RunRow, named: str | None, version: int | None) -> Agent:
        """Return the agent that is named, as it is now unless a version is; else the run's own."""
        agent_id, latest = row.agent_id, row.agent_version
        if named is not None:
            found = await self._store.read(agents.find(row.tenant, named))
            agent_id, latest = found.id, found.version
        number = latest if version is None else version
        return await self._definitions.get(row.tenant, agent_id, number)
