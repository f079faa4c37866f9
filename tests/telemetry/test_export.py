"""Export over OTLP/HTTP to a real collector on a socket, and to none at all."""

import itertools
import logging
import queue
import socket
from collections.abc import Callable, Iterator

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from milepost.core.events import (
    Failure,
    MessageAborted,
    MessageStarted,
    Output,
    RunCompleted,
    RunResumed,
    RunWaiting,
    ToolCallCompleted,
    ToolCallStarted,
)
from milepost.core.spans import Span
from milepost.core.usage import Usage
from milepost.telemetry.context import TraceContext, request_context
from milepost.telemetry.export import ATTEMPT_S, BATCH_MAX, QUEUE_MAX, Exporter
from milepost.telemetry.spans import SpanFold
from tests.telemetry.collector import WAIT_S, Collector, attributes_of, listening
from tests.telemetry.run_logs import MODEL, RUN_ID, LogWriter, asking, begun
from tests.telemetry.spoken import spoken

CALLER = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
SERVER_KIND = OtlpSpan.SpanKind.SPAN_KIND_SERVER
CLIENT_KIND = OtlpSpan.SpanKind.SPAN_KIND_CLIENT
INTERNAL_KIND = OtlpSpan.SpanKind.SPAN_KIND_INTERNAL


@pytest.fixture
def collector() -> Iterator[Collector]:
    with listening() as collector:
        yield collector


def spans_of(log: LogWriter, trace_parent: str | None = None) -> list[Span]:
    fold = SpanFold(RUN_ID, trace_parent, provider="openai")
    return [span for logged in log.entries for span in fold.feed(*logged)]


def tool_run() -> LogWriter:
    """The log of a run whose tool took 100 ms."""
    log = asking().write(ToolCallStarted("call_1_0", 1, "once"), after_ms=10)
    log.write(ToolCallCompleted("call_1_0", 42, 100), after_ms=100)
    return log.write(RunCompleted(Output("42"), Usage()), after_ms=5)


def export(collector: Collector, spans: list[Span], *, content: bool = False) -> None:
    exporter = Exporter(collector.endpoint, content=content)
    exporter.export(spans)
    exporter.close()


def filler(count: int) -> list[Span]:
    return [
        Span(RUN_ID, seq, "a" * 32, f"{seq:016x}", None, "chat", "chat x", 1, 2, "ok")
        for seq in range(1, count + 1)
    ]


def test_a_runs_spans_arrive_with_their_kinds_names_and_times(collector: Collector) -> None:
    export(collector, spans_of(tool_run()))

    kinds = {name: span.kind for name, span in collector.spans.items()}
    tool = collector.spans["execute_tool add"]
    assert kinds == {
        "invoke_agent clerk": INTERNAL_KIND,
        "chat gpt-5-mini": CLIENT_KIND,
        "execute_tool add": INTERNAL_KIND,
    }
    assert tool.start_time_unix_nano == 3_315_000_000
    assert tool.end_time_unix_nano - tool.start_time_unix_nano == 100_000_000


def test_attributes_arrive_under_their_genai_names_and_in_their_types(
    collector: Collector,
) -> None:
    export(collector, spans_of(tool_run()))

    attributes = attributes_of(collector.spans["chat gpt-5-mini"])
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.usage.input_tokens"] == 50
    assert attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert attributes["gen_ai.response.time_to_first_chunk"] == 0.12
    assert attributes["milepost.run_id"] == RUN_ID
    assert collector.resource["service.name"] == "milepost"
    assert collector.paths == ["/v1/traces"]


def test_request_run_and_calls_are_one_trace_below_the_caller(collector: Collector) -> None:
    place = request_context(RUN_ID, CALLER)
    exporter = Exporter(collector.endpoint)

    exporter.export_server("POST /v1/runs", place, 900, 1_000, 202)
    exporter.export(spans_of(tool_run(), place.header()))
    exporter.close()

    server, agent = collector.spans["POST /v1/runs"], collector.spans["invoke_agent clerk"]
    assert {span.trace_id.hex() for span in collector.all_spans} == {CALLER.trace_id}
    assert server.parent_span_id.hex() == CALLER.span_id
    assert agent.parent_span_id == server.span_id
    assert collector.spans["chat gpt-5-mini"].parent_span_id == agent.span_id
    assert collector.spans["execute_tool add"].parent_span_id == agent.span_id


def test_the_request_says_what_http_says(collector: Collector) -> None:
    exporter = Exporter(collector.endpoint)

    exporter.export_server("POST /v1/runs", request_context(RUN_ID, None), 900, 1_000, 202)
    exporter.close()

    span = collector.spans["POST /v1/runs"]
    assert (span.kind, span.parent_span_id) == (SERVER_KIND, b"")
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert attributes_of(span) == {
        "http.request.method": "POST",
        "http.route": "/v1/runs",
        "http.response.status_code": 202,
    }


