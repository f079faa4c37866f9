"""What small things cost, and what they may: measured in rounds, of which the best one counts.

Whatever else the machine does can only add to it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What something takes in microseconds, and what it may take."""

    name: str
    micros: float
    limit_micros: float | None = None

    def __str__(self) -> str:
        limit, late = "", ""
        if self.limit_micros is not None:
            limit = f"  at most {self.limit_micros:,.0f}"
            late = "  MISSED" if self.micros > self.limit_micros else ""
        return f"{self.name:<38}{self.micros:>9,.1f} µs{limit}{late}"


def least(work: Callable[[], object], *, rounds: int, times: int) -> float:
    """Return the microseconds of one `work` in the best of `rounds` of `times`."""
    found: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(times):
            work()
        found.append((time.perf_counter() - began) / times * 1e6)
    return min(found)
