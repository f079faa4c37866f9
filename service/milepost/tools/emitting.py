"""Events of a tool's own: told to whoever follows the run while the tool runs, and kept."""

import re
import threading
from collections.abc import Callable
from typing import Protocol

import orjson

from milepost.core.errors import ToolError
from milepost.core.json import Json, UnencodableError, clean

EVENTS_MAX = 100
VALUE_BYTES_MAX = 65_536

_NAME = re.compile(r"[A-Za-z][\w.:-]{0,63}", re.ASCII)


class Emit(Protocol):
    """Tells an event of the tool's own. Raises ToolError for what can be none."""

    def __call__(self, name: str, value: object = None, /) -> None:
        """Tell it."""


def emit_to_nobody(name: str, value: object = None, /) -> None:
    """Check an event, and tell it to nobody: there is no run."""
    _checked(name, value)


class Emitter:
    """Takes one call's events, in whatever thread; once it is closed, none any more.

    At most `EVENTS_MAX` of them, each value at most `VALUE_BYTES_MAX` long as JSON: they are kept
    as long as the run.
    """

    __slots__ = ("_closed", "_count", "_lock", "_tell")

    def __init__(self, tell: Callable[[str, Json], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._count = 0
        self._closed = False

    def __call__(self, name: str, value: object = None, /) -> None:
        """Tell an event; it is taken as it is now."""
        checked = _checked(name, value)
        with self._lock:
            if self._closed:
                return
            if self._count >= EVENTS_MAX:
                raise ToolError(
                    f"a call may emit {EVENTS_MAX} events; say what goes on with progress()"
                )
            self._count += 1
            # Within the lock: events of several threads keep the order in which they were told.
            self._tell(name, checked)

    def close(self) -> None:
        """Take no more."""
        with self._lock:
            self._closed = True


def _checked(name: object, value: object) -> Json:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ToolError(
            f"{str(name)[:80]!r} is no name of an event; write a letter, then up to 63 letters,"
            " digits or any of _ . : -"
        )
    try:
        checked = clean(value)
    except UnencodableError as error:
        raise ToolError(f"the value of the event {name} is not JSON: {error}") from error
    size = len(orjson.dumps(checked))
    if size > VALUE_BYTES_MAX:
        raise ToolError(
            f"the value of the event {name} has {size} bytes as JSON, and may have"
            f" {VALUE_BYTES_MAX}; leave it as an artifact, and emit its id"
        )
    return checked
