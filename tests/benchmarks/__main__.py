"""`python -m tests.benchmarks`: how fast Milepost is, next to the same loop without storage.

`make bench` starts it with a Postgres that syncs every commit. All figures of one call are measured
within minutes, in turns: compare those with one another, and never with another call's.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from tests import devservices
from tests.benchmarks import plan, report, systems
from tests.benchmarks.comparison import compare, idle_stream_bytes, put
from tests.benchmarks.plan import Plan, Stage
from tests.benchmarks.profiles import profile
from tests.benchmarks.systems import SHOWN, SYSTEMS, Database, System, SystemName


def main(arguments: Sequence[str]) -> None:
    """Measure what the arguments say, and print it."""
    options = _parser().parse_args(arguments)
    wanted: list[SystemName] = [name for name in SYSTEMS if name in options.only]
    with ExitStack() as stack:
        folder = stack.enter_context(devservices._scratch_directory(in_memory=False))
        database = _database(stack) if "postgres" in wanted else None
        if database is None:
            wanted = [name for name in wanted if name != "postgres"]
        model_url = stack.enter_context(systems.model(folder))
        print(report.machine(folder, database), end="\n\n", flush=True)
        if options.profile:
            profile(wanted, folder, model_url, database)
        else:
            bench(plan.QUICK if options.quick else plan.FULL, wanted, folder, model_url, database)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round of everything")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=SYSTEMS,
        default=SYSTEMS,
        help="what to measure; ratios need `bare`",
    )
    parser.add_argument(
        "--profile", action="store_true", help="show where the server's CPU time goes instead"
    )
    return parser


def _database(stack: ExitStack) -> Database | None:
    service = stack.enter_context(devservices.postgres())
    if service is None:
        print("no Postgres on this machine, so it is left out", file=sys.stderr)
        return None
    return stack.enter_context(systems.database(service.url))


def bench(
    amount: Plan, wanted: Sequence[SystemName], folder: Path, model_url: str,
    database: Database | None,
) -> None:  # fmt: skip
    """Measure the stages of a plan, print each when it is done, and weigh idle streams."""
    _measure(amount.stages, amount.warm_up_runs, wanted, folder, model_url, database)
    for number, (speech, stage) in enumerate(amount.spoken):
        spoken = folder / f"spoken-{number}"
        spoken.mkdir()
        with systems.model(spoken, speech) as spoken_url:
            print(
                f"with a model that says {speech.tokens} tokens, one every {speech.delay_ms:g} ms:"
            )
            _measure((stage,), amount.warm_up_runs, wanted, spoken, spoken_url, database)
    for name in wanted:
        if name in ("bare", "logged"):
            continue
        # A process of its own: what the load left free would hide what streams take.
        with _serving(name, folder / f"{name}-idle", model_url, database) as system:
            put(system, at_once=16, seconds=30, runs=amount.warm_up_runs)
            each = idle_stream_bytes(system, amount.idle_streams, folder)
        print(f"{SHOWN[name]}: {amount.idle_streams} idle streams take {each / 1000:.1f} KB each")


def _measure(
    stages: Sequence[Stage], warm_up_runs: int, wanted: Sequence[SystemName], folder: Path,
    model_url: str, database: Database | None,
) -> None:  # fmt: skip
    with ExitStack() as stack:
        running = [
            stack.enter_context(_serving(name, folder / name, model_url, database))
            for name in wanted
        ]
        for system in running:
            put(system, at_once=16, seconds=30, runs=warm_up_runs)
        for stage in stages:
            print(report.table(stage, compare(stage, running)), end="\n\n", flush=True)


def _serving(
    name: SystemName, folder: Path, model_url: str, database: Database | None
) -> AbstractContextManager[System]:
    if name == "bare":
        return systems.bare(folder, model_url)
    if name == "logged":
        return systems.logged(folder, model_url)
    return systems.milepost(name, folder, model_url, database if name == "postgres" else None)


def _stop(*_: object) -> None:
    """End as after an error: every child is stopped on the way out."""
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    main(sys.argv[1:])
