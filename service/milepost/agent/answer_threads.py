"""The threads in which people are waited for, so that no tool and no event loop is."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from milepost.tools.threads import ThreadCall


def start_thread(work: Callable[[], None]) -> None:
    """Have `work` done in a thread that does not keep the process from ending."""
    threading.Thread(target=work, name="milepost-approval", daemon=True).start()


class AnswerThreads:
    """A thread for each question, which ends with its answer; at most `threads_max` at once.

    A question may be open for as long as a person takes, and its answer may hang on another's: so
    none waits for a thread that another holds, until the bound is reached. A thread whose question
    was given up keeps its place until it comes back.
    """

    def __init__(
        self, threads_max: int, start: Callable[[Callable[[], None]], None] = start_thread
    ) -> None:
        self._start = start
        self._free = threads_max
        self._waiting: deque[ThreadCall] = deque()
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many questions wait for a thread."""
        return len(self._waiting)

    def call(self, work: Callable[[], Any]) -> ThreadCall:
        """Have `work` done with the caller's context variables. Its future holds result and error.

        Must be called on an event loop. To cancel the future is to take the question back, if no
        thread has begun with it; one that has is left to itself.
        """
        call = ThreadCall(work, asyncio.get_running_loop())
        with self._lock:
            if not self._free:
                self._waiting.append(call)
                call.future.add_done_callback(lambda _: self._forget(call))
                return call
            self._free -= 1
        call.started = True
        try:
            self._start(partial(self._serve, call))
        except RuntimeError:  # The system gives no more threads.
            with self._lock:
                self._free += 1
            raise
        return call

    def _serve(self, call: ThreadCall | None) -> None:
        while call:
            call.run()
            call = self._next()

    def _forget(self, call: ThreadCall) -> None:
        with self._lock:
            if not call.started:
                self._waiting.remove(call)

    def _next(self) -> ThreadCall | None:
        """Return the call that has waited longest; without one, this thread's place is free."""
        with self._lock:
            while self._waiting:
                call = self._waiting.popleft()
                call.started = True
                # The loop may not have come to forget it yet.
                if not call.future.cancelled():
                    return call
            self._free += 1
            return None
