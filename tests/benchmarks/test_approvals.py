"""The benchmark of approvals measures what it says, however few there are."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks import systems
from tests.benchmarks.approvals import Amount, _of_contest, _of_crowd, answered, contested, crowded
from tests.benchmarks.contest import Contest
from tests.benchmarks.systems import Database

TINY = Amount(approvals=6, resolvers_each=4, few=20, many=30, tries=5, decisions=2)


@pytest.fixture
def model_url(tmp_path: Path) -> Iterator[str]:
    """Where the stub of a model is."""
    with systems.model(tmp_path) as url:
        yield url


@pytest.fixture
def database(postgres_url: str) -> Iterator[Database]:
    """An empty database."""
    with systems.database(postgres_url) as database:
        yield database


def test_every_question_is_decided_once_and_all_are_told(
    tmp_path: Path, model_url: str, database: Database
) -> None:
    contest = contested(TINY, tmp_path, model_url, database)

    assert contest.exact, contest
    assert (contest.approvals, contest.resolvers) == (6, 24)
    assert 0 <= contest.tools_run <= 6
    assert "(must be 18)" in _of_contest(contest)


def test_claims_and_the_inbox_are_timed_with_few_and_with_many(
    tmp_path: Path, model_url: str, database: Database
) -> None:
    crowd = crowded(TINY, tmp_path, model_url, database)

    assert (crowd.few, crowd.many) == (20, 50)
    assert all(each.p50 > 0 for each in (*crowd.claims, *crowd.inbox))
    assert "a claim" in _of_crowd(crowd)


def test_the_time_to_the_next_event_is_measured_on_both_databases(
    tmp_path: Path, model_url: str, postgres_url: str
) -> None:
    measured = dict(answered(TINY, tmp_path, model_url, postgres_url))

    assert list(measured)[:2] == ["SQLite", "Postgres"]
    assert all(0 < each.p50 <= each.p99 for each in measured.values())


@pytest.mark.parametrize("broken", ["decisions", "told", "double_wakes", "unapproved"])
def test_a_contest_that_breaks_a_promise_is_not_exact(broken: str) -> None:
    fair = {"won": 6, "told": 18, "decisions": 6, "double_wakes": 0, "unapproved": 0}

    assert Contest(6, 24, 1.0, tools_run=3, **fair).exact
    assert not Contest(6, 24, 1.0, tools_run=3, **{**fair, broken: fair[broken] + 1}).exact
