"""The figures in words and columns."""

import os
import platform
import statistics
import time
from collections.abc import Mapping
from pathlib import Path

from tests.benchmarks.comparison import Sample, Series
from tests.benchmarks.plan import Stage
from tests.benchmarks.systems import SHOWN, Database, SystemName

SYNCS = 50

_HEADINGS = (
    f"{'':<26}{'':>7}{'of bare':>17}{'first event ms':>16}{'whole run ms':>16}"
    f"{'CPU ms a run':>15}{'of':>6}{'memory':>8}\n"
    f"{'':<26}{'runs/s':>7}{'loop':>17}{'p50':>8}{'p99':>8}{'p50':>8}{'p99':>8}"
    f"{'server':>8}{'db':>7}{'bare':>6}{'MB':>8}"
)


def machine(folder: Path, database: Database | None) -> str:
    """Return what the figures were measured on."""
    lines = [
        f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} before we began",
        f"Python {platform.python_version()}",
        f"a synced write takes {_synced_write_ms(folder):.2f} ms in {folder.parent}",
    ]
    if database:
        lines.append(f"Postgres {database.version}, {_durability(database)}")
    return "; ".join(lines)


def _durability(database: Database) -> str:
    if not database.soft:
        return "durable"
    return f"NOT DURABLE ({', '.join(database.soft)}): its figures flatter, use `make bench`"


def _synced_write_ms(folder: Path) -> float:
    path = folder / "synced"
    took = []
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    path.unlink()
    return statistics.median(took) * 1000


def table(stage: Stage, measured: Mapping[SystemName, Series]) -> str:
    """Return a stage's figures: medians, and beside the ratio of rates its least and greatest."""
    times = "once" if stage.rounds == 1 else f"{stage.rounds} times, medians"
    title = f"{stage.at_once} at once, {stage.seconds:g} s, measured {times}"
    rows = [_row(SHOWN[name], series) for name, series in measured.items()]
    samples = [sample for series in measured.values() for sample in series.samples]
    clients_ms = statistics.median(
        sample.load.cpu_s * 1000 / sample.load.runs for sample in samples
    )
    runs = sum(sample.load.runs for sample in samples)
    foot = f"{runs:,} streams checked; the clients took {clients_ms:.2f} ms of CPU a run"
    return "\n".join((title, _HEADINGS, *rows, foot))


def _row(shown: str, series: Series) -> str:
    return (
        f"{shown:<26}{series.median(lambda one: one.load.rate):>7,.0f}{_share(series):>17}"
        f"{series.median(lambda one: one.load.first_p50_ms):>8.1f}"
        f"{series.median(lambda one: one.load.first_p99_ms):>8.1f}"
        f"{series.median(lambda one: one.load.run_p50_ms):>8.1f}"
        f"{series.median(lambda one: one.load.run_p99_ms):>8.1f}"
        f"{series.median(lambda one: one.server_ms_a_run):>8.2f}{_database_ms(series):>7}"
        f"{_cost(series):>6}{series.median(_resident_mb):>8.0f}"
    )


def _share(series: Series) -> str:
    if not series.bare:
        return "-"
    shares = series.shares
    middle = f"{statistics.median(shares):.1%}"
    return middle if len(shares) == 1 else f"{middle} ({min(shares):.0%}-{max(shares):.0%})"


def _cost(series: Series) -> str:
    costs = series.costs
    return f"{statistics.median(costs):.1f}x" if costs else "-"


def _database_ms(series: Series) -> str:
    each = [
        sample.database_s * 1000 / sample.load.runs
        for sample in series.samples
        if sample.database_s is not None
    ]
    return f"{statistics.median(each):.2f}" if each else "-"


def _resident_mb(sample: Sample) -> float:
    return sample.resident_bytes / 1_000_000
