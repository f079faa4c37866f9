"""Running a tool: in the loop or in a thread, within its time, whatever it does."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from milepost.core.errors import ToolError
from milepost.core.json import Json
from milepost.tools.context import ToolContext
from milepost.tools.definition import Tool
from milepost.tools.raised import told
from milepost.tools.results import Pieces, to_result
from milepost.tools.threads import ThreadCall, ToolThreads

STOP_WAITS_S = (2.0, 0.5, 0.5)
"""How long a tool has after each cancellation: the first leaves it time to clean up."""

MayStart = Callable[[], None]
OnLeft = Callable[[str, int], None]


def whenever() -> None:
    """Let every tool start: no lease can lapse."""


def untold(tool: str, running: int) -> None:
    """Tell nobody which tool was left running."""


class Invoker:
    """Calls tools. The threads are shared by all that it calls.

    `may_start` is asked, in whatever thread, right before a tool's function is called, since a call
    may have waited for a thread or for what is injected into it; its error goes to the caller.
    `on_left` hears which tool could not be stopped, and how many run on like that.
    """

    def __init__(
        self,
        threads: ToolThreads,
        *,
        may_start: MayStart = whenever,
        on_left: OnLeft = untold,
        stop_waits_s: Sequence[float] = STOP_WAITS_S,
    ) -> None:
        self._threads = threads
        self._may_start = may_start
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
    ) -> Json:
        """Return what `tool` makes of `arguments`, as JSON.

        The tool's own `timeout_s` goes before the one given here. Raises ToolValidationError before
        anything ran, ToolError for whatever the tool raised (`tool_failed`) and for running out of
        time (`tool_timeout`). Cancelling the caller cancels the tool. One that will not be
        cancelled is left to itself: neither its time nor its caller's end waits for it.
        """
        values = tool.values(arguments)
        limit_s = timeout_s if tool.timeout_s is None else tool.timeout_s
        attempt = _Attempt(tool, values, context, self._threads, self._may_start)
        # In a task of its own, since a tool may cancel the task that it runs in, or never leave it.
        work = asyncio.create_task(attempt.make(), name=tool.name)
        try:
            await asyncio.wait((work,), timeout=limit_s)
        except asyncio.CancelledError:
            await self._stop(work, attempt)
            raise
        if not work.done():
            assert limit_s is not None, "only a limit runs out"
            await self._stop(work, attempt)
            raise attempt.timed_out(limit_s, stopped=work.done())
        if work.cancelled():
            raise ToolError(f"{tool.name} failed: it cancelled itself")
        return work.result()

    async def _stop(self, work: asyncio.Task[Json], attempt: "_Attempt") -> None:
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


class _RaisedInThread(Exception):  # noqa: N818 - a carrier, since a coroutine changes StopIteration
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class _Attempt:
    """One call of one tool."""

    def __init__(
        self,
        tool: Tool,
        values: dict[str, Any],
        context: ToolContext,
        threads: ToolThreads,
        may_start: MayStart,
    ) -> None:
        self._tool = tool
        self._values = values
        self._context = context
        self._threads = threads
        self._may_start = may_start
        self._refused: BaseException | None = None
        self._call: ThreadCall | None = None
        self._withdrawn = False

    @property
    def name(self) -> str:
        """What the tool is called."""
        return self._tool.name

    @property
    def runs_on(self) -> bool:
        """Whether a thread goes on with it although the call was stopped."""
        return self._call is not None and not self._withdrawn

    async def make(self) -> Json:
        """Return what the tool returned, or raise ToolError for what it raised.

        Only a cancellation of the very task that this runs in gets through, and `may_start`'s no.
        """
        try:
            await self._inject()
            if self._tool.in_thread:
                return await self._in_thread()
            return to_result(await _whole(self._run()))
        except BaseException as raised:
            error = raised.error if isinstance(raised, _RaisedInThread) else raised
            if error is self._refused:
                raise error from None
            if isinstance(raised, asyncio.CancelledError) and _cancelled():
                raise
            raise _failure(self._tool.name, error) from error

    def timed_out(self, limit_s: float, *, stopped: bool) -> ToolError:
        """Return the error that says what became of the work."""
        late = f"{self._tool.name} timed out after {limit_s:g} s"
        runs_on = "it may still be running, and what it does may still happen"
        if self._withdrawn:
            message = f"{late} before it began: all threads for synchronous tools were busy"
        elif self._call is not None:
            message = (
                f"{late}. It is a synchronous function, whose thread cannot be stopped: {runs_on}"
            )
        elif not stopped:
            message = f"{late} and would not be cancelled: {runs_on}"
        else:
            message = f"{late} and was cancelled; it may have acted before"
        return ToolError(message, code="tool_timeout", retryable=self._withdrawn)

    async def _inject(self) -> None:
        signature = self._tool.signature
        if signature.injected:
            self._values.update(await self._tool.injection.values(self._context))
        for name in signature.context:
            self._values[name] = self._context

    def _run(self) -> object:
        try:
            self._may_start()
        except BaseException as refused:
            self._refused = refused
            raise
        positional = [
            self._values.pop(name, default)
            for name, default in self._tool.signature.positional.items()
        ]
        return self._tool.function(*positional, **self._values)

    async def _in_thread(self) -> Json:
        self._call = self._threads.call(self._run_to_the_end)
        try:
            outcome, error = await self._call.future
        except asyncio.CancelledError:
            self._withdrawn = self._threads.withdraw(self._call)
            raise
        self._call = None
        if error is not None:
            raise _RaisedInThread(error)
        unfinished, result = outcome
        return result if unfinished is None else to_result(await _whole(unfinished))

    def _run_to_the_end(self) -> tuple[object, Json]:
        """Return what only the loop can finish, or else the result.

        A result is converted here as well: it may be large, or be made only as it is looked at.
        """
        outcome = self._run()
        if inspect.isawaitable(outcome) or inspect.isasyncgen(outcome):
            return outcome, None
        return None, to_result(_joined(outcome) if inspect.isgenerator(outcome) else outcome)


async def _whole(outcome: object) -> object:
    """Return what comes of an awaitable, and the pieces of a generator as one."""
    if inspect.isawaitable(outcome):
        outcome = await outcome
    if inspect.isasyncgen(outcome):
        pieces = Pieces()
        async for piece in outcome:
            pieces.add(piece)
        return pieces.join()
    return _joined(outcome) if inspect.isgenerator(outcome) else outcome


def _joined(generator: Iterator[object]) -> str:
    pieces = Pieces()
    for piece in generator:
        pieces.add(piece)
    return pieces.join()


def _cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _failure(tool: str, error: BaseException) -> ToolError:
    """Return the error for the model."""
    retryable = isinstance(error, ToolError) and error.retryable
    return ToolError(f"{tool} failed: {told(error)}", retryable=retryable)
