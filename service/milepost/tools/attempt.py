"""One call of one tool: what it is given, where its function runs, and what comes of it."""

import asyncio
import inspect
from collections.abc import Callable, Generator
from contextlib import aclosing, closing
from typing import Any

from milepost.core.errors import ToolError
from milepost.core.json import Json
from milepost.tools.context import Progress, ToolContext
from milepost.tools.definition import Tool
from milepost.tools.isolation import ToolProcesses
from milepost.tools.raised import told
from milepost.tools.results import Pieces, to_result
from milepost.tools.threads import ThreadCall, ToolThreads

MayStart = Callable[[], None]


def whenever() -> None:
    """Let every tool start: no lease can lapse."""


class _RaisedInThread(Exception):  # noqa: N818 - a carrier, since a coroutine changes StopIteration
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class Attempt:
    """One call of one tool."""

    __slots__ = (
        "_began", "_call", "_context", "_left", "_may_start", "_processes", "_refused", "_threads",
        "_tool", "_values", "_withdrawn",
    )  # fmt: skip

    def __init__(
        self,
        tool: Tool,
        values: dict[str, Any],
        context: ToolContext,
        threads: ToolThreads | None = None,
        processes: ToolProcesses | None = None,
        may_start: MayStart = whenever,
    ) -> None:
        self._tool = tool
        self._values = values
        self._context = context
        self._threads = threads
        self._processes = processes
        self._may_start = may_start
        self._refused: BaseException | None = None
        self._call: ThreadCall | None = None
        self._withdrawn = False
        self._left = False
        self._began = False

    @property
    def name(self) -> str:
        """What the tool is called."""
        return self._tool.name

    @property
    def runs_on(self) -> bool:
        """Whether a thread goes on with it although the call was stopped."""
        return self._call is not None and not self._withdrawn

    def why_left(self, *, done: bool) -> str | None:
        """Return why it goes on although the call was stopped, if it does."""
        if self.runs_on:
            return "it runs in a thread, which cannot be stopped"
        return None if done else "it would not be cancelled"

    async def make(self, on_end: Callable[[], None]) -> Json:
        """Return what the tool returned, or raise ToolError for what it raised.

        Only a cancellation of the very task that this runs in gets through, and `may_start`'s no.
        `on_end` is called last of all, a turn of the loop before a task tells that it is done.
        """
        try:
            if self._tool.isolation:
                return await self._in_process()
            signature = self._tool.signature
            if signature.injected:
                self._values.update(await self._tool.injection.values(self._context))
            if self._tool.in_thread:
                return await self._in_thread()
            outcome = self._run()
            if inspect.iscoroutine(outcome):
                outcome = await outcome
            return await self.finish(outcome)
        except BaseException as raised:
            error = raised.error if isinstance(raised, _RaisedInThread) else raised
            if error is self._refused:
                raise error from None
            if isinstance(raised, asyncio.CancelledError) and _cancelled():
                raise
            raise _failure(self._tool.name, error) from error
        finally:
            on_end()

    def timed_out(self, limit_s: float, *, stopped: bool) -> ToolError:
        """Return the error that says what became of the work."""
        late = f"{self._tool.name} timed out after {limit_s:g} s"
        runs_on = "it may still be running, and what it does may still happen"
        isolated = self._tool.isolation is not None
        if self._tool.effect == "transactional":
            message = f"{late}, and what it wrote was rolled back"
        elif isolated and not self._began:
            message = f"{late} before it began: no process was ready for it"
        elif isolated:
            message = f"{late}. Its process was killed; what it did before that is done"
        elif self._withdrawn:
            message = f"{late} before it began: all threads for synchronous tools were busy"
        elif self._call is not None:
            message = (
                f"{late}. It is a synchronous function, whose thread cannot be stopped: {runs_on}"
            )
        elif not stopped:
            message = f"{late} and would not be cancelled: {runs_on}"
        else:
            message = f"{late} and was cancelled; it may have acted before"
        return ToolError(message, code="tool_timeout", retryable=not self._began)

    def _start(self) -> None:
        try:
            self._may_start()
        except BaseException as refused:
            self._refused = refused
            raise
        self._began = True

    def _run(self) -> object:
        self._start()
        signature, values = self._tool.signature, self._values
        for name in signature.context:
            values[name] = self._context
        if not signature.positional:
            return self._tool.function(**values)
        positional = [values.pop(name, default) for name, default in signature.positional.items()]
        return self._tool.function(*positional, **values)

    async def _in_process(self) -> Json:
        assert self._processes is not None, "whoever runs isolated tools has processes for them"
        return await self._processes.call(self._tool, self._values, self._context, self._start)

    async def _in_thread(self) -> Json:
        assert self._threads is not None, "whoever runs tools in threads has some"
        self._call = self._threads.call(self.run_to_the_end)
        try:
            outcome, error = await self._call.future
        except asyncio.CancelledError:
            self._withdrawn = self._threads.withdraw(self._call)
            self._left = not self._withdrawn
            raise
        self._call = None
        if error is not None:
            raise _RaisedInThread(error)
        unfinished: object = outcome[0]
        result: Json = outcome[1]
        if unfinished is None:
            return result
        return await self.finish(unfinished)

    async def finish(self, unfinished: object) -> Json:
        """Return the result of what only a loop can finish, or of anything else."""
        return await _result_of(unfinished, self._context.progress)

    def run_to_the_end(self) -> tuple[object, Json]:
        """Return what only the loop can finish, or else the result.

        A result is converted here as well: it may be large, or be made only as it is looked at.
        """
        outcome = self._run()
        if inspect.isawaitable(outcome) or inspect.isasyncgen(outcome):
            return outcome, None
        if inspect.isgenerator(outcome):
            return None, self._joined(outcome)
        return None, to_result(outcome)

    def _joined(self, generator: Generator[object, Any, object]) -> str:
        """Return the pieces as one; of a generator that nobody waits for any more, no further."""
        pieces = Pieces(self._context.progress)
        with closing(generator):
            for piece in generator:
                if self._left:
                    break
                pieces.add(piece)
        return pieces.join()


async def _result_of(outcome: object, progress: Progress) -> Json:
    """Return what comes of an awaitable, and the pieces of a generator as one."""
    if type(outcome) is str:  # or there is nothing to be looked at
        return to_result(outcome)
    if inspect.isawaitable(outcome):
        outcome = await outcome
    pieces = Pieces(progress)
    if inspect.isasyncgen(outcome):
        async with aclosing(outcome):
            async for piece in outcome:
                pieces.add(piece)
                await asyncio.sleep(0)  # or one that never waits would hold up everybody
        return pieces.join()
    if not inspect.isgenerator(outcome):
        return to_result(outcome)
    with closing(outcome):
        for piece in outcome:
            pieces.add(piece)
            await asyncio.sleep(0)  # or nobody would see it before the last one
    return pieces.join()


def _cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _failure(tool: str, error: BaseException) -> ToolError:
    """Return the error for the model."""
    retryable = isinstance(error, ToolError) and error.retryable
    return ToolError(f"{tool} failed: {told(error)}", retryable=retryable)
