"""Whether Redis answers: told to who scrapes, and once each time to who reads the log."""

import logging

import pytest

from milepost.telemetry.metrics import Metrics
from milepost.telemetry.redis_up import RedisUp
from tests.telemetry.spoken import spoken
from tests.telemetry.test_metrics import samples

GONE = ConnectionRefusedError("nobody listens")


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def redis_up(metrics: Metrics, caplog: pytest.LogCaptureFixture) -> RedisUp:
    caplog.set_level(logging.INFO)
    return RedisUp(metrics)


def test_redis_is_down_until_it_has_answered(redis_up: RedisUp, metrics: Metrics) -> None:
    before = samples(metrics)["milepost_redis_up"]
    redis_up.link(None)
    answered = samples(metrics)["milepost_redis_up"]
    redis_up.link(GONE)
    lost = samples(metrics)["milepost_redis_up"]

    assert (before, answered, lost) == (0, 1, 0)


def test_a_redis_that_answers_from_the_start_is_not_worth_a_line(
    redis_up: RedisUp, caplog: pytest.LogCaptureFixture
) -> None:
    redis_up.link(None)
    redis_up.cache(None)

    assert spoken(caplog, "redis") == []


@pytest.mark.parametrize(
    ("part", "name"),
    [("link", "the link"), ("cache", "the cache"), ("limits", "the count of calls")],
)
def test_a_loss_is_a_warning_with_its_consequence_and_the_return_is_told(
    redis_up: RedisUp, caplog: pytest.LogCaptureFixture, part: str, name: str
) -> None:
    getattr(redis_up, part)(GONE)
    getattr(redis_up, part)(None)

    lost, back = spoken(caplog, "redis")
    assert lost["level"] == "warning"
    assert str(lost["event"]).startswith(f"{name} has lost Redis: ")
    assert lost["error"] == "ConnectionRefusedError: nobody listens"
    assert (back["level"], back["event"]) == ("info", f"{name} has Redis back")
