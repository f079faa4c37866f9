"""Running a tool: in the loop or in a thread, within its time, whatever it does."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from milepost.core.errors import ToolError
from milepost.core.json import Json
from milepost.tools.attempt import NO_SECRETS, Attempt, Facilities, MayStart, whenever
from milepost.tools.context import ToolContext
from milepost.tools.definition import Tool
from milepost.tools.isolation import ToolProcesses
from milepost.tools.outcome import Outcome
from milepost.tools.secret import FindSecret
from milepost.tools.threads import ToolThreads

STOP_WAITS_S = (2.0, 0.5, 0.5)
"""How long a tool has after each cancellation: the first leaves it time to clean up."""

OnLeft = Callable[[str, int], None]


def untold(tool: str, running: int) -> None:
    """Tell nobody which tool was left running."""


OnCallLeft = Callable[[str], None]


def _not_told(why: str) -> None:
    """Tell nobody why a call goes on."""


class Invoker:
    """Calls tools. The threads, and the processes for isolated ones, are shared by all it calls.

    `may_start` is asked, in whatever thread, right before a tool's function is called, since a call
    may have waited for a thread or for what is injected into it; its error goes to the caller.
    `on_left` hears which tool could not be stopped, and how many run on like that. `find_secret`
    finds what parameters that are marked with a `Secret` get.
    """

    def __init__(
        self,
        threads: ToolThreads,
        *,
        may_start: MayStart = whenever,
        on_left: OnLeft = untold,
        stop_waits_s: Sequence[float] = STOP_WAITS_S,
        processes: ToolProcesses | None = None,
        find_secret: FindSecret = NO_SECRETS,
    ) -> None:
        self._threads = threads
        self._processes = processes or ToolProcesses()
        self._facilities = Facilities(threads, self._processes, may_start, find_secret)
        self._on_left = on_left
        self._stop_waits_s = stop_waits_s
        self._left: set[asyncio.Task[Json]] = set()

    async def invoke(
        self,
        tool: Tool,
        arguments: Mapping[str, Json],
        context: ToolContext,
        *,
        timeout_s: float | None = None,
        on_left: OnCallLeft = _not_told,
    ) -> Json:
        """Return what `tool` makes of `arguments`, as JSON.

        The tool's own `timeout_s` goes before the one given here. Raises ToolValidationError before
        anything ran, ToolError for whatever the tool raised (`tool_failed`) and for running out of
        time (`tool_timeout`). Cancelling the caller cancels the tool. One that will not be
        cancelled is left to itself: neither its time nor its caller's end waits for it, and
        `on_left` is told why if the caller was cancelled.
        """
        values = tool.validate(arguments) if tool.isolation else tool.values(arguments)
        limit_s = timeout_s if tool.timeout_s is None else tool.timeout_s
        attempt = Attempt(tool, values, context, self._facilities)
        # In a task of its own, since a tool may cancel the task that it runs in, or never leave it.
        loop = asyncio.get_running_loop()
        over = loop.create_future()

        def end(_: object = None) -> None:
            if not over.done():
                over.set_result(None)

        work = loop.create_task(attempt.make(end), name=tool.name)
        work.add_done_callback(end)
        timer = None if limit_s is None else loop.call_later(limit_s, end)
        try:
            await over
        except asyncio.CancelledError:
            await self._stop(work, attempt)
            if why := attempt.why_left(done=work.done()):
                on_left(why)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if not work.done():
            assert limit_s is not None, "only a limit runs out"
            await self._stop(work, attempt)
            raise attempt.timed_out(limit_s, stopped=work.done())
        if work.cancelled():
            raise ToolError(f"{tool.name} failed: it cancelled itself")
        return work.result()

    async def call(
        self,
        tool: Tool,
        arguments: Mapping[str, Json],
        context: ToolContext,
        *,
        timeout_s: float | None = None,
        on_left: OnCallLeft = _not_told,
    ) -> Outcome:
        """Return what came of calling `tool`, as `invoke` does it: a failure is an outcome, too.

        What is not the tool's own gets through: a cancellation, and `may_start`'s no.
        """
        began = time.perf_counter()
        try:
            content = await self.invoke(
                tool, arguments, context, timeout_s=timeout_s, on_left=on_left
            )
        except ToolError as error:
            return Outcome.of_error(error, _ms_since(began))
        return Outcome("ok", content, latency_ms=_ms_since(began))

    async def close(self) -> None:
        """Kill the processes of isolated tools; only for who did not hand in any."""
        await self._processes.close()

    async def _stop(self, work: asyncio.Task[Json], attempt: Attempt) -> None:
        """Cancel the work, and again if that was caught; leave it to itself if it goes on."""
        try:
            for wait_s in self._stop_waits_s:
                work.cancel()
                await asyncio.wait((work,), timeout=wait_s)
                if work.done():
                    return
        finally:
            self._left.add(work)
            work.add_done_callback(self._forget)
            if attempt.runs_on or not work.done():
                running = sum(not left.done() for left in self._left) + self._threads.hung
                self._on_left(attempt.name, running)

    def _forget(self, work: asyncio.Task[Json]) -> None:
        self._left.discard(work)
        if not work.cancelled():
            work.exception()  # Nobody wants it any more, and asyncio would tell of it.


def _ms_since(began: float) -> int:
    return round((time.perf_counter() - began) * 1000)
