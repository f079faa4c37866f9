"""The threads in which synchronous tools run, so that none holds up the event loop."""

import asyncio
import contextlib
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from milepost.core.errors import ToolError, UnavailableError


class ThreadCall:
    """One call that waits for a thread or runs in one."""

    def __init__(self, work: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.started = False
        self.ended = False
        self.future: asyncio.Future[Any] = loop.create_future()
        self._work = work
        self._loop = loop
        self._context = contextvars.copy_context()

    def run(self) -> None:
        """Do the work, in whatever thread this is called, and tell the loop what became of it."""
        try:
            outcome, error = self._context.run(self._work), None
        except BaseException as raised:  # it ends the call, not the thread
            outcome, error = None, raised
        # Before anybody is told, or what they give up next would live on until this thread is done.
        del self._work, self._context
        self._tell(outcome, error)

    def refuse(self, error: ToolError) -> None:
        """Tell the loop that the work is not done, and why."""
        self._tell(None, error)

    def _tell(self, outcome: Any, error: BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle, outcome, error)
        except RuntimeError:
            # The loop was closed while the work went on: nobody waits any more.
            return

    def _settle(self, outcome: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        # An error is handed over as a value: a future refuses some, and a loop stops at others.
        self.future.set_result((outcome, error))


class ToolThreads:
    """At most `threads_max` threads, started when needed.

    A thread whose call was withdrawn while it ran is hung for all we know, and cannot be stopped:
    another may take its place. As many as `threads_max` are left behind like that; those that hang
    beyond keep their place, and when no place is left, calls are refused. All are daemons: a tool
    that never returns must not keep the process from ending.
    """

    def __init__(self, threads_max: int) -> None:
        self._threads_max = threads_max
        self._waiting: deque[ThreadCall] = deque()
        self._changed = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._left: set[ThreadCall] = set()
        self._stuck: set[ThreadCall] = set()
        self._closed = False

    @property
    def hung(self) -> int:
        """How many threads run what nobody waits for any more."""
        return len(self._left) + len(self._stuck)

    def call(self, work: Callable[[], Any]) -> ThreadCall:
        """Have `work` done with the caller's context variables. Its future holds result and error.

        Must be called on the event loop. Every call waits its turn, so callers bound their number.
        One for which the system has no thread is not done: its error is a ToolError that says so.
        Raises ToolError when every thread hangs, so that no turn would ever come.
        """
        call = ThreadCall(work, asyncio.get_running_loop())
        with self._changed:
            if self._closed:
                raise UnavailableError("the threads for tools are closed: the process is stopping")
            if len(self._stuck) >= self._threads_max:
                raise ToolError(
                    f"all {self._threads_max} threads for synchronous tools hang in calls that"
                    " timed out; restart the worker",
                    retryable=True,
                )
            self._waiting.append(call)
            self._start_thread()
            self._changed.notify()
        return call

    def withdraw(self, call: ThreadCall) -> bool:
        """Take back a call that no thread has begun, and say so; leave one that runs to itself.

        Another takes the place of one that is left, but a turn of the loop later: those that wait
        may be about to be withdrawn as well, and are not to begin because of it.
        """
        with self._changed:
            if not call.started:
                with contextlib.suppress(ValueError):  # It was refused, and waits no more.
                    self._waiting.remove(call)
                return True
            if not call.ended:
                self._leave(call)
                call.future.get_loop().call_soon(self._replace)
            return False

    def close(self) -> None:
        """Take no more calls and let the idle threads end; running work is not interrupted."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _start_thread(self) -> None:
        """Start one more if somebody would have to wait, and there may be one more.

        Where the system gives none, who waits has a turn in one of those that there are, if any.
        """
        if len(self._waiting) <= self._idle or self._threads >= self._threads_max:
            return
        try:
            threading.Thread(target=self._serve, name="milepost-tool", daemon=True).start()
        except RuntimeError as error:
            if self._threads <= len(self._stuck):
                self._refuse_all(error)
        else:
            self._threads += 1

    def _refuse_all(self, error: RuntimeError) -> None:
        """Let nobody wait for a turn that never comes, nor have it after he has given up."""
        while self._waiting:
            why = f"there is no thread for synchronous tools: {error}"
            self._waiting.popleft().refuse(ToolError(why, retryable=True))

    def _leave(self, call: ThreadCall) -> None:
        if len(self._left) >= self._threads_max:
            self._stuck.add(call)
            return
        self._left.add(call)
        self._threads -= 1

    def _replace(self) -> None:
        with self._changed:
            self._start_thread()

    def _serve(self) -> None:
        while call := self._next():
            call.run()
            if not self._end(call):
                return
            del call  # or what it returned would live until the next one comes

    def _next(self) -> ThreadCall | None:
        with self._changed:
            self._idle += 1
            while not self._waiting and not self._closed:
                self._changed.wait()
            self._idle -= 1
            if not self._waiting:
                self._threads -= 1
                return None
            call = self._waiting.popleft()
            call.started = True
            return call

    def _end(self, call: ThreadCall) -> bool:
        """Say whether this thread may take another call: its place may be another's by now."""
        with self._changed:
            call.ended = True
            self._stuck.discard(call)
            if call not in self._left:
                return True
            self._left.remove(call)
            if self._stuck:
                self._leave(self._stuck.pop())
                self._start_thread()
            return False
