"""Forks of the process that runs the tests."""

import contextlib
import os
import select
import signal
import warnings
from collections.abc import Callable

FORK_S = 10.0


def in_a_fork(work: Callable[[], str]) -> str:
    """Return what the work returns in a fork of this process."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Later Pythons warn of any fork.
        child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.write(writing, work().encode())
        os._exit(0)
    os.close(writing)
    try:
        has_said, _, _ = select.select([reading], [], [], FORK_S)
        return os.read(reading, 100).decode() if has_said else "It hangs."
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