def test_a_request_that_the_server_failed_is_an_error(collector: Collector) -> None:
    exporter = Exporter(collector.endpoint)

    exporter.export_server("POST /v1/runs", request_context(RUN_ID, None), 900, 1_000, 503)
    exporter.close()

    span = collector.spans["POST /v1/runs"]
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert attributes_of(span)["error.type"] == "503"


def test_a_request_whose_caller_samples_nothing_is_not_sent(collector: Collector) -> None:
    unsampled = TraceContext(CALLER.trace_id, CALLER.span_id, flags=0)
    exporter = Exporter(collector.endpoint)

    exporter.export_server("POST /v1/runs", request_context(RUN_ID, unsampled), 900, 1_000, 202)
    exporter.close()

    assert collector.bodies == []


def test_a_stretch_after_a_wait_is_linked_to_the_first(collector: Collector) -> None:
    log = asking().write(RunWaiting("approval", ())).write(RunResumed(2, "w2", "approval"))

    export(collector, spans_of(log.write(RunCompleted(Output("42"), Usage()))))

    first, second = (one for one in collector.all_spans if one.name == "invoke_agent clerk")
    assert [link.span_id for link in second.links] == [first.span_id]
    assert second.links[0].trace_id == first.trace_id
    assert list(first.links) == []
    assert "milepost.linked_span_id" not in attributes_of(second)


@pytest.mark.parametrize(("content", "text"), [(False, ""), (True, "no such user: Eva")])
def test_an_errors_text_is_sent_only_with_content(
    collector: Collector, content: bool, text: str
) -> None:
    failure = Failure("provider_error", "no such user: Eva")
    log = begun().write(MessageStarted("msg_1", MODEL), MessageAborted("msg_1", "x", failure))

    export(collector, spans_of(log), content=content)

    span = collector.spans["chat gpt-5-mini"]
    assert (span.status.code, span.status.message) == (Status.STATUS_CODE_ERROR, text)
    assert attributes_of(span)["error.type"] == "provider_error"


def test_spans_are_sent_without_being_asked_for(collector: Collector) -> None:
    exporter = Exporter(collector.endpoint)

    exporter.export(filler(1))

    assert collector.arrived.wait(WAIT_S)
    exporter.close()


def test_a_collector_that_does_not_answer_holds_nobody_up_and_the_rest_is_counted(
    collector: Collector,
) -> None:
    collector.gate.clear()
    dropped: list[int] = []
    exporter = Exporter(collector.endpoint, on_dropped=dropped.append)
    exporter.export(filler(BATCH_MAX))
    assert collector.arrived.wait(WAIT_S)

    exporter.export(filler(QUEUE_MAX + 10))

    assert dropped == [10]
    collector.gate.set()
    exporter.close()
    assert len(collector.all_spans) == BATCH_MAX + QUEUE_MAX


def test_without_a_collector_every_span_is_counted_as_dropped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
    dropped: queue.Queue[int] = queue.Queue()
    exporter = Exporter(endpoint, on_dropped=dropped.put)

    exporter.export(filler(3))
    exporter.close(timeout_s=0.2)

    assert dropped.get(timeout=WAIT_S) == 3


def test_closing_takes_no_longer_than_allowed_and_counts_what_is_left(
    collector: Collector,
) -> None:
    collector.gate.clear()
    dropped: list[int] = []
    exporter = Exporter(collector.endpoint, on_dropped=dropped.append)
    exporter.export(filler(BATCH_MAX))
    assert collector.arrived.wait(WAIT_S)
    exporter.export(filler(7))

    exporter.close(timeout_s=0.1)

    assert dropped == [7]
    collector.gate.set()
    exporter._thread.join(WAIT_S)
    assert dropped == [7]


def test_after_closing_spans_are_dropped_and_counted(collector: Collector) -> None:
    dropped: list[int] = []
    exporter = Exporter(collector.endpoint, on_dropped=dropped.append)
    exporter.close()

    exporter.export(filler(2))

    assert dropped == [2]
    assert collector.bodies == []


def test_a_span_that_cannot_be_encoded_does_not_stop_the_next(collector: Collector) -> None:
    dropped: list[int] = []
    exporter = Exporter(collector.endpoint, on_dropped=dropped.append)
    broken = Span(RUN_ID, 1, "no hex", "x", None, "chat", "chat x", 1, 2, "ok")

    exporter.export([broken] * BATCH_MAX)
    exporter.export(filler(1))
    exporter.close()

    assert dropped == [BATCH_MAX]
    assert [span.span_id.hex() for span in collector.all_spans] == [f"{1:016x}"]


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Callable[[], list[dict[str, object]]]:
    """Return what is logged from here on, without what the SDK has to say."""
    caplog.set_level(logging.INFO)

    def heard() -> list[dict[str, object]]:
        foreign = [each.name for each in caplog.records if not each.name.startswith("milepost.")]
        assert foreign == []
        return spoken(caplog, "telemetry")

    return heard


