"""A worker's lease as its thread holds it, but that a task of a process beside it is the thread."""

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from milepost.store.work import Work
from milepost.worker.lease import LeaseThread

if TYPE_CHECKING:
    from tests.simulation.host import Host

T = TypeVar("T")


class HeldLease:
    """The judgement is all `LeaseThread`'s: when to renew, what a renewal means, who may act."""

    def __init__(
        self, host: "Host", worker: str, lost: "asyncio.Future[str]", ttl_s: float
    ) -> None:
        self._host = host
        self._lost = lost
        self._sent_s: float | None = None
        self._is_stopped = False
        self._renew_s = ttl_s / 3
        self._lease = LeaseThread(
            worker,
            lambda: _ThreadStore(host),
            self._lose,
            ttl_s=ttl_s,
            renew_s=self._renew_s,
            clock=self._clock,
        )
        self._lease._thread = _NoThread()  # type: ignore[assignment]  # a task takes its place

    def start(self) -> None:
        """Register the worker; raises what the database raises."""
        self._lease.start()

    def stop(self) -> None:
        """Renew no more."""
        self._is_stopped = True

    def check(self) -> None:
        """Raise `FencedError` unless nobody can have declared this worker dead yet."""
        self._lease.check()

    def pulse(self) -> None:
        """Say that the event loop turns."""
        self._lease.pulse()

    @property
    def steady(self) -> bool:
        """Say whether the lease stood without a gap for a whole lifetime of one."""
        return self._lease.steady

    async def hold(self) -> None:
        """Renew until the lease is lost or stopped: in the process that stands for the thread."""
        loop, store = asyncio.get_running_loop(), _ThreadStore(self._host)
        wait_s: float | None = self._renew_s
        while wait_s is not None:
            await asyncio.sleep(wait_s)
            sent_s = loop.time()
            await asyncio.sleep(self._host.world.weather.way_s())
            if self._is_stopped:
                return
            # What the lease does from here on takes no time: its request was sent before.
            self._sent_s = sent_s
            wait_s = self._lease._renew(store)
            self._sent_s = None

    def _clock(self) -> float:
        return self._host.world.loop.time() if self._sent_s is None else self._sent_s

    def _lose(self, why: str) -> None:
        self._host.world.loop.call_soon(
            self._settle, why, context=self._host.world.loop.context_of(self._host.main)
        )

    def _settle(self, why: str) -> None:
        if not self._lost.done():
            self._lost.set_result(why)


class _ThreadStore:
    """The connection of the lease's thread."""

    def __init__(self, host: "Host") -> None:
        self._host = host

    def write(self, work: Work[T]) -> T:
        """Do work in one transaction."""
        return self._host.engine.write_at_once(work)

    def close(self) -> None:
        """Let go of nothing."""


class _NoThread:
    def start(self) -> None:
        """Begin nothing."""

    def is_alive(self) -> Any:
        """Say no."""
        return False
