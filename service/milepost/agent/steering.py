"""Saying something to a run in process while it is under way."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from milepost.core.errors import ConflictError, InvalidError

Hear = Callable[[str], None]


class Steering:
    """A way to say something to a run: hand it in with the run, and speak from wherever you are.

    The run's model reads it at its next step, and answers to it, too. One run at a time hears.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hearer: tuple[asyncio.AbstractEventLoop, Hear] | None = None
        self._unheard: set[Future[None]] = set()

    def say(self, text: str) -> None:
        """Bring a text to the run. Raises `ConflictError` if none is under way."""
        heard: Future[None] = Future()
        with self._lock:
            if self._hearer is None:
                raise nobody_hears()
            loop, hear = self._hearer
            if loop is _loop_here():
                hear(text)
                return
            self._unheard.add(heard)
            loop.call_soon_threadsafe(self._bring, hear, text, heard)
        heard.result()

    @contextmanager
    def heard_by(self, hear: Hear) -> Iterator[None]:
        """Have `hear` told of all that is said, on the loop of whoever asks for it."""
        with self._lock:
            if self._hearer is not None:
                raise InvalidError("another run hears this Steering; give each run its own")
            self._hearer = (asyncio.get_running_loop(), hear)
        try:
            yield
        finally:
            with self._lock:
                self._hearer = None
                for heard in self._unheard:
                    heard.set_exception(nobody_hears())
                self._unheard.clear()

    def _bring(self, hear: Hear, text: str, heard: "Future[None]") -> None:
        if heard not in self._unheard:
            return  # Who said it knows that it came too late.
        self._unheard.discard(heard)
        try:
            hear(text)
        except Exception as error:
            heard.set_exception(error)
        else:
            heard.set_result(None)


def nobody_hears() -> ConflictError:
    """Return what is raised where nobody would ever read what is said."""
    return ConflictError(
        "no run is under way to hear this; say it with the next one", code="run_over"
    )


def _loop_here() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
