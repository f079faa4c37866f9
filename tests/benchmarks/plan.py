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
class Speech:
    """How a model says its answer: all in one write, which costs a loop the least, or by tokens."""

    tokens: int = 20
    delay_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The stages in order; before them each system drives some runs that do not count.

    `spoken` are those with models that say their tokens one by one, as models do.
    """

    stages: tuple[Stage, ...]
    warm_up_runs: int
    idle_streams: int
    spoken: tuple[tuple[Speech, Stage], ...] = ()


AT_ONCE = Speech()
PACED = Speech(delay_ms=1.0)
LONGER = Speech(tokens=100, delay_ms=1.0)

FULL = Plan(
    (Stage(64, 5, 4.0), Stage(16, 3, 2.5), Stage(1, 3, 1.5)),
    300,
    500,
    ((PACED, Stage(64, 3, 4.0)), (LONGER, Stage(64, 3, 4.0))),
)
QUICK = Plan(
    (Stage(64, 1, 1.5), Stage(16, 1, 0.7), Stage(1, 1, 0.5)),
    100,
    100,
    ((PACED, Stage(64, 1, 1.5)), (LONGER, Stage(64, 1, 1.5))),
)
PROFILED = Plan((Stage(64, 1, 6.0),), 200, 0)
