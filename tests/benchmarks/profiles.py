"""Where the server's CPU time goes: its most expensive functions, in microseconds of a run."""

import os
import pstats
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.comparison import put
from tests.benchmarks.plan import PROFILED
from tests.benchmarks.systems import SHOWN, Database, SystemName, milepost

FUNCTIONS_SHOWN = 40
NANOS = 1_000_000


def profile(
    names: Sequence[SystemName], folder: Path, model_url: str, database: Database | None
) -> None:
    """Print a profile of Milepost on each of the databases."""
    for name in names:
        if name == "bare":
            continue
        path = folder / f"{name}.profile"
        used = database if name == "postgres" else None
        with milepost(name, folder / name, model_url, used, path) as system:
            put(system, at_once=16, seconds=60, runs=PROFILED.warm_up_runs)
            os.kill(system.server.pid, signal.SIGUSR1)
            (stage,) = PROFILED.stages
            load = put(system, at_once=stage.at_once, seconds=stage.seconds)
        print(f"{SHOWN[name]}, {load.runs} runs under the profiler, which slows them down")
        print(tables(path, load.runs), end="\n\n", flush=True)


def tables(path: Path, runs: int) -> str:
    """Return the functions that took the most by themselves, and with what they called."""
    stats: dict[tuple[str, int, str], Any] = pstats.Stats(str(path)).stats  # type: ignore[attr-defined]
    rows = [
        (_place(*function), calls / runs, own * NANOS / runs, whole * NANOS / runs)
        for function, (_, calls, own, whole, _) in stats.items()
    ]
    own_us = sum(row[2] for row in rows)
    return "\n\n".join(
        (
            _table(f"by own time, of {own_us:.0f} us a run in all", rows, lambda row: row[2]),
            _table("by time with what is called", rows, lambda row: row[3]),
        )
    )


Row = tuple[str, float, float, float]


def _table(title: str, rows: list[Row], key: Callable[[Row], float]) -> str:
    first = sorted(rows, key=key, reverse=True)[:FUNCTIONS_SHOWN]
    lines = [
        f"{calls:>9.1f}{own:>9.1f}{whole:>9.1f}  {place}" for place, calls, own, whole in first
    ]
    return "\n".join((title, f"{'calls':>9}{'own us':>9}{'with us':>9}", *lines))


def _place(file: str, line: int, name: str) -> str:
    parts = Path(file).parts
    known = next((at for at, part in enumerate(parts) if part in {"milepost", "site-packages"}), 0)
    return name if file == "~" else f"{'/'.join(parts[known:])}:{line} {name}"
