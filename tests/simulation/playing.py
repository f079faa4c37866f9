"""Seeds, one after the other. Not in `__main__`, where no other process would find it."""

from tests.simulation.report import Tally
from tests.simulation.simulate import simulate


def play(seeds: range) -> Tally:
    """Play the seeds."""
    tally = Tally()
    for seed in seeds:
        tally.add(simulate(seed))
    return tally
