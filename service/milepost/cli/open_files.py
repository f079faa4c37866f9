"""How many files a process may have open: each client that listens is one of them."""

import resource
from contextlib import suppress

# Enough for the streams that fit into the memory of one process, and for the rest beside them.
OPEN_FILES_MAX = 65_536


def allow_many() -> None:
    """Let this process open as many files as it may allow itself, up to `OPEN_FILES_MAX`.

    Most systems begin with 1,024 or 256, for programs that cannot cope with more, and leave it to
    the others to ask: see getrlimit(2). What this process starts inherits that.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with suppress(ValueError, OSError):  # Some systems have a lower bound of their own.
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
