"""The keeper: erases what has been kept for as long as it was to be, in every process.

One of them at a time does so, a page in a transaction, beside whatever else goes on: two that do it
at once skip what the other one holds.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from typing import TypeVar

from milepost.runtime.journal import Ports
from milepost.store import partitions, retention
from milepost.store.partitions import Partition
from milepost.store.removals import remove_runs
from milepost.store.retention import Expired, RetentionRow, Wearing
from milepost.store.work import Work
from milepost.telemetry.logs import logger
from milepost.worker.turns import take_turn

KEEP_S = 60.0
PAGES_MAX = 1_000

T = TypeVar("T")


class Keeper:
    """Keeps what a tenant and a session say, and nothing longer than `kept_max_ms`."""

    def __init__(
        self, ports: Ports, *, kept_max_ms: int | None = None, keep_s: float = KEEP_S
    ) -> None:
        self._ports = ports
        self._kept_max_ms = kept_max_ms
        self._keep_s = keep_s
        self._places: dict[tuple[str, Wearing], str] = {}
        self._log = logger("keeper")

    async def run(self) -> None:
        """Look for what is to go until cancelled."""
        while True:
            await take_turn(self._turn(), None, self._log)
            await asyncio.sleep(self._keep_s * random.uniform(0.4, 0.6))  # noqa: S311 - jitter

    async def _turn(self) -> None:
        every_ms = round(self._keep_s * 1000)
        if await self._write(retention.take_turn(self._ports.clock(), every_ms)):
            await self.keep()

    async def keep(self) -> Counter[str]:
        """Erase what is due by now; return how much of what that was."""
        gone: Counter[str] = Counter()
        for part in (self._keep_sessions, self._keep_terms, self._keep_tenants, self._keep_all):
            gone += await take_turn(part(), Counter(), self._log)
        if gone:
            self._log.info("what was kept for long enough is gone", **gone)
        return gone

    async def _keep_sessions(self) -> Counter[str]:
        """Erase the sessions whose time is over.

        All are looked at: those that cannot be erased would else hide the ones behind them.
        """
        now, gone = self._ports.clock(), 0
        behind: Expired | None = None
        for _ in range(PAGES_MAX):
            page = await self._read(retention.expired(now, behind))
            for each in page:
                gone += await take_turn(self._keep_session(each, now), False, self._log)
            if len(page) < retention.SESSIONS_MAX:
                break
            behind = page[-1]
        return Counter(sessions=gone)

    async def _keep_session(self, over: Expired, now: int) -> bool:
        """Erase a session whose time is over; return whether it is gone."""
        tenant, session_id, _ = over
        for _ in range(PAGES_MAX):
            if not await self._write(retention.remove_expired(tenant, session_id, now)):
                break
        return not await self._read(retention.is_there(tenant, session_id))

    async def _keep_terms(self) -> Counter[str]:
        """Erase the runs of sessions that say how long these are kept."""
        after, gone = "", 0
        for _ in range(PAGES_MAX):
            page = await self._read(retention.keeping(after))
            for session_id, tenant, keep_ms in page:
                gone += await take_turn(self._keep_term(tenant, session_id, keep_ms), 0, self._log)
            if len(page) < retention.SESSIONS_MAX:
                break
            after = page[-1][0]
        return Counter(runs=gone)

    async def _keep_term(self, tenant: str, session_id: str, keep_ms: int) -> int:
        """Erase a session's runs that were kept as long as it says; return how many."""
        before, gone = self._ports.clock() - keep_ms, 0
        for _ in range(PAGES_MAX):
            removed = await self._write(retention.remove_kept(tenant, session_id, before))
            gone += removed
            if not removed:
                break
        return gone

    async def _keep_tenants(self) -> Counter[str]:
        """Erase what tenants want to be kept no longer."""
        after, gone = "", Counter[str]()
        for _ in range(PAGES_MAX):
            page = await self._read(retention.all_after(after))
            for row in page:
                gone += await take_turn(self._keep_tenant(row), Counter(), self._log)
            if len(page) < retention.TENANTS_MAX:
                break
            after = page[-1].tenant
        return gone

    async def _keep_tenant(self, row: RetentionRow) -> Counter[str]:
        now, rules, gone = self._ports.clock(), row.rules, Counter[str]()
        if rules.runs_ms is not None:
            before = now - rules.runs_ms
            gone["runs"] = await self._through(
                lambda after: retention.remove_due(row.tenant, after, before)
            )
            gone["batches"] = await self._through(
                lambda after: retention.remove_batches(row.tenant, after, before)
            )
        wearing: dict[Wearing, int | None] = {
            "events": rules.events_ms,
            "traces": rules.traces_ms,
            "artifacts": rules.artifacts_ms,
        }
        for resource, kept_ms in wearing.items():
            if kept_ms is not None:
                gone[resource] = await self._wear(row.tenant, resource, now - kept_ms)
        if rules.memories_ms is not None:
            gone["memories"] = await self._forget(row.tenant, now - rules.memories_ms)
        return gone

    async def _through(self, page: Callable[[str], Work[tuple[int, str | None]]]) -> int:
        """Do page after page until there is none; return how much is gone."""
        after: str | None = ""
        gone = 0
        for _ in range(PAGES_MAX):
            if after is None:
                break
            removed, after = await self._write(page(after))
            gone += removed
        return gone

    async def _wear(self, tenant: str, resource: Wearing, before_ms: int) -> int:
        """Erase a part of the tenant's runs; return how much is gone.

        Where a run that goes on keeps the mark back, a turn may end before it has come to all that
        are behind it: the next one in this process goes on there.
        """
        after = self._places.pop((tenant, resource), None)
        solid, gone = after is None, 0
        for _ in range(PAGES_MAX):
            worn = await self._write(
                retention.wear(tenant, resource, after, before_ms, solid=solid)
            )
            after, solid, gone = worn.after, worn.solid, gone + worn.gone
            if after is None:
                break
        if after is not None:
            self._places[tenant, resource] = after
        return gone

    async def _forget(self, tenant: str, before_ms: int) -> int:
        gone = 0
        for _ in range(PAGES_MAX):
            forgotten = await self._write(retention.forget_memories(tenant, before_ms))
            gone += forgotten
            if forgotten < retention.MEMORIES_MAX:
                break
        return gone

    async def _keep_all(self) -> Counter[str]:
        """Erase what nobody has kept for longer, and drop the log of all those runs as a whole."""
        if self._kept_max_ms is None:
            return Counter()
        store, before = self._ports.store, self._ports.clock() - self._kept_max_ms
        past = await partitions.past(store, before)
        gone = await self._remove_all(before, past)
        dropped = await partitions.drop_before(store, before) if past else None
        return Counter(runs=gone, partitions=len(dropped.gone) if dropped else 0)

    async def _remove_all(self, before_ms: int, past: list[Partition]) -> int:
        after, gone = "", 0
        for _ in range(PAGES_MAX):
            page = await self._read(retention.due_of_all(after, before_ms))
            for tenant, theirs in groupby(sorted(page, key=_tenant_of), key=_tenant_of):
                run_ids = [run_id for run_id, _ in theirs]
                gone += await take_turn(self._remove(tenant, run_ids, past), 0, self._log)
            if len(page) < retention.RUNS_MAX:
                break
            after = page[-1][0]
        return gone

    async def _remove(self, tenant: str, run_ids: list[str], past: list[Partition]) -> int:
        return len((await self._write(remove_runs(tenant, run_ids, past=past))).gone)

    async def _read(self, work: Work[T]) -> T:
        return await self._ports.store.read(work)

    async def _write(self, work: Work[T]) -> T:
        return await self._ports.store.write(work)


def _tenant_of(due: tuple[str, str]) -> str:
    return due[1]
