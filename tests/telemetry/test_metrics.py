"""Metrics: what is counted, and that a scrape reads it."""

import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from milepost.core.events import (
    Event,
    Failure,
    MemorySummarized,
    MemoryTrimmed,
    MessageCompleted,
    Output,
    RunCancelled,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunIncomplete,
    ToolCallScreened,
    ToolResultCompressed,
)
from milepost.core.spans import CACHE_HIT, Span, SpanKind, SpanStatus
from milepost.core.usage import Usage
from milepost.telemetry.metrics import TOOL_LABELS_MAX, Metrics

FAILURE = Failure("provider_error", "no")
OUTPUT = Output("42")
TAKEN = Usage(input_tokens=50, output_tokens=20)
STATUSES = ("delivered", "failed", "dead")
MANY_FILES = 50


def span(
    kind: SpanKind, status: SpanStatus = "ok", *, took_ms: int = 0, tool: str | None = None
) -> Span:
    attributes = {"gen_ai.response.time_to_first_chunk": 0.2} if kind == "chat" else {}
    return Span(
        "run_1", 1, "a" * 32, "b" * 16, None, kind, kind, 0, took_ms, status,
        tool=tool, attributes=attributes,
    )  # fmt: skip


def samples(metrics: Metrics, load: dict[str, int] | None = None) -> dict[str, float]:
    """Return a scrape, as `name{label="value"}`, read by the library's own parser."""
    page = metrics.render(load or {}).decode()
    return {
        _series(sample.name, sample.labels): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def _series(name: str, labels: dict[str, str]) -> str:
    told = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{told}}}" if told else name


def replied(usage: Usage) -> MessageCompleted:
    return MessageCompleted("msg_1", "", "stop", usage)


def test_runs_are_shown_by_status_and_those_that_scalers_read_are_always_there() -> None:
    metrics = Metrics()

    shown = samples(metrics, {"running": 3, "blocked": 2})

    assert shown['milepost_runs{status="running"}'] == 3
    assert shown['milepost_runs{status="blocked"}'] == 2
    assert shown['milepost_runs{status="queued"}'] == 0
    assert shown['milepost_runs{status="waiting"}'] == 0


def test_a_status_that_nobody_has_any_more_falls_to_zero() -> None:
    metrics = Metrics()
    metrics.render({"scheduled": 5})

    assert samples(metrics)['milepost_runs{status="scheduled"}'] == 0


def test_deliveries_are_counted_by_what_came_of_them_and_from_the_start() -> None:
    metrics = Metrics()
    before = samples(metrics)

    metrics.count_deliveries("failed")
    metrics.count_deliveries("dead", 2)

    shown = samples(metrics)
    named = [f'milepost_webhook_deliveries_total{{status="{status}"}}' for status in STATUSES]
    assert [before[each] for each in named] == [0, 0, 0]
    assert [shown[each] for each in named] == [0, 1, 2]


def test_slots_are_shown() -> None:
    metrics = Metrics()

    metrics.set_slots(64, 7)

    shown = samples(metrics)
    assert (shown["milepost_slots"], shown["milepost_slots_busy"]) == (64, 7)


def test_whether_there_is_a_lease_is_shown() -> None:
    metrics = Metrics()
    before = samples(metrics)["milepost_lease"]

    metrics.set_lease(held=True)

    assert (before, samples(metrics)["milepost_lease"]) == (0, 1)


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (RunCompleted(OUTPUT, Usage()), "completed"),
        (RunIncomplete("max_steps", OUTPUT, Usage()), "incomplete"),
        (RunFailed(FAILURE, Usage()), "failed"),
        (RunCancelled("user", None, (), Usage()), "cancelled"),
        (RunExpired("deadline", Usage()), "expired"),
    ],
)
def test_a_run_that_ends_is_counted_under_its_status(event: Event, status: str) -> None:
    metrics = Metrics()

    metrics.observe_append([event], [])

    assert samples(metrics)[f'milepost_runs_ended_total{{status="{status}"}}'] == 1


def test_tokens_are_counted_and_those_saved_are_counted_apart() -> None:
    metrics = Metrics()

    metrics.observe_append([replied(Usage(input_tokens=50, output_tokens=20))], [])
    cached = Usage(saved_input_tokens=50, saved_output_tokens=20)
    metrics.observe_append([replied(cached)], [])

    shown = samples(metrics)
    assert shown['milepost_tokens_total{direction="input"}'] == 50
    assert shown['milepost_tokens_total{direction="output"}'] == 20
    assert shown['milepost_tokens_saved_total{direction="input"}'] == 50
    assert shown['milepost_tokens_saved_total{direction="output"}'] == 20
    assert shown["milepost_appends_total"] == 2


