"""Measures the systems in turns, so that what else the machine does hits all of them alike."""

import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import orjson

from tests.benchmarks.load import PATIENCE_S, RUNS_MAX, Load
from tests.benchmarks.plan import Stage
from tests.benchmarks.processes import ROOT, child, cpu_s, first_line, resident_bytes
from tests.benchmarks.systems import System, SystemName

START_S = 30.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement of one system. CPU times are for the whole load, in seconds."""

    load: Load
    server_s: float
    database_s: float | None
    resident_bytes: int

    @property
    def server_ms_a_run(self) -> float:
        """CPU time of the server for one run, in milliseconds."""
        return self.server_s * 1000 / self.load.runs


@dataclass(slots=True)
class Series:
    """A system's samples of one stage; `bare` holds what the bare loop did around each of them."""

    samples: list[Sample] = field(default_factory=list)
    bare: list[tuple[Sample, Sample]] = field(default_factory=list)

    def median(self, of: Callable[[Sample], float]) -> float:
        """Return the median of a figure."""
        return statistics.median(map(of, self.samples))

    @property
    def shares(self) -> list[float]:
        """The system's rate as a share of the bare loop's, each time."""
        return [
            sample.load.rate / statistics.mean((before.load.rate, after.load.rate))
            for sample, (before, after) in zip(self.samples, self.bare, strict=True)
        ]

    @property
    def costs(self) -> list[float]:
        """The server's CPU time for a run as a multiple of the bare loop's, where it had any."""
        if not self.bare:
            return []
        return [
            sample.server_ms_a_run / bare_ms
            for sample, (before, after) in zip(self.samples, self.bare, strict=True)
            if (bare_ms := statistics.mean((before.server_ms_a_run, after.server_ms_a_run)))
        ]


def compare(stage: Stage, systems: Sequence[System]) -> dict[SystemName, Series]:
    """Measure a stage: all systems in turns, the bare loop before and after each turn."""
    bare = next((system for system in systems if system.name == "bare"), None)
    others = [system for system in systems if system is not bare]
    measured: dict[SystemName, Series] = {system.name: Series() for system in systems}
    for _ in range(stage.rounds):
        if bare:
            measured["bare"].samples.append(measure(stage, bare))
        for system in others:
            measured[system.name].samples.append(measure(stage, system))
    if bare:
        around = measured["bare"].samples
        if others:
            around.append(measure(stage, bare))
        for system in others:
            measured[system.name].bare = list(pairwise(around))
    return measured


def measure(stage: Stage, system: System) -> Sample:
    """Put the load of a stage on a system, once."""
    server_s, database_s = _used(system)
    load = put(system, at_once=stage.at_once, seconds=stage.seconds, runs=stage.runs)
    server_then_s, database_then_s = _used(system)
    return Sample(
        load=load,
        server_s=server_then_s - server_s,
        database_s=database_then_s - database_s if system.database_pid else None,
        resident_bytes=resident_bytes(system.server.pid),
    )


def _used(system: System) -> tuple[float, float]:
    return cpu_s(system.server.pid), cpu_s(system.database_pid) if system.database_pid else 0.0


def put(system: System, *, at_once: int, seconds: float, runs: int = RUNS_MAX) -> Load:
    """Put load on a system from another process. Raises if one stream was not as it must be."""
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "tests.benchmarks.load", "--port", str(system.server.port)),
            *("--at-once", str(at_once), "--seconds", str(seconds), "--runs", str(runs)),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=seconds + PATIENCE_S + START_S,
        check=True,
    )
    return Load(**orjson.loads(ended.stdout))


def idle_stream_bytes(system: System, streams: int, folder: Path) -> float:
    """Return how much memory a stream takes in which nothing happens."""
    command = ["-m", "tests.benchmarks.idle", "--port", str(system.server.port)]
    with child([*command, "--streams", str(streams)], folder) as clients:
        first_line(clients)
        before = resident_bytes(system.server.pid)
        assert clients.stdin is not None
        clients.stdin.write(b"\n")
        clients.stdin.flush()
        first_line(clients)
        return (resident_bytes(system.server.pid) - before) / streams
