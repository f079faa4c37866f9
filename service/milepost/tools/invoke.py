"""Running a tool: in the loop or in a thread, within its time, whatever it does."""

import asyncio
import inspect
from collections.abc import Mapping
from typing import Any

from milepost.core.errors import ToolError
from milepost.core.json import Json, clean_text
from milepost.tools.context import ToolContext
from milepost.tools.definition import Tool
from milepost.tools.results import Pieces, to_result
from milepost.tools.threads import ThreadCall, ToolThreads

ERROR_CHARS_MAX = 2_000


class Invoker:
    """Calls tools. Built once; the threads are shared by all that it calls."""

    def __init__(self, threads: ToolThreads) -> None:
        self._threads = threads

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
        time (`tool_timeout`). Cancelling the caller cancels the tool.
        """
        values = tool.values(arguments)
        limit_s = timeout_s if tool.timeout_s is None else tool.timeout_s
        attempt = _Attempt(tool, values, context, self._threads)
        try:
            async with asyncio.timeout(limit_s):
                return await attempt.make()
        except TimeoutError:
            assert limit_s is not None, "only a limit runs out: a tool's own error is a ToolError"
            raise attempt.timed_out(limit_s) from None


class _RaisedInThread(Exception):  # noqa: N818 - a carrier, since a coroutine changes StopIteration
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class _Attempt:
    """One call of one tool."""

    def __init__(
        self, tool: Tool, values: dict[str, Any], context: ToolContext, threads: ToolThreads
    ) -> None:
        self._tool = tool
        self._values = values
        self._context = context
        self._threads = threads
        self._call: ThreadCall | None = None
        self._withdrawn = False

    async def make(self) -> Json:
        """Return what the tool returned, or raise ToolError for what it raised.

        Only a cancellation that was asked of this very task gets through: a tool that exits, or
        cancels something of its own, has failed and stops nobody else.
        """
        task = asyncio.current_task()
        assert task is not None, "tools run inside a task"
        cancelled_before = task.cancelling()
        try:
            result = to_result(await self._outcome())
        except BaseException as raised:
            if isinstance(raised, asyncio.CancelledError) and task.cancelling():
                raise
            error = raised.error if isinstance(raised, _RaisedInThread) else raised
            raise _failure(self._tool.name, error) from error
        if task.cancelling() > cancelled_before:
            # The tool swallowed it; the caller still wants to stop.
            raise asyncio.CancelledError
        return result

    def timed_out(self, limit_s: float) -> ToolError:
        """Return the error that says what became of the work."""
        late = f"{self._tool.name} timed out after {limit_s:g} s"
        if self._withdrawn:
            message = f"{late} before it began: all threads for synchronous tools were busy"
        elif self._call is not None:
            message = (
                f"{late}. It is a synchronous function, whose thread cannot be stopped: "
                "it may still be running, and what it does may still happen"
            )
        else:
            message = f"{late} and was cancelled; it may have acted before"
        return ToolError(message, code="tool_timeout", retryable=self._withdrawn)

    async def _outcome(self) -> object:
        await self._inject()
        outcome = await self._in_thread() if self._tool.in_thread else self._run()
        if inspect.isawaitable(outcome):
            outcome = await outcome
        if inspect.isasyncgen(outcome):
            pieces = Pieces()
            async for piece in outcome:
                pieces.add(piece)
            return pieces.join()
        return outcome

    async def _inject(self) -> None:
        signature = self._tool.signature
        if signature.injected:
            self._values.update(await self._tool.injection.values(self._context))
        for name in signature.context:
            self._values[name] = self._context

    def _run(self) -> object:
        positional = [
            self._values.pop(name, default)
            for name, default in self._tool.signature.positional.items()
        ]
        return self._tool.function(*positional, **self._values)

    async def _in_thread(self) -> object:
        self._call = self._threads.call(self._run_to_the_end)
        try:
            outcome, error = await self._call.future
        except asyncio.CancelledError:
            self._withdrawn = self._threads.withdraw(self._call)
            raise
        self._call = None
        if error is not None:
            raise _RaisedInThread(error)
        return outcome

    def _run_to_the_end(self) -> object:
        outcome = self._run()
        if not inspect.isgenerator(outcome):
            return outcome
        pieces = Pieces()
        for piece in outcome:
            pieces.add(piece)
        return pieces.join()


def _failure(tool: str, error: BaseException) -> ToolError:
    """Return the error for the model: what the tool raised, in a bounded number of words."""
    try:
        words = str(error)
    except Exception:  # it cannot even be printed
        words = ""
    kind = "" if isinstance(error, ToolError) else type(error).__name__
    told = ": ".join(part for part in (kind, words[:ERROR_CHARS_MAX]) if part)
    retryable = isinstance(error, ToolError) and error.retryable
    return ToolError(clean_text(f"{tool} failed: {told}"), retryable=retryable)
