"""How late threads get their turn: who judges by time has to know whether the machine kept it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

NAP_S = 0.05


@dataclass(slots=True)
class Lateness:
    """The longest time by which a thread woke later than it wanted to."""

    worst_s: float = 0.0


@contextmanager
def watched() -> Iterator[Lateness]:
    """Watch a thread nap while the block lasts."""
    lateness, over = Lateness(), threading.Event()

    def nap() -> None:
        wanted_s = time.monotonic() + NAP_S
        while not over.wait(NAP_S):
            now_s = time.monotonic()
            lateness.worst_s = max(lateness.worst_s, now_s - wanted_s)
            wanted_s = now_s + NAP_S

    napping = threading.Thread(target=nap, name="napping", daemon=True)
    napping.start()
    try:
        yield lateness
    finally:
        over.set()
        napping.join()
