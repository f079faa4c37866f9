"""The long form: many seeds, each mutant's first one, and a report of both.

python -m tests.simulation --seeds 20000 --mutants --report simulation.md
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.playing import play
from tests.simulation.report import Hunt, Tally, report
from tests.simulation.simulate import simulate

SEEDS_OF_MUTANTS_MAX = 5_000
PORTION = 250


def main(given: Sequence[str] | None = None) -> int:
    """Do what the command line says; return 1 if anything is wrong."""
    wanted = _parsed(given)
    mutant = next((each for each in MUTANTS if each.name == wanted.mutant), None)
    if wanted.trace is not None:
        with mutant.broken() if mutant else nullcontext():
            _say(simulate(wanted.trace).told())
        return 0
    if wanted.hashes:
        for seed in range(wanted.first, wanted.first + wanted.seeds):
            _say(f"{seed} {simulate(seed).hash}")
        return 0
    tally = _played(wanted.first, wanted.seeds, wanted.processes)
    hunts = [_hunted(each) for each in MUTANTS] if wanted.mutants else []
    if wanted.report is not None:
        wanted.report.write_text(report(tally, hunts))
    _say(report(tally, hunts))
    return int(bool(tally.wrong) or any(hunt.seed is None for hunt in hunts))


def _parsed(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000, help="how many to play")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=1, help="how many play at once")
    parser.add_argument("--mutants", action="store_true", help="find each mutant's first seed")
    parser.add_argument("--report", type=Path, help="where to write the report, as Markdown")
    parser.add_argument("--trace", type=int, metavar="SEED", help="only show what happens in it")
    parser.add_argument("--mutant", help="what is broken in the seed that is shown")
    parser.add_argument("--hashes", action="store_true", help="only show each seed's hash")
    return parser.parse_args(given)


def _played(first: int, count: int, processes: int) -> Tally:
    portions = [
        range(start, min(start + PORTION, first + count))
        for start in range(first, first + count, PORTION)
    ]
    tally = Tally()
    if processes == 1:
        for portion in portions:
            tally.join(play(portion))
            _tell_of(tally)
        return tally
    with get_context("spawn").Pool(processes) as pool:
        for played in pool.imap_unordered(play, portions):
            tally.join(played)
            _tell_of(tally)
    return tally


def _tell_of(tally: Tally) -> None:
    sys.stderr.write(f"{tally.seeds} seeds, {len(tally.wrong)} wrong\n")


def _hunted(mutant: Mutant) -> Hunt:
    """Return the first seed that sees the mutant."""
    with mutant.broken():
        for seed in range(SEEDS_OF_MUTANTS_MAX):
            if told := simulate(seed).violation:
                sys.stderr.write(f"{mutant.name}: seed {seed}\n")
                return Hunt(mutant.name, seed, told)
    return Hunt(mutant.name, None, "")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
