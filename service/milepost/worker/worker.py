"""A worker: it claims runs for its free slots and drives each to where it ends, waits or fails."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from milepost.core.errors import FencedError, MilepostError, UnavailableError
from milepost.core.scarcity import is_scarcity
from milepost.dispatch.port import Dispatcher, Offer
from milepost.dispatch.sql import Sql
from milepost.live.hub import QUEUE_BELL, RunTail
from milepost.runtime.definitions import Definitions
from milepost.runtime.drive import Drive, drive
from milepost.runtime.history import History
from milepost.runtime.journal import Ports
from milepost.runtime.means import Means
from milepost.store import queue
from milepost.store.cancellation import heed_cancellation
from milepost.store.engine import CollisionError, DatabaseUnavailableError
from milepost.store.records import Claim
from milepost.store.work import Work
from milepost.telemetry.logs import logger

IDLE_POLL_S = 1.0
AGAIN_S = 0.02
STRAYS_S = 5.0
FAIR_EVERY = 8
LACK_POLLS = 5
RELEASE_WAITS_S = (0.1, 0.5, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class _Taken:
    """What a claim took, and whether it may have left some that are ready, too."""

    claims: Sequence[Claim] = ()
    left_some: bool = False


@dataclass(slots=True)
class _Driven:
    """A run in hand. `drive` and `tail` are None while it is being loaded."""

    claim: Claim
    drive: Drive | None = None
    tail: RunTail | None = None
    achieved: bool = False

    @property
    def crashes(self) -> int:
        """How often it crashed its worker, as far as anybody knows: 0 once it achieved anything.

        But at a call it may be about to crash again, whatever it has said before.
        """
        if self.claim.crashes and not self.achieved and self.tail is not None:
            self.achieved = not (self.drive and self.drive.is_at_a_call) and any(
                frame.type in queue.PROGRESS and frame.seq > self.claim.head
                for frame in self.tail.ring
            )
        return 0 if self.achieved else self.claim.crashes


class Worker:
    """Up to `slots` runs at once, under one lease; `dispatcher` says which to claim."""

    def __init__(  # noqa: PLR0913 - three of them have what suits a worker of its own
        self,
        worker_id: str,
        slots: int,
        ports: Ports,
        means: Means,
        *,
        poll_s: float = IDLE_POLL_S,
        strays_s: float = STRAYS_S,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        self.id = worker_id
        self.slots = slots
        self._ports = ports
        self._means = means
        self._poll_s = poll_s
        self._strays_s = strays_s
        self._dispatcher = dispatcher or Sql(QUEUE_BELL)
        self._definitions = Definitions(ports.store)
        self._history = History(ports.store)
        self._driving: dict[asyncio.Task[None], _Driven] = {}
        self._is_behind = True  # Whether the queue may hold what was not taken.
        self._claims = 0
        self._unanswered: str | None = None
        self._strays_due_s = 0.0
        self._closing = False
        self._woken: Callable[[], None] = lambda: None
        self._running: asyncio.Task[None] | None = None
        self._log = logger("worker")

    @property
    def busy(self) -> int:
        """How many slots are taken."""
        return len(self._driving)

    async def run(self) -> None:
        """Claim and drive until `drain` has been called and every run was let go."""
        with self._ports.hub.bell(self._dispatcher.bell) as woken:
            self._woken = woken.set
            self._running = asyncio.current_task()
            self._strays_due_s = asyncio.get_running_loop().time() + self._strays_s
            async with asyncio.TaskGroup() as tasks:
                rung = False
                while not self._closing:
                    # Cleared before looking: what is queued from here on rings again.
                    woken.clear()
                    await self._return_strays()
                    taken = await self._claim()
                    for claim in taken.claims:
                        driven = _Driven(claim)
                        task = tasks.create_task(self._drive(driven))
                        self._driving[task] = driven
                        task.add_done_callback(self._freed)
                    if not (taken.claims and taken.left_some):
                        # A claim passes over a run whose row is held, and who held it may not ring.
                        in_vain = rung and not taken.claims
                        rung = await self._rest(woken, AGAIN_S if in_vain else self._poll_s)
                if self._unanswered is not None:
                    # Left for the sweep, it would count as having crashed its worker.
                    await self._give_back_strays()

    def drain(self) -> None:
        """Claim no more, and hand back what is being driven."""
        self._closing = True
        for driven in self._driving.values():
            if driven.drive is not None:
                driven.drive.drain()
        self._woken()

    async def _rest(self, woken: asyncio.Event, wait_s: float) -> bool:
        """Wait to be woken, and say whether that was before the time.

        A timeout would end the wait by a cancellation: see `_is_stopped`.
        """
        in_time = True

        def end() -> None:
            nonlocal in_time
            in_time = False
            woken.set()

        alarm = asyncio.get_running_loop().call_later(wait_s, end)
        try:
            await woken.wait()
        finally:
            alarm.cancel()
        return in_time

    async def _claim(self) -> _Taken:
        """Take runs for the free slots; none if there are none of either, or no lease."""
        free = min(self.slots - len(self._driving), queue.CLAIM_MAX)
        if free <= 0:
            self._is_behind = True
            return _Taken()
        try:
            self._means.lease.check()
            taken = await self._find_unanswered() or await self._take(free)
        except CollisionError:
            return _Taken()  # A zombie slipped an event in: the next claim takes the next number.
        except MilepostError as error:
            self._log.warning("could not claim", error=str(error))
        except Exception:
            self._log.exception("could not claim")
        else:
            self._is_behind = taken.left_some
            return taken
        heed_cancellation()
        await asyncio.sleep(self._poll_s)
        return _Taken()

    async def _take(self, limit: int) -> _Taken:
        is_choosy = self._bearable != queue.ANY_CRASHES
        offer = self._dispatcher.next(limit)
        if offer is None:
            return _Taken(left_some=is_choosy)
        append_id = self._ports.new_id("apd")
        claimed: list[Claim] = []
        try:
            claimed = await self._ports.store.write(self._claiming(offer, limit, append_id))
        except DatabaseUnavailableError:
            self._unanswered = append_id
            raise
        finally:
            self._decline(offer, claimed)
        return _Taken(claimed, is_choosy or _leaves_some(offer, claimed, limit))

    def _claiming(self, offer: Offer, limit: int, append_id: str) -> Work[list[Claim]]:
        now = self._ports.clock()
        bearable = self._bearable
        if offer.run_ids:
            return queue.claim_specific(
                self.id, offer.run_ids, append_id, now, crashes_max=bearable
            )
        if offer.ready_for_ms:
            return queue.claim_overdue(
                self.id, limit, offer.ready_for_ms, append_id, now, crashes_max=bearable
            )
        self._claims += 1
        fair = self._claims % FAIR_EVERY == 0
        return queue.claim(self.id, limit, append_id, now, crashes_max=bearable, fair=fair)

    @property
    def _bearable(self) -> int:
        """How often a run may have crashed that comes along with those in hand."""
        worst = max((driven.crashes for driven in self._driving.values()), default=0)
        return queue.bearable(worst)

    def _decline(self, offer: Offer, claimed: Sequence[Claim]) -> None:
        """Let go of what was offered and lost: somebody else has it, or it is not ready."""
        if offer.run_ids:
            for run_id in set(offer.run_ids) - {claim.run_id for claim in claimed}:
                self._dispatcher.let_go(run_id)

    async def _find_unanswered(self) -> _Taken | None:
        """Return what the last claim took, if its answer was lost: nobody else will look at it."""
        if self._unanswered is None:
            return None
        found = await self._ports.store.read(queue.claimed(self.id, self._unanswered))
        self._unanswered = None
        return _Taken(found, left_some=True) if found else None

    async def _return_strays(self) -> None:
        """Now and then, give back what this worker owns without driving it.

        A claim may land after it was looked for in vain, and nobody takes a run whose owner lives.
        No other claim is under way meanwhile: all are made by the task that this runs in.
        """
        now_s = asyncio.get_running_loop().time()
        if self._unanswered is not None or now_s < self._strays_due_s:
            return
        self._strays_due_s = now_s + self._strays_s
        await self._give_back_strays()

    async def _give_back_strays(self) -> None:
        driven = {(each.claim.run_id, each.claim.epoch) for each in self._driving.values()}
        store = self._ports.store
        try:
            for tenant, run_id, epoch in await store.read(queue.owned(self.id)):
                if (run_id, epoch) in driven:
                    continue
                if await store.write(queue.give_up(tenant, run_id, epoch, self.id, "outage")):
                    self._log.warning("gave back a run that nobody drove", run=run_id)
                    self._ports.hub.ring(QUEUE_BELL)
        except MilepostError as error:
            self._log.warning("could not look for stray runs", error=str(error))
        except Exception:
            self._log.exception("could not look for stray runs")
        heed_cancellation()

    def _is_stopped(self) -> bool:
        return self._running is not None and self._running.cancelling() > 0

    def _require_work(self) -> None:
        """Raise `CancelledError` if this worker was stopped: a run's task may not have heard of it.

        What a run called may have cancelled the run's task, so that one cannot be asked.
        """
        if self._is_stopped():
            raise asyncio.CancelledError

    def _freed(self, task: "asyncio.Task[None]") -> None:
        self._dispatcher.let_go(self._driving.pop(task).claim.run_id)
        if self._is_behind or self._closing:
            self._woken()

    async def _drive(self, driven: "_Driven") -> None:
        """Drive one run; whatever goes wrong, it is not left as if somebody were at it."""
        claim = driven.claim
        try:
            agent = await self._definitions.get(claim.tenant, claim.agent_id, claim.agent_version)
            with self._ports.hub.hold(claim.run_id) as driven.tail:
                driven.drive = await drive(claim, agent, self._history, self._means)
                if self._closing:
                    driven.drive.drain()
                with self._noticing(driven):
                    await driven.drive.run()
        except (FencedError, UnavailableError) as error:
            self._log.warning("let go of a run", run=claim.run_id, why=str(error))
            await self._give_up(claim, "outage")
        except asyncio.CancelledError:
            if self._running is None or self._is_stopped():
                raise
            # Nobody who may asked for it: what the run called has reached beyond its own task.
            self._log.exception("a run crashed its worker", run=claim.run_id)
            await self._give_up(claim, "crash")
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # A panic below Python is no `Exception`.
            if is_scarcity(error):
                await self._let_go(claim, error)
                return
            self._log.exception("a run crashed its worker", run=claim.run_id)
            await self._give_up(claim, "crash")

    async def _let_go(self, claim: Claim, lack: BaseException) -> None:
        """Give up what this machine cannot drive for now, once another try may be of use.

        Not sooner: each try says in the run's log that it began.
        """
        self._log.warning("let go of a run", run=claim.run_id, why=str(lack))
        await asyncio.sleep(self._poll_s * LACK_POLLS)
        await self._give_up(claim, "outage")

    @contextmanager
    def _noticing(self, driven: "_Driven") -> Iterator[None]:
        """Look for work again as soon as a run that has crashed is done with that."""
        if not driven.crashes:
            yield
            return
        noticing = asyncio.create_task(self._notice(driven))
        try:
            yield
        finally:
            noticing.cancel()

    async def _notice(self, driven: "_Driven") -> None:
        with self._ports.hub.listen(driven.claim.run_id) as (_, woken):
            while driven.crashes:
                await woken.wait()
                woken.clear()
        self._woken()

    async def _give_up(self, claim: Claim, why: Literal["crash", "outage"]) -> None:
        """Queue the run again, unless somebody else has it already.

        Tried until the database answers: this worker may be alive for long, and a run that it owns
        without driving it would be stranded. Once it is declared dead, this ends with its shift.
        """
        for wait_s in itertools.chain(RELEASE_WAITS_S, itertools.repeat(RELEASE_WAITS_S[-1])):
            self._require_work()
            try:
                await self._ports.store.write(
                    queue.give_up(claim.tenant, claim.run_id, claim.epoch, self.id, why)
                )
            except MilepostError:
                pass
            except Exception:  # It would end all of this worker's runs.
                self._log.exception("could not give up a run", run=claim.run_id)
            else:
                self._ports.hub.ring(QUEUE_BELL)
                return
            self._require_work()
            await asyncio.sleep(wait_s)


def _leaves_some(offer: Offer, claimed: Sequence[Claim], limit: int) -> bool:
    """Say whether more may be ready than a claim took.

    Beside those that have crashed it leaves some behind (see `queue.claim`), and what was not
    offered is not known.
    """
    if offer.run_ids or offer.ready_for_ms:
        return bool(claimed)
    return len(claimed) >= limit or any(claim.crashes for claim in claimed)
