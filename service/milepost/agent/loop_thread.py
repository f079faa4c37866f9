"""An event loop in a thread of its own, for those who have none, or one that they hold up."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs work for other threads until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._live, name="milepost-agent", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Say whether anybody does the work: in a fork of its process, nobody does."""
        return self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the work returns; who is interrupted while waiting cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "this would wait for the very loop that it holds up; await arun() instead of run()"
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        """Stop the thread. What still runs in it is cancelled."""
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_closing())

    async def _until_closing(self) -> None:
        await self._closing.wait()


def run_here(work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns, on a loop that lives as long as it does.

    Where a loop is running in this thread already, the work gets one in another thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    thread = LoopThread()
    try:
        return thread.run(work)
    finally:
        thread.close()
