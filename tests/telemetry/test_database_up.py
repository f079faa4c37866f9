"""Whether the database does what it is asked: counted, and told of without filling the log."""

import logging

import pytest

from milepost.telemetry.database_up import AGAIN_S, CALM_S, DatabaseUp
from milepost.telemetry.metrics import Metrics
from tests.clock import Clock
from tests.telemetry.spoken import spoken
from tests.telemetry.test_metrics import samples

FULL = OSError("Postgres: could not extend file: No space left on device\nHINT:  Make room.")


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database_up(metrics: Metrics, clock: Clock, caplog: pytest.LogCaptureFixture) -> DatabaseUp:
    caplog.set_level(logging.INFO)
    return DatabaseUp(metrics, clock)


def test_a_database_that_does_what_it_is_asked_is_not_worth_a_line(
    database_up: DatabaseUp, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    database_up(None)

    assert spoken(caplog, "database") == []
    assert samples(metrics)["milepost_database_failures_total"] == 0


def test_each_failure_is_counted_and_the_first_is_told_with_its_reason_in_a_line(
    database_up: DatabaseUp, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        database_up(FULL)

    (told,) = spoken(caplog, "database")
    assert told["level"] == "warning"
    assert told["error"] == "Postgres: could not extend file: No space left on device"
    assert samples(metrics)["milepost_database_failures_total"] == 5


def test_trouble_that_lasts_is_told_of_again_with_how_often_it_was_met(
    database_up: DatabaseUp, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    database_up(FULL)
    database_up(FULL)
    clock.now += AGAIN_S
    database_up(FULL)

    assert [told["failures"] for told in spoken(caplog, "database")] == [1, 3]


def test_one_answer_among_refusals_is_no_end_of_the_trouble(
    database_up: DatabaseUp, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        database_up(FULL)
        database_up(None)
        clock.now += CALM_S / 2
    database_up(None)

    assert len(spoken(caplog, "database")) == 1


def test_its_end_is_told_once_nothing_failed_for_a_while_and_the_next_trouble_at_once(
    database_up: DatabaseUp, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    database_up(FULL)
    clock.now += 2.0
    database_up(FULL)
    clock.now += CALM_S
    database_up(None)
    database_up(None)
    database_up(FULL)

    begun, over, anew = spoken(caplog, "database")
    assert (over["level"], over["lasted_s"], over["failures"]) == ("info", 2.0, 2)
    assert anew["event"] == begun["event"]
    assert anew["failures"] == 1


def test_an_error_that_says_nothing_is_told_by_its_name(
    database_up: DatabaseUp, caplog: pytest.LogCaptureFixture
) -> None:
    database_up(TimeoutError())

    (told,) = spoken(caplog, "database")
    assert told["error"] == "TimeoutError"
