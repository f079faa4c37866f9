"""Time and ids: what the pure core is given from outside."""

import os
import time
from collections.abc import Callable

from milepost.core.ids import format_id

Clock = Callable[[], int]
"""Returns Unix milliseconds."""

NewId = Callable[[str], str]
"""Returns a new id with the given prefix."""


def now_ms() -> int:
    """Return this machine's clock in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def new_id(prefix: str) -> str:
    """Return an id that no one else has, sortable by the time of its making."""
    return format_id(prefix, now_ms(), int.from_bytes(os.urandom(10)))
