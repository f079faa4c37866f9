"""`python -m tests.benchmarks.parts`: what a run costs in an API, in a worker, and in one process.

On Postgres, and with Redis wherever there are two processes. A second of a processor divided by
what a run takes of it in a process is how many runs a second such a process can do where it has a
processor to itself: here they all share the machine's, with the model and the clients.
"""

import argparse
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import devservices
from tests.benchmarks import report, systems
from tests.benchmarks.comparison import put
from tests.benchmarks.load import Load
from tests.benchmarks.plan import Stage
from tests.benchmarks.processes import cpu_s, resident_bytes
from tests.benchmarks.systems import Database, System

WARM_UP_RUNS = 300
STAGES = (Stage(64, 5, 3.0), Stage(16, 3, 2.0))
WORKERS = (0, 1, 2)


@dataclass(frozen=True, slots=True)
class Ground:
    """What the processes stand on."""

    folder: Path
    model_url: str
    database: Database
    redis_url: str

    @contextmanager
    def standing(self, workers: int) -> Iterator["Standing"]:
        """Run an API with so many workers, or, with none, the one process that is both."""
        with ExitStack() as stack:
            at = self.folder / str(workers)
            if not workers:
                serving = systems.milepost("postgres", at, self.model_url, self.database)
                yield Standing(stack.enter_context(serving), ())
                return
            rest = (self.model_url, self.database, self.redis_url)
            served = stack.enter_context(systems.api(at, *rest))
            pids = [
                stack.enter_context(systems.worker(at.with_name(f"{workers}-{number}"), *rest))
                for number in range(workers)
            ]
            yield Standing(served, tuple(pids))


@dataclass(frozen=True, slots=True)
class Standing:
    """What is measured: what clients talk to, and the workers behind it."""

    system: System
    workers: tuple[int, ...]

    @property
    def shown(self) -> str:
        """What it is, in words."""
        if not self.workers:
            return "one process"
        return f"an API, {len(self.workers)} worker{'s' * (len(self.workers) > 1)}"

    def used_s(self) -> dict[str, float]:
        """Return how much of processors each part has had so far, all workers together."""
        used = {"api": cpu_s(self.system.server.pid), "workers": sum(map(cpu_s, self.workers))}
        if self.system.database_pid:
            used["database"] = cpu_s(self.system.database_pid)
        return used


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: what clients saw, and the CPU time of each part for one run."""

    load: Load
    ms_a_run: Mapping[str, float]


def main(arguments: Sequence[str]) -> None:
    """Measure, and print a table for each stage."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.parts", description=__doc__)
    parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = stack.enter_context(devservices._scratch_directory(in_memory=False))
        postgres = stack.enter_context(devservices.postgres())
        redis = stack.enter_context(devservices.redis())
        if postgres is None or redis is None:
            sys.exit("there is no Postgres, or no Valkey, on this machine")
        model_url = stack.enter_context(systems.model(folder))
        database = stack.enter_context(systems.database(postgres.url))
        print(report.machine(folder, database), end="\n\n", flush=True)
        ground = Ground(folder, model_url, database, redis.url)
        for stage in STAGES:
            print(f"{stage.at_once} at once, {stage.rounds} times, medians\n{_HEAD}", flush=True)
            for workers in WORKERS:
                with ground.standing(workers) as standing:
                    put(standing.system, at_once=16, seconds=30, runs=WARM_UP_RUNS)
                    samples = [measure(stage, standing) for _ in range(stage.rounds)]
                    print(_row(standing, samples), flush=True)
            print()


def measure(stage: Stage, standing: Standing) -> Sample:
    """Put the load of a stage on it, once."""
    before = standing.used_s()
    system = standing.system
    load = put(system, at_once=stage.at_once, seconds=stage.seconds, runs=stage.runs)
    after = standing.used_s()
    return Sample(load, {part: (after[part] - before[part]) * 1000 / load.runs for part in after})


_HEAD = (
    f"{'':<20}{'':>8}{'first event ms':>16}{'CPU ms a run':>27}{'memory MB':>16}\n"
    f"{'':<20}{'runs/s':>8}{'p50':>8}{'p99':>8}{'api':>9}{'workers':>9}{'db':>9}"
    f"{'api':>8}{'worker':>8}"
)


def _row(standing: Standing, samples: Sequence[Sample]) -> str:
    def median(part: str) -> str:
        each = [sample.ms_a_run[part] for sample in samples if part in sample.ms_a_run]
        return f"{statistics.median(each):.2f}" if any(each) else "-"

    loads = [sample.load for sample in samples]
    workers_mb = [resident_bytes(pid) / 1e6 for pid in standing.workers]
    return (
        f"{standing.shown:<20}{statistics.median(each.rate for each in loads):>8,.0f}"
        f"{statistics.median(each.first_p50_ms for each in loads):>8.1f}"
        f"{statistics.median(each.first_p99_ms for each in loads):>8.1f}"
        f"{median('api'):>9}{median('workers'):>9}{median('database'):>9}"
        f"{resident_bytes(standing.system.server.pid) / 1e6:>8.0f}"
        f"{max(workers_mb) if workers_mb else 0:>8.0f}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
