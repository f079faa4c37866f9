"""What the tests of keeper and eraser have in common: old runs, and what looks after them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import Table, func, select, update

from milepost.core.codec import encode
from milepost.core.events import RunQueued
from milepost.core.ids import format_id
from milepost.live.hub import Hub
from milepost.providers.cache_memory import InProcessCache
from milepost.runtime.artifacts import Shelf
from milepost.runtime.clock import Ids
from milepost.runtime.journal import Ports, no_export
from milepost.store import retention, schema
from milepost.store.blobs import Blobs, DirectoryBlobs
from milepost.store.records import Change, Claim, Entry, NewRun
from milepost.store.retention import Rules
from milepost.store.store import Store
from milepost.store.work import Statement, Work
from milepost.telemetry.metrics import Metrics
from milepost.worker.eraser import Eraser
from milepost.worker.keeper import Keeper
from tests.store.making import TENANT, a_run, an_id, finished, waiting

DAY_MS = 86_400_000
NOW_MS = 1_795_400_000_000
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Household:
    """A store, and what keeps it in order; it is `NOW_MS` there."""

    store: Store
    ports: Ports
    keeper: Keeper
    eraser: Eraser
    cache: InProcessCache

    async def rule(self, **rules: int) -> None:
        """Have the tenant keep things for so many milliseconds."""
        before = await self.store.read(retention.get(TENANT))
        await self.store.write(retention.replace(before, Rules(**rules), NOW_MS))

    async def left(self, table: Table, **wanted: Any) -> int:
        """Return how many such rows there are."""
        return await self.store.read(_count(table, wanted))

    async def change_leftovers(self, *, due_ms: int) -> None:
        """Have all that is left looked at again then."""
        await self.store.write(_redue(due_ms))

    async def change(self, table: Table, id_: str, **values: Any) -> None:
        """Change a row, as nobody may."""
        await self.store.write(_changed(table, id_, values))


def _redue(due_ms: int) -> Work[None]:
    yield Statement(update(schema.leftovers).values(due_ms=due_ms))()


def household(
    store: Store,
    folder: Path,
    *,
    kept_max_ms: int | None = None,
    now_ms: int = NOW_MS,
    blobs: Blobs | None = None,
) -> Household:
    """Return such a house."""
    shelf = Shelf(store, blobs or DirectoryBlobs(folder))
    ports = Ports(store, Hub(), lambda: now_ms, Ids(), Metrics(), shelf, no_export)
    cache = InProcessCache()
    return Household(
        store, ports, Keeper(ports, kept_max_ms=kept_max_ms), Eraser(ports, cache), cache
    )


def a_run_of(time_ms: int, **changes: Any) -> NewRun:
    """Return a run that was made then."""
    run_id = format_id("run", time_ms, next(_numbers))
    queued = RunQueued("clerk", "agt_1", 1, "ses_1", ())
    entry = Entry(queued.type, time_ms, encode(queued).decode())
    return a_run(id=run_id, created_ms=time_ms, queued=entry, **changes)


def a_child_of(run: NewRun, **changes: Any) -> NewRun:
    """Return a run that this one has started."""
    made = a_run_of(run.created_ms, parent_run_id=run.id, parent_call_id=an_id("call"))
    return replace(made, user=run.user, **changes)


async def ended(store: Store, time_ms: int, run: NewRun | None = None, **changes: Any) -> Claim:
    """Create a run that was made and ended then; return the claim that its worker had."""
    change = Change("completed", outcome="{}", ended_ms=time_ms)
    return await finished(store, run or a_run_of(time_ms), change=change, **changes)


async def waits(store: Store, time_ms: int, run: NewRun | None = None) -> Claim:
    """Create a run that was made then, and still waits."""
    return await waiting(store, run or a_run_of(time_ms))


def told(run_ids: Sequence[str]) -> Work[None]:
    """Have the parents of these runs know that they are over."""
    table = schema.runs
    yield Statement(update(table).where(table.c.id.in_(run_ids)).values(told_ms=1))()


def _count(table: Table, wanted: dict[str, Any]) -> Work[int]:
    conditions = [table.c[name] == value for name, value in wanted.items()]
    ((found,),) = yield Statement(select(func.count()).select_from(table).where(*conditions))()
    return int(found)


def _changed(table: Table, id_: str, values: dict[str, Any]) -> Work[None]:
    yield Statement(update(table).where(table.c.id == id_).values(values))()
