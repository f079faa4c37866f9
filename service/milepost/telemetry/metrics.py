"""Counts and durations in Prometheus' text form, in a registry of their own.

Everything is counted once, by the process that did it, when it is durable. How many runs there are
is not counted but asked of the store at each scrape.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Literal, get_args

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric

from milepost.core.events import (
    Event,
    InputScreened,
    MemorySummarized,
    MemoryTrimmed,
    MessageCompleted,
    RunCancelled,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunIncomplete,
    ToolCallScreened,
    ToolResultCompressed,
)
from milepost.core.spans import CACHE_HIT, Span
from milepost.core.usage import Usage
from milepost.telemetry.attributes import FIRST_CHUNK_S

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
TOOL_LABELS_MAX = 200
CHILDREN_MAX = 4_096
OTHER_TOOLS = "other"
DeliveryStatus = Literal["delivered", "failed", "dead"]
DELIVERY_STATUSES: tuple[DeliveryStatus, ...] = get_args(DeliveryStatus)
ScheduleStatus = Literal["started", "skipped", "late", "refused"]
SCHEDULE_STATUSES: tuple[ScheduleStatus, ...] = get_args(ScheduleStatus)
STATUSES = ("scheduled", "blocked", "queued", "running", "waiting")
MODEL_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300)
FIRST_DELTA_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TOOL_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """This process' metrics. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)  # Its processor, memory and open files.
        counter = partial(Counter, registry=self._registry)
        gauge = partial(Gauge, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        self._runs = gauge("milepost_runs", "Runs that have not ended.", ["status"])
        self._slots = gauge("milepost_slots", "Runs that this process may hold.")
        self._slots_busy = gauge("milepost_slots_busy", "Runs that this process holds.")
        self._lease = gauge("milepost_lease", "Whether this process has a lease to drive runs.")
        self._runs_ended = counter("milepost_runs_ended", "Runs ended here.", ["status"])
        self._tokens = counter("milepost_tokens", "Tokens of model calls.", ["direction"])
        self._tokens_saved = counter(
            "milepost_tokens_saved", "Tokens that cached replies saved.", ["direction"]
        )
        self._model_calls = counter("milepost_model_calls", "Model calls, by end.", ["status"])
        self._tool_calls = counter(
            "milepost_tool_calls", "Tool calls that ran, by end.", ["tool", "status"]
        )
        self._tool_calls_denied = counter(
            "milepost_tool_calls_denied", "Tool calls denied.", ["tool"]
        )
        self._tool_calls_cached = counter(
            "milepost_tool_calls_cached", "Tool calls whose result was there already.", ["tool"]
        )
        self._webhooks = counter(
            "milepost_webhook_deliveries",
            "Messages to webhooks: delivered, failed once and tried again, or given up.",
            ["status"],
        )
        for status in DELIVERY_STATUSES:  # So that a first failure is a rise, not a new series.
            self._webhooks.labels(status)
        self._schedules = counter(
            "milepost_schedules_came",
            "Times at which schedules came: with a run, or skipped, too late, or refused.",
            ["status"],
        )
        for came in SCHEDULE_STATUSES:
            self._schedules.labels(came)
        self._appends = counter("milepost_appends", "Iterations written to a log.")
        self._database_failures = counter(
            "milepost_database_failures", "What the database was asked in vain, for now."
        )
        self._spans_dropped = counter("milepost_spans_dropped", "Spans that were not exported.")
        self._model_duration = histogram(
            "milepost_model_duration_seconds", "How long models took.", buckets=MODEL_BUCKETS_S
        )
        self._model_first_delta = histogram(
            "milepost_model_first_delta_seconds",
            "How long models took to begin.",
            buckets=FIRST_DELTA_BUCKETS_S,
        )
        self._tool_duration = histogram(
            "milepost_tool_duration_seconds",
            "How long tools took.",
            ["tool"],
            buckets=TOOL_BUCKETS_S,
        )
        self._redis_up: Gauge | None = None
        self._temporal_up: Gauge | None = None
        self._tools: set[str] = set()
        # The library looks a child up under a lock, in 4 microseconds, nine times a run.
        self._child = lru_cache(CHILDREN_MAX)(_labelled)

    def observe_append(self, events: Iterable[Event], spans: Iterable[Span]) -> None:
        """Count one durable append: its events, and the spans that they closed."""
        self._appends.inc()
        self.observe_ending(events, spans)

    def observe_ending(self, events: Iterable[Event], spans: Iterable[Span]) -> None:
        """Count what a run was ended with from outside, which is no iteration of a worker's."""
        for event in events:
            self._observe_event(event)
        for span in spans:
            self._observe_span(span)

    def set_slots(self, total: int, busy: int) -> None:
        """Say how many runs this process may hold, and how many it holds."""
        self._slots.set(total)
        self._slots_busy.set(busy)

    def set_lease(self, *, held: bool) -> None:
        """Say whether this process may drive runs, and look after those of others."""
        self._lease.set(held)

    def set_redis_up(self, *, up: bool) -> None:
        """Say whether Redis answers; a process without one never does, and has no such gauge."""
        if self._redis_up is None:
            self._redis_up = Gauge(
                "milepost_redis_up", "Whether Redis answers.", registry=self._registry
            )
        self._redis_up.set(up)

    def set_temporal_up(self, *, up: bool) -> None:
        """Say whether Temporal answers; only a process that it dispatches for has such a gauge."""
        if self._temporal_up is None:
            self._temporal_up = Gauge(
                "milepost_temporal_up", "Whether Temporal answers.", registry=self._registry
            )
        self._temporal_up.set(up)

    def count_deliveries(self, status: DeliveryStatus, count: int = 1) -> None:
        """Count what came of sending messages to webhooks."""
        self._webhooks.labels(status).inc(count)

    def count_schedule(self, status: ScheduleStatus) -> None:
        """Count what became of a time at which a schedule came."""
        self._schedules.labels(status).inc()

    def count_database_failure(self) -> None:
        """Count something that the database could not be brought to do, and may do later."""
        self._database_failures.inc()

    def count_dropped_spans(self, count: int) -> None:
        """Count spans that were not exported."""
        self._spans_dropped.inc(count)

    def render(self, load: Mapping[str, int]) -> bytes:
        """Return the page for `/metrics`; `load` says how many runs are in which status."""
        for status in STATUSES:
            self._runs.labels(status).set(load.get(status, 0))
        return generate_latest(_WithoutBirthdays(self._registry))

    def _observe_event(self, event: Event) -> None:
        match event:
            case (
                MessageCompleted(usage=usage)
                | InputScreened(usage=usage)
                | ToolCallScreened(usage=usage)
                | ToolResultCompressed(usage=usage)
                | MemorySummarized(usage=usage)
                | MemoryTrimmed(usage=usage)
            ):
                self._count_tokens(usage)
            case RunCompleted() | RunIncomplete() | RunFailed() | RunCancelled() | RunExpired():
                self._child(self._runs_ended, event.type.removeprefix("run.")).inc()
            case _:
                pass

    def _count_tokens(self, usage: Usage) -> None:
        """What was read from a vendor's cache is part of the input, and not counted again."""
        self._child(self._tokens, "input").inc(usage.input_tokens)
        self._child(self._tokens, "output").inc(usage.output_tokens)
        if usage.saved_input_tokens or usage.saved_output_tokens:
            self._child(self._tokens_saved, "input").inc(usage.saved_input_tokens)
            self._child(self._tokens_saved, "output").inc(usage.saved_output_tokens)

    def _observe_span(self, span: Span) -> None:
        duration_s = (span.end_ms - span.start_ms) / 1000
        match span.kind:
            case "chat":
                self._child(self._model_calls, span.status).inc()
                self._model_duration.observe(duration_s)
                first_delta_s = span.attributes.get(FIRST_CHUNK_S)
                if isinstance(first_delta_s, float):
                    self._model_first_delta.observe(first_delta_s)
            case "execute_tool":
                tool = self._tool_label(span.tool or "")
                self._child(self._tool_calls, tool, span.status).inc()
                self._child(self._tool_duration, tool).observe(duration_s)
                if CACHE_HIT in span.attributes:
                    self._child(self._tool_calls_cached, tool).inc()
            case "denial":
                self._child(self._tool_calls_denied, self._tool_label(span.tool or "")).inc()
            case _:
                pass

    def _tool_label(self, tool: str) -> str:
        """Each label costs a scrape some lines for ever, so the tools beyond a bound share one."""
        if tool not in self._tools:
            if len(self._tools) >= TOOL_LABELS_MAX:
                return OTHER_TOOLS
            self._tools.add(tool)
        return tool


def _labelled(metric: Any, *labels: str) -> Any:
    return metric.labels(*labels)


class _WithoutBirthdays:
    """A registry without the time at which each series began, which doubles a page's length."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            yield metric
