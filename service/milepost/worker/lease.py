"""A worker's lease, renewed by a thread of its own, so that a busy event loop never looks dead."""

import faulthandler
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from milepost.core.errors import FencedError, MilepostError
from milepost.store import queue
from milepost.store.thread import ThreadStore

TTL_S = 15.0
RENEW_S = 5.0
MARGIN_S = 2.0
AGAIN_S = 0.5
LAG_LOG_S = 30.0
LAG_EXIT_S = 300.0


def boottime() -> float:
    """Return a clock that goes on while the machine sleeps: a woken worker must not believe."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class LeaseThread:
    """Holds the lease of `worker`. `on_lost` is called from the thread, at most once."""

    def __init__(
        self,
        worker: str,
        open_store: Callable[[], ThreadStore],
        on_lost: Callable[[str], None],
        *,
        ttl_s: float = TTL_S,
        renew_s: float = RENEW_S,
        clock: Callable[[], float] = boottime,
    ) -> None:
        self.worker = worker
        self._open_store = open_store
        self._on_lost = on_lost
        self._ttl_s = ttl_s
        self._renew_s = renew_s
        self._clock = clock
        self._deadline = 0.0
        self._gapless_since = 0.0
        self._pulse = clock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        """Register the worker and begin to renew; raises what the database raises."""
        sent = self._clock()
        store = self._open_store()
        try:
            store.write(queue.register(self.worker, round(self._ttl_s * 1000)))
        finally:
            store.close()
        self._deadline = sent + self._ttl_s - self._margin_s
        self._gapless_since = sent
        self._pulse = self._clock()
        self._thread.start()

    def stop(self) -> None:
        """Renew no more."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> None:
        """Raise `FencedError` unless nobody can have declared this worker dead yet."""
        if not self.held:
            raise FencedError(f"the lease of {self.worker} may have lapsed; start nothing new")

    @property
    def held(self) -> bool:
        """Say whether nobody can have declared this worker dead yet."""
        return self._clock() < self._deadline

    def pulse(self) -> None:
        """Say that the event loop turns."""
        self._pulse = self._clock()

    @property
    def steady(self) -> bool:
        """Say whether the lease stood without a gap for a whole lifetime of one.

        After an outage of the database everybody has lapsed: each gets that long to come back
        before anybody sweeps.
        """
        now = self._clock()
        return now < self._deadline and now - self._gapless_since >= self._ttl_s

    @property
    def _margin_s(self) -> float:
        return min(MARGIN_S, self._ttl_s / 4)

    def _run(self) -> None:
        try:
            self._hold()
        except Exception as error:  # A thread's end is seen by nobody, unless it says so.
            self._deadline = 0.0
            self._on_lost(f"the lease cannot be renewed: {error!r}")

    def _hold(self) -> None:
        store = self._open_store()
        warned = False
        try:
            wait_s: float | None = self._renew_s
            while wait_s is not None and not self._stopping.wait(wait_s):
                lag_s = self._clock() - self._pulse
                if lag_s > LAG_EXIT_S:
                    self._on_lost(f"the event loop stands still for {lag_s:.0f} s")
                    return
                if lag_s > LAG_LOG_S and not warned:
                    with suppress(Exception):  # To nobody: that is worth no lease.
                        faulthandler.dump_traceback(sys.stderr)
                warned = lag_s > LAG_LOG_S
                wait_s = self._renew(store)
        finally:
            store.close()

    def _renew(self, store: ThreadStore) -> float | None:
        """Renew once; return the pause until the next time, None if the lease is lost."""
        sent = self._clock()
        try:
            store.write(queue.renew(self.worker, round(self._ttl_s * 1000)))
        except FencedError as error:
            self._deadline = 0.0
            self._on_lost(str(error))
            return None
        except MilepostError:
            # The database is away: the deadline stands. Runs go on when this is back before them.
            return min(self._renew_s, AGAIN_S)
        if sent >= self._deadline:
            self._gapless_since = sent
        self._deadline = sent + self._ttl_s - self._margin_s
        return self._renew_s
