"""What a tool says while it runs, on its way from whatever thread to those who listen."""

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol

from milepost.core.json import clean_text
from milepost.tools.results import RESULT_CHARS_MAX

CUT = f"\n[cut: while it runs, the first {RESULT_CHARS_MAX} characters are shown]"


class Writer(Protocol):
    """Where text goes, piece by piece; used on the event loop alone."""

    def write(self, piece: str) -> None:
        """Show a piece of text."""

    def close(self) -> None:
        """Show no more."""


class LiveProgress:
    """Takes text in whatever thread and hands it to a writer on the loop that it was made on.

    What is said between two turns of the loop is handed over at once, and what is said beyond
    `RESULT_CHARS_MAX` characters or after the end not at all, so that neither a tool that talks
    without end nor one that nobody waits for any more costs anything. A writer is opened with the
    first word: most tools say nothing. `pieces` counts what was said.
    """

    __slots__ = (
        "_closed", "_home", "_lock", "_loop", "_open", "_room", "_waiting", "_writer", "pieces",
    )  # fmt: skip

    def __init__(self, open_writer: Callable[[], Writer]) -> None:
        self._open = open_writer
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._lock = threading.Lock()
        self._room = RESULT_CHARS_MAX
        self._waiting: list[str] = []
        self._writer: Writer | None = None
        self._closed = False
        self.pieces = 0

    def __call__(self, text: object) -> None:
        """Show `text`, as soon as the loop comes to it."""
        if self._is_over() or not (piece := str(text)):
            return
        with self._lock:
            if self._is_over():
                return
            self.pieces += 1
            kept = piece[: self._room]
            self._room -= len(piece)
            self._waiting.append(clean_text(kept) + (CUT if self._room < 0 else ""))
            is_first = len(self._waiting) == 1
        if threading.get_ident() == self._home:
            self._hand_over()
        elif is_first:
            self._call_home()

    def close(self) -> None:
        """Show what waits, and nothing more. Must be called on the loop."""
        with self._lock:
            self._closed = True
        self._hand_over()
        if self._writer is not None:
            self._writer.close()

    def _is_over(self) -> bool:
        return self._closed or self._room < 0

    def _call_home(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._hand_over)
        except RuntimeError:
            # The loop was closed while the tool went on: nobody listens any more.
            return

    def _hand_over(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        if self._writer is None:
            self._writer = self._open()
        self._writer.write("".join(waiting))
