"""A disk without room, for one process: its files do not grow any more."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

# What a log and a ledger of tools need meanwhile; a journal of SQLite is soon beyond it.
ROOM_BYTES = 256 * 1024


@contextmanager
def full_disk(pid: int) -> Iterator[None]:
    """Refuse what the process writes behind the first `ROOM_BYTES` of any file."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (ROOM_BYTES, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