@pytest.mark.parametrize(
    "event",
    [
        ToolCallScreened("call_1", usage=TAKEN),
        ToolResultCompressed("call_1", "short", 9_000, "demo/offline", TAKEN),
        MemorySummarized("sum_1", "1:0", "1:1", 2, "demo/offline", "They spoke.", TAKEN),
        MemoryTrimmed("sum_1", "1:0", "1:1", 2, "demo/offline", FAILURE, TAKEN),
    ],
    ids=lambda event: event.type,
)
def test_tokens_are_counted_whatever_a_model_was_asked_for(event: Event) -> None:
    metrics = Metrics()

    metrics.observe_append([event], [])

    shown = samples(metrics)
    assert shown['milepost_tokens_total{direction="input"}'] == 50
    assert shown['milepost_tokens_total{direction="output"}'] == 20


def test_model_calls_are_counted_by_end_and_timed() -> None:
    metrics = Metrics()

    metrics.observe_append([], [span("chat", took_ms=700), span("chat", "error", took_ms=90)])

    shown = samples(metrics)
    assert shown['milepost_model_calls_total{status="ok"}'] == 1
    assert shown['milepost_model_calls_total{status="error"}'] == 1
    assert shown["milepost_model_duration_seconds_sum"] == pytest.approx(0.79)
    assert shown['milepost_model_duration_seconds_bucket{le="0.5"}'] == 1
    assert shown['milepost_model_first_delta_seconds_bucket{le="0.25"}'] == 2


def test_tool_calls_are_counted_by_tool_and_end_and_timed() -> None:
    metrics = Metrics()

    metrics.observe_append([], [span("execute_tool", tool="add", took_ms=30)])
    again = replace(span("execute_tool", tool="add", took_ms=0), attributes={CACHE_HIT: True})
    metrics.observe_append([], [again, span("denial", tool="rm"), span("invoke_agent")])

    shown = samples(metrics)
    assert shown['milepost_tool_calls_total{status="ok",tool="add"}'] == 2
    assert shown['milepost_tool_calls_cached_total{tool="add"}'] == 1
    assert shown['milepost_tool_duration_seconds_sum{tool="add"}'] == pytest.approx(0.03)
    assert shown['milepost_tool_calls_denied_total{tool="rm"}'] == 1


def test_tools_beyond_the_bound_share_a_label() -> None:
    metrics = Metrics()
    names = [f"tool_{number}" for number in range(TOOL_LABELS_MAX + 5)]

    metrics.observe_append([], [span("execute_tool", tool=name) for name in names])

    shown = samples(metrics)
    assert shown['milepost_tool_calls_total{status="ok",tool="tool_0"}'] == 1
    assert shown['milepost_tool_calls_total{status="ok",tool="other"}'] == 5
    assert sum(name.startswith("milepost_tool_calls_total") for name in shown) == 201


def test_dropped_spans_are_counted_from_any_thread() -> None:
    metrics = Metrics()

    thread = threading.Thread(target=metrics.count_dropped_spans, args=(512,))
    thread.start()
    thread.join()

    assert samples(metrics)["milepost_spans_dropped_total"] == 512


def test_two_processes_worth_of_metrics_do_not_know_each_other() -> None:
    one, other = Metrics(), Metrics()

    one.count_dropped_spans(1)

    assert samples(other)["milepost_spans_dropped_total"] == 0


def test_a_page_does_not_say_when_each_series_began() -> None:
    assert b"_created" not in Metrics().render({"running": 1})


def test_redis_is_in_the_metrics_only_where_there_should_be_one() -> None:
    without, metrics = Metrics(), Metrics()

    metrics.set_redis_up(up=True)
    up = samples(metrics)["milepost_redis_up"]
    metrics.set_redis_up(up=False)
    down = samples(metrics)["milepost_redis_up"]

    assert (up, down) == (1, 0)
    assert "milepost_redis_up" not in samples(without)


def test_it_is_told_how_many_files_are_open_and_how_many_may_be() -> None:
    before = samples(Metrics())

    with ExitStack() as stack:
        for _ in range(MANY_FILES):
            stack.enter_context(Path(__file__).open())
        during = samples(Metrics())

    # What others of this process have open comes and goes meanwhile.
    assert during["process_open_fds"] > before["process_open_fds"] + MANY_FILES / 2
    assert during["process_max_fds"] >= during["process_open_fds"]
