"""`python -m tests.benchmarks.growth`: what a run costs beside few others that are over, and many.

For each database: a claim, the slowest list of few runs, and a run under load, with a past of so
many runs. Every run of the past has its session, its log, its spans and its usage.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from milepost.store.address import Address, parse_address
from tests import devservices
from tests.benchmarks import report, systems
from tests.benchmarks.comparison import Sample, measure, put
from tests.benchmarks.copies import OVER, multiply
from tests.benchmarks.parked import Times, claiming, listing
from tests.benchmarks.plan import Stage
from tests.benchmarks.systems import SHOWN, Database, System, SystemName

SIZES = (100, 10_000, 1_000_000)
TRIES = 200
LISTS = 20
ROUNDS = 3
_STAGE = Stage(at_once=64, rounds=ROUNDS, seconds=3.0)
_NAMES: tuple[SystemName, ...] = ("sqlite", "postgres")


@dataclass(frozen=True, slots=True)
class Aged:
    """What was measured with a past of so many runs; the slowest list, the load's best round."""

    past: int
    claim: Times
    listed: Times
    load: Sample
    making_s: float


def main(arguments: Sequence[str]) -> None:
    """Measure, and print as it comes."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.growth")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="runs that are over")
    parser.add_argument("--only", nargs="+", choices=_NAMES, default=_NAMES)
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = stack.enter_context(devservices._scratch_directory(in_memory=False))
        model_url = stack.enter_context(systems.model(folder))
        for name in options.only:
            database = None
            if name == "postgres":
                service = stack.enter_context(devservices.postgres())
                if service is None:
                    print("no Postgres on this machine, so it is left out", file=sys.stderr)
                    continue
                database = stack.enter_context(systems.database(service.url))
            print(report.machine(folder, database), end="\n\n", flush=True)
            growing = Growing(name, folder / name, model_url, database)
            print(f"{SHOWN[name]}\n{_HEAD}")
            found: list[Aged] = []
            for past in sorted(options.sizes):
                found.append(growing.aged(past))
                print(_row(found[-1], found[0]), flush=True)
            print()


class Growing:
    """One database, whose past grows."""

    def __init__(
        self, name: SystemName, folder: Path, model_url: str, database: Database | None
    ) -> None:
        self._name = name
        self._folder = folder
        self._model_url = model_url
        self._database = database
        self._past = 0
        url = database.url if database else f"sqlite:///{folder}/milepost.db"
        self._address: Address = parse_address(url)

    def aged(self, past: int) -> Aged:
        """Let the past grow to so many runs, and measure."""
        if not self._past:
            with self._serving() as system:  # The first run is what the others are copies of.
                put(system, at_once=1, seconds=30, runs=1)
            self._past = 1
        began = time.perf_counter()
        multiply(self._address, "completed", OVER, past - self._past)
        making_s = time.perf_counter() - began
        claim = asyncio.run(claiming(self._address, TRIES))
        with self._serving() as system:
            listed = asyncio.run(listing(system.server.port, LISTS))
            put(system, at_once=16, seconds=30, runs=200)
            samples = [measure(_STAGE, system) for _ in range(_STAGE.rounds)]
        self._past = past + sum(sample.load.runs for sample in samples) + 200 + TRIES
        return Aged(past, claim, listed, max(samples, key=lambda each: each.load.rate), making_s)

    def _serving(self) -> AbstractContextManager[System]:
        return systems.milepost(self._name, self._folder, self._model_url, self._database)


_HEAD = (
    f"{'runs that are over':>20}{'claim ms p50':>14}{'p99':>8}{'of first':>10}{'list p50':>10}"
    f"{'runs/s':>9}{'of first':>10}{'CPU ms a run':>14}{'db':>7}{'made in s':>11}"
)


def _row(aged: Aged, first: Aged) -> str:
    load = aged.load
    database_ms = (load.database_s or 0) * 1000 / load.load.runs
    return (
        f"{aged.past:>20,}{aged.claim.p50:>14.2f}{aged.claim.p99:>8.2f}"
        f"{aged.claim.p50 / first.claim.p50:>9.1f}x{aged.listed.p50:>10.2f}{load.load.rate:>9.0f}"
        f"{load.load.rate / first.load.load.rate:>9.2f}x{load.server_ms_a_run:>14.2f}"
        f"{database_ms:>7.2f}{aged.making_s:>11.0f}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
