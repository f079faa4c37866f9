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
    """The stages in order; before them each system drives some runs that do not count.

    `paced` are those with a model that says its tokens one by one, as models do, and not all in
    one write, which is what costs a loop the least.
    """

    stages: tuple[Stage, ...]
    warm_up_runs: int
    idle_streams: int
    paced: tuple[Stage, ...] = ()


TOKEN_DELAY_MS = 1.0

FULL = Plan(
    (Stage(64, 5, 4.0), Stage(16, 3, 2.5), Stage(1, 3, 1.5)), 300, 500, (Stage(64, 3, 4.0),)
)
QUICK = Plan(
    (Stage(64, 1, 1.5), Stage(16, 1, 0.7), Stage(1, 1, 0.5)), 100, 100, (Stage(64, 1, 1.5),)
)
PROFILED = Plan((Stage(64, 1, 6.0),), 200, 0)
