"""A worker: it claims runs for its free slots and drives each to where it ends, waits or fails."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Literal

from milepost.core.errors import FencedError, MilepostError, UnavailableError
from milepost.live.hub import QUEUE_BELL
from milepost.runtime.definitions import Definitions
from milepost.runtime.drive import Drive, Means, drive
from milepost.runtime.history import History
from milepost.store import queue
from milepost.store.engine import CollisionError
from milepost.store.records import Claim
from milepost.telemetry.logs import logger

IDLE_POLL_S = 1.0
FAIR_EVERY = 8
RELEASE_WAITS_S = (0.1, 0.5, 2.0, 5.0)


class Worker:
    """Up to `slots` runs at once, under one lease."""

    def __init__(
        self, worker_id: str, slots: int, means: Means, *, poll_s: float = IDLE_POLL_S
    ) -> None:
        self.id = worker_id
        self.slots = slots
        self._means = means
        self._poll_s = poll_s
        self._definitions = Definitions(means.ports.store)
        self._history = History(means.ports.store)
        self._driving: dict[asyncio.Task[None], Drive | None] = {}
        self._claims = 0
        self._closing = False
        self._woken: Callable[[], None] = lambda: None
        self._log = logger("worker")

    @property
    def busy(self) -> int:
        """How many slots are taken."""
        return len(self._driving)

    async def run(self) -> None:
        """Claim and drive until `drain` has been called and every run was let go."""
        with self._means.ports.hub.bell(QUEUE_BELL) as woken:
            self._woken = woken.set
            async with asyncio.TaskGroup() as tasks:
                while not self._closing:
                    # Cleared before looking: what is queued from here on rings again.
                    woken.clear()
                    claimed = await self._claim()
                    for claim in claimed:
                        task = tasks.create_task(self._drive(claim))
                        self._driving[task] = None
                        task.add_done_callback(self._freed)
                    if not claimed:
                        await self._rest(woken)

    def drain(self) -> None:
        """Claim no more, and hand back what is being driven."""
        self._closing = True
        for driven in self._driving.values():
            if driven is not None:
                driven.drain()
        self._woken()

    async def _rest(self, woken: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._poll_s):
                await woken.wait()
        except TimeoutError:
            return

    async def _claim(self) -> list[Claim]:
        """Take runs for the free slots; none if there are none of either, or no lease."""
        free = min(self.slots - len(self._driving), queue.CLAIM_MAX)
        if free <= 0:
            return []
        ports = self._means.ports
        self._claims += 1
        try:
            self._means.lease.check()
            return await ports.store.write(
                queue.claim(
                    self.id,
                    free,
                    ports.new_id("apd"),
                    ports.clock(),
                    fair=self._claims % FAIR_EVERY == 0,
                )
            )
        except CollisionError:
            return []  # A zombie slipped an event in: the next claim takes the next number.
        except MilepostError as error:
            self._log.warning("could not claim", error=str(error))
            await asyncio.sleep(self._poll_s)
            return []
        except Exception:
            self._log.exception("could not claim")
            await asyncio.sleep(self._poll_s)
            return []

    def _freed(self, task: "asyncio.Task[None]") -> None:
        del self._driving[task]
        self._woken()

    async def _drive(self, claim: Claim) -> None:
        """Drive one run; whatever goes wrong, it is not left as if somebody were at it."""
        try:
            agent = await self._definitions.get(claim.tenant, claim.agent_id, claim.agent_version)
            with self._means.ports.hub.hold(claim.run_id):
                driven = await drive(claim, agent, self._history, self._means)
                task = asyncio.current_task()
                assert task is not None
                self._driving[task] = driven
                if self._closing:
                    driven.drain()
                await driven.run()
        except (FencedError, UnavailableError) as error:
            self._log.warning("let go of a run", run=claim.run_id, why=str(error))
            await self._give_up(claim, "outage")
        except Exception:
            self._log.exception("a run crashed its worker", run=claim.run_id)
            await self._give_up(claim, "crash")

    async def _give_up(self, claim: Claim, why: Literal["crash", "outage"]) -> None:
        """Queue the run again, unless somebody else has it already.

        Tried until the database answers: this worker may be alive for long, and a run that it owns
        without driving it would be stranded. Once it is declared dead, this ends with its shift.
        """
        for wait_s in itertools.chain(RELEASE_WAITS_S, itertools.repeat(RELEASE_WAITS_S[-1])):
            try:
                await self._means.ports.store.write(
                    queue.give_up(claim.tenant, claim.run_id, claim.epoch, self.id, why)
                )
            except MilepostError:
                await asyncio.sleep(wait_s)
            else:
                self._means.ports.hub.ring(QUEUE_BELL)
                return
