"""Milepost under a profiler that counts CPU time, in the event loop and in every other thread.

`python -m tests.benchmarks.profiled FILE serve` is `milepost serve` that writes its profile to FILE
when it ends. It profiles from SIGUSR1 on, so that starting up, and what warms up, does not count.
"""

import cProfile
import pstats
import runpy
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType


class Profiling:
    """A profile for each thread, added up at the end."""

    def __init__(self) -> None:
        self._begun = False
        self._profiles: list[cProfile.Profile] = []

    def begin(self, *_: object) -> None:
        """Profile from here on; a signal's handler, and so in the main thread."""
        self._begun = True
        self._join()

    def watch(self, _frame: FrameType, _event: str, _argument: object) -> None:
        """Wait in another thread for the beginning; the profile then replaces this function."""
        if self._begun:
            self._join()

    def write(self, path: Path) -> None:
        """Write the sum; every other thread must have ended."""
        if self._profiles:
            self._profiles[0].disable()
            pstats.Stats(*self._profiles).dump_stats(path)

    def _join(self) -> None:
        profile = cProfile.Profile(time.thread_time)
        # From Python 3.12 on one profile at a time is active in the whole process.
        with suppress(ValueError):
            profile.enable()
            self._profiles.append(profile)


def _main(path: Path) -> None:
    profiling = Profiling()
    signal.signal(signal.SIGUSR1, profiling.begin)
    threading.setprofile(profiling.watch)
    sys.argv = ["milepost", *sys.argv[2:]]
    try:
        runpy.run_module("milepost", run_name="__main__")
    finally:
        profiling.write(path)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
