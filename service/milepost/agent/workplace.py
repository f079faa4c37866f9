"""Where an agent's runs are done: what they share, for each event loop that there is."""

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from milepost.agent.loop_thread import LoopThread, run_here
from milepost.agent.per_loop import PerLoop
from milepost.agent.providers import Answering, Providers
from milepost.runtime import notices
from milepost.runtime.clock import Ids, NewId, now_ms
from milepost.runtime.rates import OwnRates, Rates
from milepost.runtime.result_cache import ResultCache
from milepost.tools import Invoker, ToolProcesses, ToolThreads
from milepost.tools.secret import given

TOOL_THREADS_MAX = 32

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Equipment:
    """What runs need: who answers, what runs tools and keeps their results, counts, and new ids."""

    answering: Answering
    invoker: Invoker
    results: ResultCache
    rates: Rates
    new_id: NewId


class Workplace:
    """One agent's. Connections are open while a run is under way, or while it is kept open.

    The threads are the same for all loops, and end with the agent. A fork of the process, where
    no thread lives on, gets others.
    """

    def __init__(self, providers: Providers, secrets: Mapping[str, str]) -> None:
        self._providers = providers
        self._find_secret = given(secrets)
        self._rates = OwnRates(now_ms)
        self._threads: dict[int, ToolThreads] = {}
        self._equipment = PerLoop(self._opened)
        self._kept: dict[asyncio.AbstractEventLoop, list[AsyncExitStack]] = {}
        self._thread: LoopThread | None = None
        weakref.finalize(self, _close_own, self._threads)

    def held(self) -> AbstractAsyncContextManager[Equipment]:
        """Give what there is on this loop."""
        return self._equipment.held()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the work returns, for a caller who waits: on the loop that is kept."""
        if self._thread is None or not self._thread.is_alive:
            return run_here(work)
        return self._thread.run(work)

    async def keep(self) -> None:
        """Keep everything open on this loop until `leave`."""
        stack = AsyncExitStack()
        await stack.enter_async_context(self.held())
        self._kept.setdefault(asyncio.get_running_loop(), []).append(stack)

    async def leave(self) -> None:
        """Undo one `keep` on this loop."""
        loop = asyncio.get_running_loop()
        stack = self._kept[loop].pop()
        if not self._kept[loop]:
            del self._kept[loop]
        await stack.aclose()

    def keep_thread(self) -> None:
        """Keep a loop for callers who wait, and everything open on it, until `leave_thread`."""
        if self._thread is not None:
            raise RuntimeError("this agent is kept open already; leave its other `with` first")
        self._thread = LoopThread()
        self._thread.run(self.keep())

    def leave_thread(self) -> None:
        """Undo `keep_thread`."""
        assert self._thread is not None, "who leaves has entered"
        thread, self._thread = self._thread, None
        if thread.is_alive:
            thread.run(self.leave())
            thread.close()

    def _own_threads(self) -> ToolThreads:
        """Return those of this process. Of two that are made at once, one is never started."""
        return self._threads.setdefault(os.getpid(), ToolThreads(TOOL_THREADS_MAX))

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Equipment]:
        processes = ToolProcesses()
        async with self._providers.held() as answering:
            invoker = Invoker(
                self._own_threads(),
                on_left=notices.tool_left,
                processes=processes,
                find_secret=self._find_secret,
            )
            try:
                results = ResultCache(self._providers.cache)
                yield Equipment(answering, invoker, results, self._rates, Ids())
            finally:
                await processes.close()


def _close_own(threads: Mapping[int, ToolThreads]) -> None:
    """Let this process' threads end; another's are not ours to wake."""
    if own := threads.get(os.getpid()):
        own.close()
