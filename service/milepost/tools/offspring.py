"""What a tool's process has started, wherever it went.

A process group holds together what stays in it. A daemon leaves it, and its parent may be gone: but
it was born with the environment of its forebears.
"""

import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "TOOL_PROCESS"
ROUNDS_MAX = 10

_PROCESSES = Path("/proc")


def new_mark() -> str:
    """Return what a process and all that it starts carry in their environment as `MARK`."""
    return secrets.token_hex(16)


def kill_marked(mark: str) -> None:
    """Kill every process that carries the mark, but for the one that this is called in.

    Where the system does not show what processes carry, none is found. One that threw its
    environment away is not found either.
    """
    killed: set[int] = set()
    for _ in range(ROUNDS_MAX):
        # Those that were started meanwhile are found in the next round.
        found = {*_marked(mark)} - killed
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return
        killed |= found


def _marked(mark: str) -> Iterator[int]:
    entry = f"{MARK}={mark}".encode()
    for place in _PROCESSES.glob("[0-9]*"):
        with suppress(OSError):
            if int(place.name) != os.getpid() and entry in (place / "environ").read_bytes():
                yield int(place.name)
