"""The alerts: each whole, of metrics that there are, and of values that their labels can have."""

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from milepost.core.spans import SpanStatus
from milepost.settings import Settings
from milepost.store import schema
from milepost.telemetry.metrics import DELIVERY_STATUSES, SCHEDULE_STATUSES, STATUSES, Metrics
from tests.deploy.exposition import Exposition, asked_for
from tests.deploy.files import DEPLOY, alerts, known_variables

VALUES = {
    "milepost_runs": {*STATUSES},
    "milepost_runs_ended_total": {*schema.ENDED},
    "milepost_model_calls_total": {*get_args(SpanStatus)},
    "milepost_tool_calls_total": {*get_args(SpanStatus)},
    "milepost_webhook_deliveries_total": {*DELIVERY_STATUSES},
    "milepost_schedules_came_total": {*SCHEDULE_STATUSES},
}


@pytest.fixture(params=alerts(), ids=lambda rule: rule["alert"])
def rule(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One of the alerts."""
    given: dict[str, Any] = request.param
    return given


def shown() -> Exposition:
    metrics = Metrics()
    metrics.set_redis_up(up=True)
    return Exposition(metrics.render({}).decode())


def brackets(text: str) -> Iterator[str]:
    """Yield what is still open after each bracket."""
    open_ones = ""
    for sign in re.sub(r'"[^"]*"', "", text):
        if sign in "([{":
            open_ones += sign
        elif sign in ")]}":
            assert open_ones[-1:] + sign in {"()", "[]", "{}"}, text
            open_ones = open_ones[:-1]
        yield open_ones


def test_an_alert_asks_for_metrics_that_there_are(rule: dict[str, Any]) -> None:
    asked = asked_for(rule["expr"])

    assert asked or rule["expr"].startswith("up{")
    assert [name for name, _ in asked if not shown().has(name)] == []


def test_an_alert_asks_for_values_that_its_labels_can_have(rule: dict[str, Any]) -> None:
    for name, labels in asked_for(rule["expr"]):
        assert set(labels) <= {"status"}
        assert {*labels.values()} <= VALUES.get(name, set())


def test_an_alert_can_be_read(rule: dict[str, Any]) -> None:
    assert [*brackets(rule["expr"])][-1] == ""
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert set(rule["annotations"]) == {"summary", "remedy"}


def test_every_alert_is_told_of_and_no_other() -> None:
    page = (DEPLOY / "README.md").read_text()

    told = set(re.findall(r"^\| `(Milepost\w+)` \|", page, re.MULTILINE))

    assert told == {rule["alert"] for rule in alerts()}


def test_settings_that_a_comment_names_are_settings_with_the_number_that_it_says() -> None:
    text = (DEPLOY / "alerts.yaml").read_text()

    named = set(re.findall(r"MILEPOST_[A-Z_]+", text))

    assert named <= known_variables()
    assert f"{Settings.model_fields['queue_max'].default:,}" in text


def test_a_metric_that_there_is_not_is_noticed() -> None:
    assert not shown().has("milepost_runs_lost_total")
    assert asked_for('sum(milepost_runs{job="x", status="queued"})') == [
        ("milepost_runs", {"status": "queued"})
    ]
