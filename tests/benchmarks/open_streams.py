"""`python -m tests.benchmarks.open_streams`: what a stream costs in which nothing happens.

Measured is by how much a server's resident memory grows when so many clients open a stream: all of
one run, and each of a run of its own. Each figure is of a server of its own, warmed up before.
"""

import argparse
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from tests import devservices
from tests.benchmarks import systems
from tests.benchmarks.comparison import put
from tests.benchmarks.idle import PATIENCE_S, allow_files, make
from tests.benchmarks.processes import child, resident_bytes
from tests.benchmarks.systems import Database, System

COUNTS = (100, 1_000, 5_000)
WARM_UP_RUNS = 200


@dataclass(frozen=True, slots=True)
class Place:
    """Where one figure is measured."""

    folder: Path
    model_url: str
    database: Database

    def serving(self) -> AbstractContextManager[System]:
        """Start a server on the database."""
        return systems.milepost("postgres", self.folder, self.model_url, self.database)


def main(arguments: Sequence[str]) -> None:
    """Measure, and print a line for each count."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.open_streams", description=__doc__
    )
    parser.add_argument("--streams", type=int, nargs="+", default=COUNTS)
    options = parser.parse_args(arguments)
    allow_files(max(options.streams))
    with (
        devservices.postgres() as service,
        devservices._scratch_directory(in_memory=True) as folder,
        systems.model(folder) as model_url,
    ):
        assert service, "there is no Postgres on this machine"
        print(f"{'streams':>8}{'of one run':>14}{'of a run each':>16}")
        for streams in options.streams:
            kilobytes = []
            for runs in (1, streams):
                with systems.database(service.url) as database:
                    place = Place(folder / f"{streams}-{runs}", model_url, database)
                    kilobytes.append(_stream_bytes(place, streams, runs) / 1000)
            print(f"{streams:>8,}{kilobytes[0]:>11.1f} KB{kilobytes[1]:>13.1f} KB", flush=True)


def _stream_bytes(place: Place, streams: int, runs: int) -> float:
    """Return how much memory each of so many idle streams of so many runs takes."""
    ids = place.folder / "runs"
    # Another process makes the runs: what that leaves free here would hide what streams take.
    with place.serving() as system:
        ids.write_text("\n".join(uvloop.run(make(system.server.port, runs))))
    with place.serving() as system:
        put(system, at_once=16, seconds=30, runs=WARM_UP_RUNS)
        return _growth(system, streams, ids) / streams


def _growth(system: System, streams: int, ids: Path) -> int:
    command = ["-m", "tests.benchmarks.idle", "--port", str(system.server.port)]
    command += ["--streams", str(streams), "--runs", str(ids)]
    with child(command, ids.parent) as clients:
        _await_line(clients)
        before = resident_bytes(system.server.pid)
        assert clients.stdin is not None
        clients.stdin.write(b"\n")
        clients.stdin.flush()
        _await_line(clients)
        return resident_bytes(system.server.pid) - before


def _await_line(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
    assert readable, "the clients take too long"
    assert process.stdout.readline(), "the clients gave up"


if __name__ == "__main__":
    main(sys.argv[1:])