def test_a_collector_that_fails_is_named_once_with_the_reason_and_once_when_it_works_again(
    collector: Collector, heard: Callable[[], list[dict[str, object]]]
) -> None:
    collector.status = 400
    exporter = Exporter(collector.endpoint)
    for _ in range(3):
        collector.arrived.clear()
        exporter.export(filler(BATCH_MAX))
        assert collector.arrived.wait(WAIT_S)
    collector.arrived.clear()
    collector.status = 200
    exporter.export(filler(BATCH_MAX))
    exporter.close()

    failing, working = heard()
    assert (failing["level"], failing["event"]) == ("warning", "spans are not delivered")
    assert (failing["dropped"], "waiting" in failing) == (BATCH_MAX, True)
    assert "400" in str(failing["why"])
    assert (working["level"], working["event"]) == ("info", "spans are delivered again")
    assert working["dropped"] == 3 * BATCH_MAX


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_collector_that_is_elsewhere_is_said_to_be_and_nothing_counts_as_delivered(
    collector: Collector, heard: Callable[[], list[dict[str, object]]], status: int
) -> None:
    collector.status, collector.headers = status, {"Location": "https://there.example/v1/traces"}
    dropped: list[int] = []
    exporter = Exporter(collector.endpoint, on_dropped=dropped.append)

    exporter.export(filler(3))
    exporter.close()

    [line] = heard()
    assert (dropped, line["event"]) == ([3], "spans are not delivered")
    assert f"{status}, it is redirected to https://there.example" in str(line["why"])


def test_spans_that_a_collector_rejects_of_a_batch_are_counted_and_its_reason_is_told(
    collector: Collector, heard: Callable[[], list[dict[str, object]]]
) -> None:
    partial = ExportTracePartialSuccess(rejected_spans=2, error_message="they are too old")
    collector.answer = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
    dropped: list[int] = []
    exporter = Exporter(collector.endpoint, on_dropped=dropped.append)

    exporter.export(filler(3))
    exporter.close()

    [line] = heard()
    assert (dropped, line["why"], line["dropped"]) == ([2], "they are too old", 2)


@pytest.mark.parametrize("answer", [b"{}", b'{"partialSuccess":{}}', b"OK", b"\0" * 100_000])
def test_whatever_else_a_collector_says_of_what_it_took_it_took_it(
    collector: Collector, heard: Callable[[], list[dict[str, object]]], answer: bytes
) -> None:
    collector.answer = answer
    dropped: list[int] = []
    exporter = Exporter(collector.endpoint, on_dropped=dropped.append)

    exporter.export(filler(3))
    exporter.close()

    assert (dropped, heard()) == ([], [])


@pytest.mark.parametrize("status", [200, 400])
def test_nobody_listens_to_all_that_a_collector_says(collector: Collector, status: int) -> None:
    collector.status, collector.talks_on = status, True
    dropped: list[int] = []
    exporter = Exporter(collector.endpoint, on_dropped=dropped.append)

    exporter.export(filler(3))
    exporter.close(WAIT_S)

    assert collector.left_talking.wait(WAIT_S)
    assert dropped == ([] if status == 200 else [3])


@pytest.mark.parametrize(
    ("status", "why"), [(200, "it has not ended its answer within 5 s"), (400, "Bad Request")]
)
def test_nobody_waits_long_for_the_end_of_what_a_collector_says(
    collector: Collector, heard: Callable[[], list[dict[str, object]]], status: int, why: str
) -> None:
    collector.status, collector.talks_on = status, True
    dropped: list[int] = []
    clock = itertools.count(0.0, ATTEMPT_S).__next__  # Each look at what came is that much later.
    exporter = Exporter(collector.endpoint, on_dropped=dropped.append, clock=clock)

    exporter.export(filler(3))
    exporter.close(WAIT_S)

    assert collector.left_talking.wait(WAIT_S)
    [line] = heard()
    assert (dropped, line["event"]) == ([3], "spans are not delivered")
    assert why in str(line["why"])


def test_without_a_collector_one_line_says_so(
    heard: Callable[[], list[dict[str, object]]],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
    dropped: queue.Queue[int] = queue.Queue()
    exporter = Exporter(endpoint, on_dropped=dropped.put)

    exporter.export(filler(3))
    exporter.close(timeout_s=0.1)
    exporter._thread.join(WAIT_S)

    [line] = heard()
    assert (line["event"], line["dropped"]) == ("spans are not delivered", 3)
    assert "refused" in str(line["why"])


def test_a_collector_that_works_is_not_worth_a_line(
    collector: Collector, heard: Callable[[], list[dict[str, object]]]
) -> None:
    export(collector, filler(1))

    assert heard() == []
