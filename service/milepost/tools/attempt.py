"""One call of one tool: what it is given, where its function runs, and what comes of it."""

import asyncio
import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any

from milepost.core.errors import ToolError
from milepost.core.json import Json
from milepost.tools.context import Progress, ToolContext
from milepost.tools.definition import Tool
from milepost.tools.discretion import Discretion
from milepost.tools.isolation import ToolProcesses
from milepost.tools.raised import told
from milepost.tools.references import NOTHING, Revealed, known
from milepost.tools.results import Pieces, to_result
from milepost.tools.secret import FindSecret, given
from milepost.tools.threads import ThreadCall, ToolThreads

MayStart = Callable[[], None]


NO_SECRETS = given({})


def whenever() -> None:
    """Let every tool start: no lease can lapse."""


@dataclass(frozen=True, slots=True)
class Facilities:
    """What calls are made with, the same for all that one invoker makes."""

    threads: ToolThreads | None = None
    processes: ToolProcesses | None = None
    may_start: MayStart = whenever
    find_secret: FindSecret = NO_SECRETS


ALONE = Facilities()


class _RaisedInThread(Exception):  # noqa: N818 - a carrier, since a coroutine changes StopIteration
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class Attempt:
    """One call of one tool."""

    __slots__ = (
        "_began", "_call", "_context", "_discretion", "_facilities", "_left", "_refused",
        "_revealed", "_tool", "_values", "_withdrawn",
    )  # fmt: skip

    def __init__(
        self,
        tool: Tool,
        values: dict[str, Any],
        context: ToolContext,
        facilities: Facilities = ALONE,
    ) -> None:
        self._tool = tool
        self._values = values
        self._context = context
        self._facilities = facilities
        self._revealed: Revealed | None = None
        self._discretion: Discretion | None = None
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
            try:
                return await self._made()
            finally:
                if self._discretion:
                    self._discretion.end()
        except BaseException as raised:
            error = raised.error if isinstance(raised, _RaisedInThread) else raised
            if error is self._refused:
                raise error from None
            if isinstance(raised, asyncio.CancelledError) and _cancelled():
                raise
            raise self._failure(error) from self._cause(error)
        finally:
            on_end()

    def entrust(self, secrets: Mapping[str, str]) -> Discretion:
        """Have the function given these by parameter; return what keeps it from telling them."""
        self._revealed = known(secrets)
        self._values.update(secrets)
        discretion = Discretion(self._context, self._revealed)
        self._context = discretion.context
        discretion.begin()
        return discretion

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

    async def _made(self) -> Json:
        if self._tool.is_given:
            if self._tool.signature.secrets:
                await self._reveal()
            self._values.update(await self._tool.injection.values(self._context))
        if self._tool.isolation:
            return await self._in_process()
        if self._tool.in_thread:
            return await self._in_thread()
        outcome = self._run()
        if inspect.iscoroutine(outcome):
            outcome = await outcome
        return await self.finish(outcome)

    async def _reveal(self) -> None:
        try:
            secrets = await self._tool.injection.secrets(
                self._context, self._facilities.find_secret
            )
        except ToolError as error:
            why = f"{self.name} failed: {error}"
            self._refused = ToolError(why, code=error.code, retryable=error.retryable)
            raise self._refused from error
        self._discretion = self.entrust(secrets)

    def _start(self) -> None:
        try:
            self._facilities.may_start()
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
        processes = self._facilities.processes
        assert processes is not None, "whoever runs isolated tools has processes for them"
        secrets = self._revealed.texts if self._revealed else {}
        arguments = {name: value for name, value in self._values.items() if name not in secrets}
        return await processes.call(self._tool, arguments, self._context, self._start, secrets)

    async def _in_thread(self) -> Json:
        threads = self._facilities.threads
        assert threads is not None, "whoever runs tools in threads has some"
        self._call = threads.call(self.run_to_the_end)
        try:
            outcome, error = await self._call.future
        except asyncio.CancelledError:
            self._withdrawn = threads.withdraw(self._call)
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
        return await _result_of(unfinished, self._context.progress, self._revealed)

    def run_to_the_end(self) -> tuple[object, Json]:
        """Return what only the loop can finish, or else the result.

        A result is converted here as well: it may be large, or be made only as it is looked at.
        """
        outcome = self._run()
        if inspect.isawaitable(outcome) or inspect.isasyncgen(outcome):
            return outcome, None
        if inspect.isgenerator(outcome):
            return None, self._joined(outcome)
        return None, to_result(outcome, self._revealed)

    def _failure(self, error: BaseException) -> ToolError:
        """Return the error for the model."""
        retryable = isinstance(error, ToolError) and error.retryable
        said = told(error, self._revealed or NOTHING)
        return ToolError(f"{self.name} failed: {said}", retryable=retryable)

    def _cause(self, error: BaseException) -> BaseException:
        return self._discretion.cause(error) if self._discretion else error

    def _joined(self, generator: Generator[object, Any, object]) -> str:
        """Return the pieces as one; of a generator that nobody waits for any more, no further."""
        pieces = Pieces(self._context.progress, self._revealed)
        with closing(generator):
            for piece in generator:
                if self._left:
                    break
                pieces.add(piece)
        return pieces.join()


async def _result_of(outcome: object, progress: Progress, revealed: Revealed | None) -> Json:
    """Return what comes of an awaitable, and the pieces of a generator as one."""
    if type(outcome) is str:  # or there is nothing to be looked at
        return to_result(outcome, revealed)
    if inspect.isawaitable(outcome):
        outcome = await outcome
    pieces = Pieces(progress, revealed)
    if inspect.isasyncgen(outcome):
        async with aclosing(outcome):
            async for piece in outcome:
                pieces.add(piece)
                await asyncio.sleep(0)  # or one that never waits would hold up everybody
        return pieces.join()
    if not inspect.isgenerator(outcome):
        return to_result(outcome, revealed)
    with closing(outcome):
        for piece in outcome:
            pieces.add(piece)
            await asyncio.sleep(0)  # or nobody would see it before the last one
    return pieces.join()


def _cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
