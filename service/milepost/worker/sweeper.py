"""What time brings: dead workers, scheduled runs, deadlines, and what nobody answered or needs."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

import orjson

from milepost.core.events import RunCancelled, RunExpired
from milepost.live.hub import (
    OUTBOX_BELL,
    QUEUE_BELL,
    approvals_bell,
    inbox_bell,
    session_bell,
)
from milepost.runtime.cancelling import cancel_child
from milepost.runtime.child_runs import tell
from milepost.runtime.ending import end_run
from milepost.runtime.journal import Ports
from milepost.store import (
    approval_times,
    budget_counters,
    children,
    conversations,
    idempotency,
    log,
    partitions,
    queue,
    rates,
    reservations,
    runs,
    schema,
    webhook_deliveries,
)
from milepost.store.runs import RunRow, StaleError
from milepost.store.work import Work
from milepost.telemetry.logs import logger
from milepost.worker.turns import take_turn

SWEEP_S = 5.0
TIMERS_S = 0.5
PURGE_S = 3_600.0
DUE_MAX = 100
PAGES_MAX = 10
SWEEPS_MAX = 100
PURGES_MAX = 1_000


class Lease(Protocol):
    """What says whether this process may judge others, and is told that its event loop turns."""

    @property
    def steady(self) -> bool:
        """Say whether the lease stood without a gap for a whole lifetime of one."""

    def pulse(self) -> None:
        """Say that the event loop turns."""


class Sweeper:
    """Runs in every process, without a leader: whatever it does is a compare-and-set."""

    def __init__(self, ports: Ports, lease: Lease, *, sweep_s: float = SWEEP_S) -> None:
        self._ports = ports
        self._lease = lease
        self._sweep_s = sweep_s
        self._log = logger("sweeper")

    async def run(self) -> None:
        """Sweep and look at the clock until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(self.sweep, self._sweep_s))
            tasks.create_task(self._repeat(self.tick, min(TIMERS_S, self._sweep_s)))
            tasks.create_task(self._repeat(self.reunite, self._sweep_s))
            tasks.create_task(self._repeat(self.free, self._sweep_s))
            tasks.create_task(self._repeat(self.purge, PURGE_S))
            tasks.create_task(self._repeat(self.make_ahead, PURGE_S))

    async def sweep(self) -> list[str]:
        """Queue the runs of workers that are dead; return them."""
        if not self._lease.steady:
            return []
        return await self.sweep_now()

    async def sweep_now(self) -> list[str]:
        """Sweep without asking whether our own lease stood long enough."""
        stranded: list[str] = []
        for _ in range(SWEEPS_MAX):
            found = await self._ports.store.write(queue.sweep())
            stranded += found
            if len(found) < queue.SWEEP_MAX:
                break
        if stranded:
            self._log.info("runs of dead workers were queued again", runs=stranded)
            self._ports.hub.ring(QUEUE_BELL)
        return stranded

    async def tick(self) -> None:
        """Do what is due, a page at a time.

        Nothing is looked at twice: what cannot be done would else hide what is due behind it.
        """
        now = self._ports.clock()
        seen: list[str] = []
        for _ in range(PAGES_MAX):
            expired = await self._expire(now)
            reminded = await self._remind(now)
            acted = await self._act_on_due(now, seen)
            seen += acted
            if max(expired, reminded, len(acted)) < DUE_MAX:
                break

    async def reunite(self) -> None:
        """Tell parents of children that are over, and stop children whose parent is.

        Whoever ended them does so at once; this is for those that died before they could.
        """
        for child in await self._ports.store.read(children.untold(DUE_MAX)):
            await take_turn(tell(self._ports, child), None, self._log)
        seen: list[str] = []
        for _ in range(PAGES_MAX):
            found = await self._ports.store.read(children.orphans(DUE_MAX, seen))
            for tenant, run_id in found:
                await take_turn(cancel_child(self._ports, tenant, run_id), None, self._log)
            if len(found) < DUE_MAX:
                break
            seen += [run_id for _, run_id in found]

    async def free(self) -> int:
        """Give back what dead workers had reserved of budgets; return how much that was.

        Whoever is short of something does so itself: this is for what nobody asks for.
        """
        return await self._in_parts(reservations.free, reservations.FREE_MAX)

    async def purge(self) -> int:
        """Forget keys of requests, messages and counters of budgets that are past; say how many.

        What was sent to webhooks is forgotten, too, and how often calls were made.
        """
        now, in_parts = self._ports.clock(), self._in_parts
        forgotten = await in_parts(lambda: idempotency.purge(now), idempotency.PURGE_MAX)
        heard = await in_parts(lambda: conversations.purge(now), conversations.PURGE_MAX)
        past = await in_parts(lambda: budget_counters.purge(now), budget_counters.PURGE_MAX)
        sent = await in_parts(lambda: webhook_deliveries.purge(now), webhook_deliveries.PURGE_MAX)
        marked = await in_parts(lambda: rates.purge(now), rates.PURGE_MAX)
        return forgotten + heard + past + sent + marked

    async def make_ahead(self) -> list[str]:
        """Make room in the log for the weeks to come; return the names of what was made."""
        return await partitions.make_ahead(self._ports.store, self._ports.clock())

    async def _in_parts(self, work: Callable[[], Work[int]], most: int) -> int:
        """Do so much of the work in a transaction, lest anybody waits for it; return how much."""
        total = 0
        for _ in range(PURGES_MAX):
            done = await self._ports.store.write(work())
            total += done
            if done < most:
                break
        return total

    async def _expire(self, now: int) -> int:
        """Do with what nobody answered in time as its terms say; return of how many runs."""
        told = await self._ports.store.write(approval_times.expire_due(now, DUE_MAX))
        for tenant, run_id in told:
            self._ports.hub.ring(approvals_bell(tenant))
            self._ports.hub.ring(inbox_bell(run_id))
            self._ports.hub.ring(QUEUE_BELL)
        return len(told)

    async def _remind(self, now: int) -> int:
        """Remind people of what has waited for long; return of how many questions."""
        reminded = await self._ports.store.write(approval_times.remind_due(now, DUE_MAX))
        for row in reminded:
            self._ports.hub.ring(approvals_bell(row.tenant))
        if reminded:
            self._ports.hub.chime(OUTBOX_BELL)
        return len(reminded)

    async def _act_on_due(self, now: int, seen: Sequence[str]) -> list[str]:
        """Do what runs are due for, but for those that were seen; return which there were."""
        due = await self._ports.store.read(runs.due(now, DUE_MAX, seen))
        for row in due:
            await take_turn(self._act(row, now), None, self._log)
        return [row.id for row in due]

    async def _act(self, row: RunRow, now: int) -> None:
        with suppress(StaleError):  # Somebody else was faster.
            await self._do(row, now)

    async def _do(self, row: RunRow, now: int) -> None:
        if row.status == "scheduled" and row.run_at_ms <= now:
            if await self._ports.store.write(runs.start_scheduled(row)):
                self._ports.hub.ring(QUEUE_BELL)
                self._ports.hub.ring(session_bell(row.session_id))
        elif row.cancel_ms is not None and row.status in schema.ACTIVE:
            await self._force(row)
        elif row.deadline_ms is not None and row.deadline_ms <= now:
            await end_run(self._ports, row, lambda used: RunExpired("deadline", used))

    async def _force(self, row: RunRow) -> None:
        """End a run whose worker did not heed the cancellation in time, or that nobody takes."""
        _, letters = await self._ports.store.read(log.inbox(row.tenant, row.id, 0))
        asked = (orjson.loads(letter.data) for letter in letters if letter.kind == "cancel")
        said: dict[str, str | None] = next(asked, {})
        by, reason = said.get("by") or "grace", said.get("reason")
        await end_run(self._ports, row, lambda used: RunCancelled(by, reason, (), used))

    async def _repeat(self, turn: Callable[[], Awaitable[object]], every_s: float) -> None:
        while True:
            self._lease.pulse()
            await take_turn(turn(), None, self._log)
            await asyncio.sleep(every_s * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
