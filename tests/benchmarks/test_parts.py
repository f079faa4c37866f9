"""What a run costs is told for each process that has a part in it."""

from pathlib import Path

import pytest

from tests.benchmarks import systems
from tests.benchmarks.parts import Ground, measure
from tests.benchmarks.plan import Stage

RUNS = 40
STAGE = Stage(at_once=4, rounds=1, seconds=30.0, runs=RUNS)


@pytest.mark.parametrize(("workers", "shown"), [(0, "one process"), (2, "an API, 2 workers")])
def test_each_process_is_measured(
    workers: int, shown: str, tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    with (
        systems.model(tmp_path) as model_url,
        systems.database(postgres_url) as database,
        Ground(tmp_path, model_url, database, redis_url).standing(workers) as standing,
    ):
        sample = measure(STAGE, standing)

    assert standing.shown == shown
    assert len(set(standing.workers)) == workers
    assert sample.load.runs == RUNS
    assert (sample.ms_a_run["workers"] > 0) == (workers > 0)
