"""Whether Temporal answers: told to who scrapes, and to who reads the log."""

import logging

import pytest

from milepost.telemetry.metrics import Metrics
from milepost.telemetry.temporal_up import TemporalUp
from tests.telemetry.spoken import spoken
from tests.telemetry.test_metrics import samples

GONE = ConnectionRefusedError("nobody listens")


def test_temporal_is_down_until_it_has_answered() -> None:
    metrics = Metrics()
    temporal_up = TemporalUp(metrics)

    before = samples(metrics)["milepost_temporal_up"]
    temporal_up(None)
    answered = samples(metrics)["milepost_temporal_up"]
    temporal_up(GONE)
    lost = samples(metrics)["milepost_temporal_up"]

    assert (before, answered, lost) == (0, 1, 0)


def test_a_process_without_temporal_has_no_such_gauge() -> None:
    assert "milepost_temporal_up" not in samples(Metrics())


def test_a_loss_is_a_warning_with_its_consequence_and_the_return_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    temporal_up = TemporalUp(Metrics())

    temporal_up(GONE)
    temporal_up(None)

    lost, back = spoken(caplog, "dispatch")
    assert (lost["level"], lost["error"]) == ("warning", "ConnectionRefusedError: nobody listens")
    assert str(lost["event"]).startswith("Temporal does not answer: workers look for runs")
    assert back["level"] == "info"
