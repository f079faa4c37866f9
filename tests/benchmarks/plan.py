"""How much is measured."""

from dataclasses import dataclass

from tests.benchmarks.load import RUNS_MAX


@dataclass(frozen=True, slots=True)
class Stage:
    """So many runs at once, for so many seconds, measured so many times."""

    at_once: int
    rounds: int
    seconds: float
    runs: int = RUNS_MAX


@dataclass(frozen=True, slots=True)
class Plan:
    """The stages in order; before them each system drives some runs that do not count."""

    stages: tuple[Stage, ...]
    warm_up_runs: int
    idle_streams: int


FULL = Plan((Stage(64, 5, 4.0), Stage(16, 3, 2.5), Stage(1, 3, 1.5)), 300, 500)
QUICK = Plan((Stage(64, 1, 1.5), Stage(16, 1, 0.7), Stage(1, 1, 0.5)), 100, 100)
PROFILED = Plan((Stage(64, 1, 6.0),), 200, 0)
