"""Runs that were delivered to this process: first offered to its worker, then in its hands."""

import asyncio
from collections.abc import Callable


class Deliveries:
    """From each delivery to where the worker lets go of the run. `ring` tells that one came."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._open: dict[str, asyncio.Future[None]] = {}
        self._offered: dict[str, None] = {}
        self._closed = False

    @property
    def offered(self) -> int:
        """How many the worker has not taken up yet."""
        return len(self._offered)

    def deliver(self, run_id: str) -> "asyncio.Future[None]":
        """Offer the run; return what is done once the worker has let go of it.

        A run that is delivered again meanwhile is the same delivery.
        """
        if run_id in self._open:
            return self._open[run_id]
        let_go: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._closed:
            let_go.set_result(None)
            return let_go
        self._open[run_id] = let_go
        self._offered[run_id] = None
        self._ring()
        return let_go

    def next(self, most: int) -> tuple[str, ...]:
        """Return the runs that were offered first; each is to be let go of."""
        taken = tuple(self._offered)[:most]
        for run_id in taken:
            del self._offered[run_id]
        return taken

    def let_go(self, run_id: str) -> None:
        """End the delivery, if there is one."""
        self._offered.pop(run_id, None)
        let_go = self._open.pop(run_id, None)
        if let_go is not None and not let_go.done():
            let_go.set_result(None)

    def close(self) -> None:
        """Let go of what nobody has taken up, and of whatever still comes."""
        self._closed = True
        for run_id in tuple(self._offered):
            self.let_go(run_id)
