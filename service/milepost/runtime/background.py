"""The tasks that live as long as their process: its lanes, links and shifts."""

import asyncio

from milepost.telemetry.logs import logger


class Background:
    """Watches over tasks. None should end with an error: `died` names the first that does."""

    def __init__(self) -> None:
        self.died: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []
        self._log = logger("process")

    def keep(self, *tasks: asyncio.Task[None]) -> None:
        """Watch over tasks until `close` stops them, or they end well on their own."""
        for task in tasks:
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    async def close(self) -> None:
        """Stop all tasks, the last one kept first: it may need those before it."""
        for task in reversed(self._tasks):
            task.cancel()
            await asyncio.wait({task})

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._log.critical("a part of this process died", part=task.get_name(), exc_info=error)
        if not self.died.done():
            self.died.set_result(task.get_name())
