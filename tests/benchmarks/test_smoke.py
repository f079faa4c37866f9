"""The benchmark runs to its end on each system, and every stream that it counts is right."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.benchmarks import report, systems
from tests.benchmarks.__main__ import bench
from tests.benchmarks.comparison import compare, idle_stream_bytes, put
from tests.benchmarks.load import percentile
from tests.benchmarks.plan import LONGER, PACED, Plan, Stage
from tests.benchmarks.profiles import tables
from tests.benchmarks.systems import System

RUNS = 8
STAGE = Stage(at_once=4, rounds=1, seconds=30.0, runs=RUNS)


@pytest.fixture
def model_url(tmp_path: Path) -> Iterator[str]:
    """Where the stub of a model is."""
    with systems.model(tmp_path) as url:
        yield url


@pytest.fixture
def bare(tmp_path: Path, model_url: str) -> Iterator[System]:
    """The loop that stores nothing."""
    with systems.bare(tmp_path / "bare", model_url) as system:
        yield system


@pytest.fixture(params=["sqlite", "postgres"])
def milepost(request: pytest.FixtureRequest, tmp_path: Path, model_url: str) -> Iterator[System]:
    """Milepost on each database."""
    if request.param == "sqlite":
        with systems.milepost("sqlite", tmp_path / "sqlite", model_url, None) as system:
            yield system
        return
    with (
        systems.database(request.getfixturevalue("postgres_url")) as database,
        systems.milepost("postgres", tmp_path / "postgres", model_url, database) as system,
    ):
        yield system


def test_both_loops_are_measured_in_turns(bare: System, milepost: System) -> None:
    measured = compare(STAGE, [bare, milepost])

    assert [sample.load.runs for sample in measured["bare"].samples] == [RUNS, RUNS]
    assert [sample.load.runs for sample in measured[milepost.name].samples] == [RUNS]
    assert len(measured[milepost.name].shares) == 1
    assert measured[milepost.name].samples[0].load.events >= 14 * RUNS
    assert systems.SHOWN[milepost.name] in report.table(STAGE, measured)


def test_a_loop_with_a_log_is_measured_beside_the_bare_one(
    bare: System, tmp_path: Path, model_url: str
) -> None:
    with systems.logged(tmp_path / "logged", model_url) as logged:
        measured = compare(STAGE, [bare, logged])

    assert [sample.load.runs for sample in measured["logged"].samples] == [RUNS]
    with closing(sqlite3.connect(tmp_path / "logged" / "log.db")) as log:
        kept = log.execute("SELECT count(DISTINCT run_id), count(*) FROM events").fetchone()
    assert kept == (RUNS, 6 * RUNS)


def test_a_benchmark_asks_a_model_that_says_all_at_once_and_those_that_say_tokens_one_by_one(
    tmp_path: Path, model_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spoken = ((PACED, STAGE), (LONGER, STAGE))
    bench(Plan((STAGE,), RUNS, 0, spoken), ["bare"], tmp_path, model_url, None)

    tables = capsys.readouterr().out.split("with a model that says ")
    assert [table.count(systems.SHOWN["bare"]) for table in tables] == [1, 1, 1]
    assert [table.partition(" tokens")[0] for table in tables[1:]] == ["20", "100"]


def test_idle_streams_are_weighed(milepost: System, tmp_path: Path) -> None:
    assert idle_stream_bytes(milepost, 10, tmp_path) >= 0


def test_a_profile_names_what_the_server_did(tmp_path: Path, model_url: str) -> None:
    path = tmp_path / "profile"
    with systems.milepost("sqlite", tmp_path / "sqlite", model_url, None, path) as system:
        os.kill(system.server.pid, signal.SIGUSR1)
        put(system, at_once=4, seconds=30.0, runs=RUNS)

    assert "store/engine_sqlite.py" in tables(path, RUNS)


@pytest.mark.parametrize(("share", "value"), [(0.5, 5.0), (0.99, 10.0), (0.01, 1.0)])
def test_a_percentile_is_a_value_that_was_measured(share: float, value: float) -> None:
    assert percentile([float(n) for n in range(10, 0, -1)], share) == value
