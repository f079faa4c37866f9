"""All that there is of a user, thing by thing, and never more of it in memory than a page."""

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import orjson

from milepost.api.artifacts import show_artifact
from milepost.api.batches_shown import show_batch
from milepost.api.memories_shown import show_memory
from milepost.api.runs_shown import show_run
from milepost.api.schedules_shown import show_schedule
from milepost.api.session_shown import show_session
from milepost.core.errors import NotFoundError
from milepost.live.frames import rfc3339
from milepost.store import artifacts, batches, log, memories, runs, schedules, sessions
from milepost.store.batches import BatchFilter
from milepost.store.memories import MemoryFilter
from milepost.store.records import Page, RunFilter
from milepost.store.runs import RunRow
from milepost.store.schedules import ScheduleFilter
from milepost.store.sessions import SessionFilter
from milepost.store.store import Store
from milepost.store.work import Work

PAGE = 100

R = TypeVar("R")
Thing = tuple[str, dict[str, Any]]


class Export:
    """What is kept of one user: sessions with their runs, runs elsewhere, and all else."""

    def __init__(self, store: Store, tenant: str, user: str) -> None:
        self._store = store
        self._tenant = tenant
        self._user = user

    async def things(self) -> AsyncIterator[Thing]:
        """Yield each thing with its kind; what belongs to a run comes behind it."""
        async for session in self._all(self._sessions, lambda row: row.id):
            yield "session", show_session(session)
            async for run in self._runs(RunFilter(session_id=session.id)):
                async for thing in self._of_run(run):
                    yield thing
        async for run in self._runs(RunFilter(user=self._user)):
            if not await self._is_in_own_session(run):
                async for thing in self._of_run(run):
                    yield thing
        async for batch in self._all(self._batches, lambda row: row.id):
            yield "batch", show_batch(batch)
        async for schedule in self._all(self._schedules, lambda row: row.id):
            yield "schedule", show_schedule(schedule)
        async for memory in self._all(self._memories, lambda row: row.id):
            yield "memory", show_memory(memory)

    async def _of_run(self, run: RunRow) -> AsyncIterator[Thing]:
        yield "run", show_run(run)
        for entry in await self._store.read(log.read_all(self._tenant, run.id)):
            yield (
                "event",
                {
                    "run_id": run.id,
                    "seq": entry.seq,
                    "type": entry.type,
                    "time": rfc3339(entry.time_ms),
                    "data": orjson.Fragment(entry.data),
                },
            )
        left = self._all(
            lambda page: artifacts.of_run(self._tenant, run.id, page), lambda row: row.id
        )
        async for artifact in left:
            yield "artifact", show_artifact(artifact)

    async def _is_in_own_session(self, run: RunRow) -> bool:
        try:
            row = await self._store.read(sessions.find(self._tenant, run.session_id))
        except NotFoundError:
            return False
        return row.user == self._user

    async def _all(
        self, search: Callable[[Page], Work[list[R]]], key: Callable[[R], str]
    ) -> AsyncIterator[R]:
        after: str | None = None
        while True:
            found = await self._store.read(search(Page(PAGE, after, ascending=True)))
            for row in found[:PAGE]:
                yield row
            if len(found) <= PAGE:
                return
            after = key(found[PAGE - 1])

    def _sessions(self, page: Page) -> Work[list[sessions.SessionRow]]:
        return sessions.search(self._tenant, SessionFilter(user=self._user), page)

    def _runs(self, wanted: RunFilter) -> AsyncIterator[RunRow]:
        return self._all(lambda page: runs.search(self._tenant, wanted, page), lambda row: row.id)

    def _batches(self, page: Page) -> Work[list[batches.BatchRow]]:
        return batches.search(self._tenant, BatchFilter(user=self._user), page)

    def _schedules(self, page: Page) -> Work[list[schedules.ScheduleRow]]:
        return schedules.search(self._tenant, ScheduleFilter(user=self._user), page)

    def _memories(self, page: Page) -> Work[list[memories.MemoryRow]]:
        return memories.search(self._tenant, MemoryFilter(user=self._user), page)
