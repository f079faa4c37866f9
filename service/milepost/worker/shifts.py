"""Shifts: one worker id from its registration to its dismissal, and then the next."""

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from milepost.core.errors import MilepostError
from milepost.dispatch.port import Announce, Dispatcher
from milepost.dispatch.sql import Sql
from milepost.live.hub import QUEUE_BELL
from milepost.runtime.background import STRAY, end
from milepost.runtime.journal import Ports
from milepost.runtime.means import Lease, Means
from milepost.store import queue
from milepost.store.cancellation import heed_cancellation
from milepost.store.thread import ThreadStore
from milepost.telemetry.logs import logger
from milepost.worker.herald import Herald
from milepost.worker.lease import LeaseThread
from milepost.worker.sweeper import Sweeper
from milepost.worker.worker import Worker

AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Terms:
    """How a process works. `alone` says that no other process can have the database."""

    slots: int
    lease_s: float
    sweep_s: float
    alone: bool


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Who says which run is to be advanced, and how they are told what is ready if they must be."""

    dispatcher: Dispatcher
    announce: Announce | None = None


BY_SQL = Dispatch(Sql(QUEUE_BELL))


class Shifts:
    """Works under a new id whenever the last one was declared dead, until it is told to stop."""

    def __init__(
        self,
        terms: Terms,
        ports: Ports,
        means: Callable[[Lease], Means],
        open_store: Callable[[], ThreadStore],
        *,
        again_s: float = AGAIN_S,
        dispatch: Dispatch = BY_SQL,
    ) -> None:
        self._terms = terms
        self._ports = ports
        self._means = means
        self._open_store = open_store
        self._again_s = again_s
        self._dispatch = dispatch
        self._worker: Worker | None = None
        self._lease: LeaseThread | None = None
        self._closing = False
        self._log = logger("worker")

    @property
    def busy(self) -> int:
        """How many slots are taken."""
        return self._worker.busy if self._worker else 0

    @property
    def leased(self) -> bool:
        """Say whether a lease stands, so that runs may be driven."""
        return self._lease is not None and self._lease.held

    async def run(self) -> None:
        """Work, shift after shift, until `drain` was called and every run was let go.

        A shift that cannot begin, or breaks off, delays the next one, and ends nothing.
        """
        while not self._closing:
            try:
                await self._shift()
            except MilepostError as error:
                self._log.warning("a shift could not begin; trying again", error=str(error))
            except Exception:
                self._log.exception("a shift broke off; the next one begins")
            else:
                continue
            heed_cancellation()
            await asyncio.sleep(self._again_s)

    def drain(self) -> None:
        """End the last shift: claim no more, hand back what is in hand."""
        self._closing = True
        self._dispatch.dispatcher.drain()
        if self._worker:
            self._worker.drain()

    async def _shift(self) -> None:
        worker_id = f"{socket.gethostname()}-{os.getpid()}-{self._ports.new_id('wrk')}"
        loop = asyncio.get_running_loop()
        lost: asyncio.Future[str] = loop.create_future()

        def lose(why: str) -> None:
            loop.call_soon_threadsafe(_settle, lost, why)

        terms = self._terms
        lease = LeaseThread(
            worker_id, self._open_store, lose, ttl_s=terms.lease_s, renew_s=terms.lease_s / 3
        )
        await asyncio.to_thread(lease.start)
        self._lease = lease
        try:
            await self._work(lease, lost)
        finally:
            self._lease = None
            await asyncio.to_thread(lease.stop)
            await self._dismiss(worker_id)

    async def _work(self, lease: LeaseThread, lost: "asyncio.Future[str]") -> None:
        sweeper = Sweeper(self._ports, lease, sweep_s=self._terms.sweep_s)
        if self._terms.alone:
            await self._ports.store.write(queue.dismiss_others(lease.worker))
            await sweeper.sweep_now()
        self._worker = Worker(
            lease.worker,
            self._terms.slots,
            self._ports,
            self._means(lease),
            strays_s=self._terms.sweep_s,
            dispatcher=self._dispatch.dispatcher,
        )
        if self._closing:
            self._worker.drain()
        working = asyncio.create_task(self._worker.run(), name="the runs")
        beside = [asyncio.create_task(sweeper.run(), name="the sweeper")]
        if announce := self._dispatch.announce:
            herald = Herald(lease.worker, self._ports, announce)
            beside.append(asyncio.create_task(herald.run(), name="the herald"))
        try:
            any_of: set[asyncio.Future[Any]] = {working, lost, *beside}
            await asyncio.wait(any_of, return_when=asyncio.FIRST_COMPLETED)
            if lost.done():
                self._log.error("the lease is lost; going on under a new id", why=lost.result())
            else:
                _require_sound(working, *beside)
        finally:
            await end(working, *beside)
            self._worker = None

    async def _dismiss(self, worker_id: str) -> None:
        """Let others have what this worker left, at once rather than when its lease lapses."""
        try:
            await self._ports.store.write(queue.dismiss(worker_id))
        except MilepostError as error:
            self._log.warning("could not sign off", worker=worker_id, error=str(error))
        self._ports.hub.ring(QUEUE_BELL)


def _settle(lost: "asyncio.Future[str]", why: str) -> None:
    if not lost.done():
        lost.set_result(why)


def _require_sound(*parts: asyncio.Task[None]) -> None:
    """Raise what ended a part of a shift, if it did not end well."""
    for part in parts:
        if part.cancelled():
            raise asyncio.InvalidStateError(f"{part.get_name()}: {STRAY}")
        if part.done():
            part.result()
