"""The tasks that live as long as their process: its lanes, links and shifts."""

import asyncio
from collections.abc import Iterable

from milepost.telemetry.logs import logger

AGAIN_S = 1.0
TOLD_MAX = 10
STRAY = "it was cancelled by nobody who may"


async def end(*tasks: asyncio.Task[None], again_s: float = AGAIN_S) -> None:
    """Cancel tasks until they end, `TOLD_MAX` times at most, and leave those that do not.

    One whose connection breaks while it is being cancelled may hear of the connection alone, take
    that for an outage, and go on: for ever, if it were not told again. Nor is there a use in
    waiting for ever for one that is deaf: whoever waits would do nothing more, either.
    """
    going_on: Iterable[asyncio.Task[None]] = tasks
    for _ in range(TOLD_MAX):
        for task in going_on:
            task.cancel()
        _, going_on = await asyncio.wait(going_on, timeout=again_s)
        if not going_on:
            return
    left = sorted(task.get_name() for task in going_on)
    logger("process").error("what would not end is left to itself", left=left)


class Background:
    """Watches over tasks. None should end with an error: `died` names the first that does."""

    def __init__(self) -> None:
        self.died: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        self._log = logger("process")

    def keep(self, *tasks: asyncio.Task[None]) -> None:
        """Watch over tasks until `close` stops them, or they end well on their own."""
        for task in tasks:
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    async def close(self) -> None:
        """Stop all tasks, the last one kept first: it may need those before it."""
        self._closing = True
        for task in reversed(self._tasks):
            await end(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() and self._closing:
            return
        error = asyncio.InvalidStateError(STRAY) if task.cancelled() else task.exception()
        if error is None:
            return
        self._log.critical("a part of this process died", part=task.get_name(), exc_info=error)
        if not self.died.done():
            self.died.set_result(task.get_name())
