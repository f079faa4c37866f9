"""The store as the rest of the service holds it: an engine, and group commit for the hot path."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ParamSpec, TypeVar

from milepost.core.errors import FencedError
from milepost.store import (
    artifacts,
    budgets,
    log,
    new_runs,
    pending,
    rates,
    reservations,
    spending,
)
from milepost.store.amounts import Amounts
from milepost.store.budget_counters import Place
from milepost.store.budgets import BudgetRow
from milepost.store.cancellation import heed_cancellation, told_to_stop
from milepost.store.conversations import ScopeKey
from milepost.store.engine import (
    CollisionError,
    DatabaseUnavailableError,
    Engine,
    Told,
    nobody,
)
from milepost.store.lane import Lane
from milepost.store.rates import Counting
from milepost.store.records import NO_LESSON, Append, InboxMessage, LogEntry, NewRun
from milepost.store.reservations import Holder
from milepost.store.spending import Charge, Crossing, Fit, Reserve, Settle, Shortage
from milepost.store.transaction import OpenTransaction
from milepost.store.work import Work

P = ParamSpec("P")
T = TypeVar("T")

CREATE_TRIES = 3
OUTAGE_WAITS_S = (0.05, 0.2, 0.5, 1.0, 2.0)


class Store:
    """Where everything is kept. `run` must be running for what is committed in groups.

    That goes by way of `commits`: the same database, where no crowd waits. `told` hears whether the
    database does what it is asked.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        commits: Engine | None = None,
        queue_max: int | None = None,
        waits_s: Sequence[float] = OUTAGE_WAITS_S,
        told: Told = nobody,
    ) -> None:
        self.engine = engine
        self._told = told
        self._waits_s = waits_s
        self.queue_max = queue_max
        self._creates: Lane[NewRun, new_runs.Created | Exception] = Lane(
            commits or engine, self._create_all, _creating, told
        )
        self._appends: Lane[Append, tuple[int, tuple[str, ...]]] = Lane(
            commits or engine, log.append, _appending, told
        )
        self._spending: Lane[Reserve | Settle, spending.Outcome] = Lane(
            commits or engine, spending.spend, _spending, told
        )
        self._counts: Lane[Counting, dict[str, int]] = Lane(
            commits or engine, rates.count, _counting, told
        )

    async def run(self) -> None:
        """Serve the group commits until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._creates.run())
            tasks.create_task(self._appends.run())
            tasks.create_task(self._spending.run())
            tasks.create_task(self._counts.run())

    async def read(self, work: Work[T]) -> T:
        """Do work that changes nothing."""
        return await self._asked(self.engine.read(work))

    async def write(self, work: Work[T]) -> T:
        """Do work in a transaction of its own."""
        return await self._asked(self.engine.write(work))

    def transaction(self, limit_s: float) -> AbstractAsyncContextManager[OpenTransaction]:
        """Give a transaction that stays open between statements; see `Engine.transaction`."""
        return self.engine.transaction(limit_s)

    async def landed(self, item: Append) -> bool:
        """Say whether this very append is in the log: see `append` on outages."""
        return await self._when_back(lambda: self.read(log.landed(item)))

    async def create(self, run: NewRun) -> new_runs.Created:
        """Queue a run. Raises what the run's request does not allow.

        Another process may use the same idempotency key, or become active in the session, between
        our look and our write: then we look again. After a lost answer the run may be there.
        """
        for last in (*[False] * (CREATE_TRIES - 1), True):
            try:
                outcome = await self._creates.submit(run)
            except (CollisionError, DatabaseUnavailableError):
                if created := await self.read(new_runs.landed(run)):
                    return created
                if last:
                    raise
                continue
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        raise AssertionError("the last try either returns or raises")

    async def append(self, item: Append) -> tuple[int, tuple[str, ...]]:
        """Write an iteration; return the inbox's last number and the runs that were set free.

        Raises `FencedError` or `InboxMovedError`. When the connection breaks under a commit, only
        the log can tell whether it landed: it is asked before anybody is called fenced. A database
        that is away is waited for: the run stays the caller's until somebody takes it over.
        """
        return await self._when_back(lambda: self._append(item))

    async def entries(self, tenant: str, run_id: str, through: int) -> list[LogEntry]:
        """Return the run's log as far as event `through`."""
        return await self.read(log.read_all(tenant, run_id, through=through))

    async def inbox(self, tenant: str, run_id: str, after: int) -> tuple[int, list[InboxMessage]]:
        """Return what `log.inbox` does, for whoever drives the run: see `append` on outages."""
        return await self._when_back(lambda: self.read(log.inbox(tenant, run_id, after)))

    async def keep_content(self, tenant: str, session_id: str, sha256: str, content: bytes) -> None:
        """Keep an artifact's content, for whoever drives the run: see `append` on outages."""
        work = artifacts.keep
        await self._when_back(lambda: self.write(work(tenant, session_id, sha256, content)))

    async def budgets(self, tenant: str) -> tuple[BudgetRow, ...]:
        """Return the tenant's budgets, for whoever drives a run: see `append` on outages."""
        return await self._when_back(lambda: self.read(budgets.all_of(tenant)))

    async def reserve(
        self, holder: Holder, places: Sequence[Place], fit: Fit
    ) -> Amounts | Shortage:
        """Reserve what a call takes of budgets: see `append` on outages."""
        item = Reserve(holder, places, fit)
        outcome = await self._when_back(lambda: self._spending.submit(item))
        assert isinstance(outcome, Amounts | Shortage), "so a Reserve ends"
        return outcome

    async def settle(
        self, holder: Holder, places: Sequence[Place], billed: Amounts
    ) -> tuple[Crossing, ...]:
        """Settle what a call had reserved: see `append` on outages."""
        item = Settle(holder, places, billed)
        outcome = await self._when_back(lambda: self._spending.submit(item))
        assert not isinstance(outcome, Amounts | Shortage | None), "so a Settle ends"
        return outcome

    async def free(self, tenant: str) -> int:
        """Free what the dead had reserved, as `reservations.free` does: see `append` on outages."""
        return await self._when_back(lambda: self.write(reservations.free(tenant)))

    async def charge(self, tenant: str, places: Sequence[Place], billed: Amounts) -> None:
        """Count what was taken of budgets without having been reserved, once at most.

        Not in a group: one whose answer was lost is written again, and this would count twice.
        """
        await self.write(spending.spend([Charge(tenant, places, billed)]))

    async def count(self, call: Counting) -> dict[str, int]:
        """Count a call of a run, as `rates.count` does: see `append` on outages."""
        return await self._when_back(lambda: self._counts.submit(call))

    async def pending_in(self, scope: ScopeKey) -> pending.PendingRow | None:
        """Return what waits in a conversation, for a run: see `append` on outages."""
        return await self._when_back(lambda: self.read(pending.open_in(scope)))

    async def stash(self, action: pending.NewPending, epoch: int) -> pending.Stash:
        """Keep what a tool put off, for whoever drives the run: see `append` on outages."""
        try:
            return await self._when_back(lambda: self.write(pending.stash(action, epoch)))
        except CollisionError:
            return "taken"  # by a rival that was a moment faster

    async def look(self, work: Callable[[], Work[T]]) -> T:
        """Do work that changes nothing, for whoever drives a run: see `append` on outages."""
        return await self._when_back(lambda: self.read(work()))

    def outlasting(self, act: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return `act`, which may be done twice, for whoever drives a run: see `append` on outages.

        Who gave up in the middle of a run would stop the tools that are under way in it.
        """

        async def outlast(*args: P.args, **kwargs: P.kwargs) -> T:
            return await self._when_back(lambda: act(*args, **kwargs))

        return outlast

    async def _asked(self, answer: Awaitable[T]) -> T:
        """Return what the database gives, and tell whether it did."""
        try:
            given = await answer
        except DatabaseUnavailableError as error:
            self._told(error)
            raise
        self._told(None)
        return given

    async def _append(self, item: Append) -> tuple[int, tuple[str, ...]]:
        try:
            return await self._appends.submit(item)
        except (CollisionError, FencedError) as error:
            if await self.read(log.landed(item)):
                return item.inbox_seen, ()
            raise FencedError(f"run {item.run_id} was taken over; stop writing to it") from error

    async def _when_back(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until the database answers.

        Who gave up would drop what a tool has done meanwhile. It is for others to end the wait: the
        process that is told to stop, or the shift whose worker was declared dead.
        """
        known = told_to_stop()  # Who was, and asks even so, is about to tidy up.
        for wait_s in itertools.chain(self._waits_s, itertools.repeat(self._waits_s[-1])):
            try:
                return await attempt()
            except DatabaseUnavailableError:
                heed_cancellation(known)
                await asyncio.sleep(wait_s)
        raise AssertionError("there is always another wait")

    def _create_all(self, wanted: Sequence[NewRun]) -> Work[list[new_runs.Created | Exception]]:
        return new_runs.create(wanted, queue_max=self.queue_max)


def _creating(run: NewRun) -> Sequence[object]:
    request = run.request
    asked = (request.scope, run.tenant, request.key) if request else run.id
    # Of those that act on runs which are there, one at a time: they lock more than a session.
    acts = run.if_active is not None and run.if_active.then != "reject"
    return (run.session_id, asked, *(("if_active",) if acts else ()))


def _appending(item: Append) -> Sequence[object]:
    """No two of a group are about one run, or teach one owner: a row is written once at a time."""
    if item.change is None or item.change.lesson is NO_LESSON:
        return (item.run_id,)
    taught = ((item.tenant, each.owner) for each in item.change.lesson.memories)
    return (item.run_id, *dict.fromkeys(taught))


def _spending(item: Reserve | Settle) -> Sequence[object]:
    """Let a call be settled in another group than it reserves in: that finds what this keeps."""
    return (item.holder,)


def _counting(_: Counting) -> Sequence[object]:
    """Let all calls be in one group: each is counted behind those before it."""
    return ()
