"""An event loop without time or chance of its own: seeded order, virtual seconds, frozen processes.

Callbacks of one process run in the order in which they were asked for, as asyncio promises. Which
process is next is up to the seed.
"""

import asyncio
import heapq
import logging
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, TypeVar, cast

T = TypeVar("T")

CLOSINGS_MAX = 50
STEPS_MAX = 12_000


class StuckError(Exception):
    """Nothing is left to do, or too much was done, and the simulation is not over."""


class Process:
    """Callbacks that run, stand still and die together.

    `fuse` is after how many of them `blow` is called: what befalls a process in the middle of
    something is no matter of time.
    """

    __slots__ = ("alive", "blow", "frozen", "fuse", "name", "owner", "ready")

    def __init__(self, name: str, owner: object = None) -> None:
        self.name = name
        self.owner = owner
        self.alive = True
        self.frozen = False
        self.ready: deque[Handle] = deque()
        self.fuse = 0
        self.blow: Callable[[], None] | None = None


PROCESS: ContextVar[Process] = ContextVar("PROCESS")


class Handle:
    """A callback that was asked for, at once or at a time."""

    __slots__ = ("_when_s", "args", "callback", "context", "is_cancelled", "process")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
        process: Process,
        when_s: float = 0.0,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.process = process
        self.is_cancelled = False
        self._when_s = when_s

    def cancel(self) -> None:
        """Have it not run."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """Say whether it will not run."""
        return self.is_cancelled

    def when(self) -> float:
        """Return at what time it runs."""
        return self._when_s


class NumberedTask(asyncio.Task[T]):
    """A task whose place in a set is the same in every process that simulates this seed."""

    def __init__(
        self, coro: Coroutine[Any, Any, T], *, number: int, loop: "VirtualLoop", **rest: Any
    ) -> None:
        self._number = number
        super().__init__(coro, loop=cast("asyncio.AbstractEventLoop", loop), **rest)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class VirtualLoop:
    """Runs the callbacks of several processes in one thread, in virtual time."""

    def __init__(self, random: Random) -> None:
        self.world = Process("world")
        self.over = False
        self.steps = 0
        self.crash: BaseException | None = None
        self._now_s = 0.0
        self._random = random.random
        self._runnable: list[Process] = []
        self._timers: list[tuple[float, int, Handle]] = []
        self._count = 0
        self._tasks: list[NumberedTask[Any]] = []
        self._contexts: dict[Process, Context] = {}

    # --- Processes ---

    def spawn(self, process: Process, coroutine: Coroutine[Any, Any, object]) -> None:
        """Begin a task in a process."""
        _ = self.create_task(coroutine, context=self.context_of(process).copy())

    def context_of(self, process: Process) -> Context:
        """Return the context in which the process' callbacks run."""
        if process not in self._contexts:
            context = Context()
            context.run(PROCESS.set, process)
            self._contexts[process] = context
        return self._contexts[process]

    def kill(self, process: Process) -> None:
        """Let nothing of the process ever run again, not even what cleans up."""
        process.alive = False
        process.ready.clear()
        self._rest(process)

    def freeze(self, process: Process) -> None:
        """Let the process stand still; what comes for it waits."""
        process.frozen = True
        self._rest(process)

    def thaw(self, process: Process) -> None:
        """Let the process go on as if no time had passed."""
        process.frozen = False
        if process.ready and process not in self._runnable:
            self._runnable.append(process)

    def _rest(self, process: Process) -> None:
        if process in self._runnable:
            self._runnable.remove(process)

    # --- What asyncio asks of a loop ---

    def time(self) -> float:
        """Return virtual seconds since the beginning."""
        return self._now_s

    def get_debug(self) -> bool:
        """Say no: nobody debugs the loop."""
        return False

    def is_running(self) -> bool:
        """Say whether it runs."""
        return not self.over

    def is_closed(self) -> bool:
        """Say no: it never closes."""
        return False

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a new future."""
        return asyncio.Future(loop=cast("asyncio.AbstractEventLoop", self))

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: Context | None = None,
        **_: Any,
    ) -> NumberedTask[Any]:
        """Begin a task, in the process whose context it gets."""
        self._count += 1
        task = NumberedTask(
            coro, number=self._count, loop=self, name=name or "task", context=context
        )
        self._tasks.append(task)
        return task

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        """Run the callback behind all that its process has to run already."""
        if context is None:
            context = copy_context()
        handle = Handle(callback, args, context, context.get(PROCESS, self.world))
        self._push(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        """Run the callback after so many virtual seconds."""
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        """Run the callback at a virtual time."""
        if context is None:
            context = copy_context()
        handle = Handle(callback, args, context, context.get(PROCESS, self.world), when)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, handle))
        return handle

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Take no notice: what nobody retrieved befell a task that nobody waits for."""

    def _push(self, handle: Handle) -> None:
        process = handle.process
        if not process.alive:
            return
        if not process.ready and not process.frozen:
            self._runnable.append(process)
        process.ready.append(handle)

    # --- Running ---

    def run(self) -> None:
        """Run until somebody sets `over`, or a callback raises, which is kept in `crash`."""
        _set_running_loop(cast("asyncio.AbstractEventLoop", self))
        try:
            while not self.over:
                if self._runnable:
                    self._step()
                else:
                    self._advance()
        except BaseException as error:
            self.crash = error
        finally:
            self.over = True
            self._close_tasks()
            _set_running_loop(None)

    def _step(self) -> None:
        runnable = self._runnable
        place = int(self._random() * len(runnable)) if len(runnable) > 1 else 0
        process = runnable[place]
        handle = process.ready.popleft()
        if not process.ready:
            runnable[place] = runnable[-1]
            runnable.pop()
        if handle.is_cancelled:
            return
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise StuckError(f"{STEPS_MAX} callbacks, and no end: the same happens again and again")
        handle.context.run(handle.callback, *handle.args)
        if process.fuse:
            process.fuse -= 1
            if not process.fuse and process.blow is not None:
                process.blow()

    def _advance(self) -> None:
        """Let time go on to the next timer, and take all that are due then."""
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        if not timers:
            raise StuckError("no timer is set, and nothing is ready")
        self._now_s = max(self._now_s, timers[0][0])
        while timers and timers[0][0] <= self._now_s:
            handle = heapq.heappop(timers)[2]
            if not handle.is_cancelled:
                self._push(handle)

    def _close_tasks(self) -> None:
        """End every task in the order in which it began, so that no collector does it later.

        What they say of it is nobody's business.
        """
        said, logging.root.manager.disable = logging.root.manager.disable, logging.CRITICAL
        for task in self._tasks:
            if task.done():
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own
            coroutine = task.get_coro()
            for _ in range(CLOSINGS_MAX):
                with suppress(BaseException):
                    coroutine.close()
                    break
        self._tasks.clear()
        logging.root.manager.disable = said
