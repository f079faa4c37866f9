"""`python -m tests.benchmarks.endurance`: what a process holds after a thousand runs, and later.

One process, 64 runs at once, as many as it takes; its memory is read between rounds, while nothing
is under way.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from tests import devservices
from tests.benchmarks import report, systems
from tests.benchmarks.comparison import put
from tests.benchmarks.processes import resident_bytes
from tests.benchmarks.systems import SHOWN, System, SystemName

MARKS = (1_000, 10_000, 100_000)
AT_ONCE = 64
_SECONDS_MAX = 3_600.0
_NAMES: tuple[SystemName, ...] = ("sqlite", "postgres")


def main(arguments: Sequence[str]) -> None:
    """Measure, and print as it comes."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.endurance")
    parser.add_argument("--marks", nargs="+", type=int, default=MARKS, help="runs to stop after")
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
            with systems.milepost(name, folder / name, model_url, database) as system:
                _grow(system, sorted(options.marks))


def _grow(system: System, marks: Sequence[int]) -> None:
    print(f"{SHOWN[system.name]}\n{'runs':>10}{'runs/s':>9}{'memory MB':>12}{'of first':>10}")
    done, first = 0, 0
    for mark in marks:
        load = put(system, at_once=AT_ONCE, seconds=_SECONDS_MAX, runs=mark - done)
        done = mark
        held = resident_bytes(system.server.pid)
        first = first or held
        print(f"{mark:>10,}{load.rate:>9.0f}{held / 1e6:>12.0f}{held / first:>9.2f}x", flush=True)
    print()


if __name__ == "__main__":
    main(sys.argv[1:])
