"""A line of those who wait for their turn, in whichever thread and on whichever loop they are."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager


class Line:
    """One at a time, in the order in which they came."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._is_taken = False
        self._waiting: deque[Future[None]] = deque()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for one's turn, and have it within."""
        ticket = self._join()
        if ticket is not None:
            try:
                await asyncio.wrap_future(ticket)
            except asyncio.CancelledError:
                if not ticket.cancelled():
                    self._leave()  # It was our turn by then.
                raise
        try:
            yield
        finally:
            self._leave()

    def _join(self) -> Future[None] | None:
        """Return what comes true with one's turn; None: it has come."""
        with self._guard:
            if not self._is_taken:
                self._is_taken = True
                return None
            ticket: Future[None] = Future()
            self._waiting.append(ticket)
            return ticket

    def _leave(self) -> None:
        """Let the next one have his turn who has not gone away."""
        with self._guard:
            while self._waiting:
                ticket = self._waiting.popleft()
                if ticket.set_running_or_notify_cancel():
                    ticket.set_result(None)
                    return
            self._is_taken = False
