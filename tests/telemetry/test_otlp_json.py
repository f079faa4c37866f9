"""A trace as an OTLP document in JSON: ids in hex, numbers that are wide as text."""

from dataclasses import replace

from milepost.core.spans import Span
from milepost.telemetry.attributes import LINKED_SPAN_ID
from milepost.telemetry.otlp_json import otlp_json

ROOT = Span(
    run_id="run_1",
    seq=2,
    trace_id="0123456789abcdef" * 2,
    span_id="00000000000000aa",
    parent_id=None,
    kind="invoke_agent",
    name="invoke_agent clerk",
    start_ms=1_700_000_000_000,
    end_ms=1_700_000_000_250,
    status="ok",
    attributes={"gen_ai.usage.input_tokens": 3, "finish": ("stop",), "first_s": 0.5, "new": True},
)


def spans_of(*spans: Span) -> list[dict[str, object]]:
    [batch] = otlp_json(spans, service_name="desk")["resourceSpans"]
    assert batch["resource"] == {
        "attributes": [{"key": "service.name", "value": {"stringValue": "desk"}}]
    }
    [scope] = batch["scopeSpans"]
    found: list[dict[str, object]] = scope["spans"]
    return found


def test_a_span_is_spelled_as_otlp_wants_it() -> None:
    [span] = spans_of(ROOT)

    assert span["traceId"] == ROOT.trace_id
    assert span["spanId"] == ROOT.span_id
    assert "parentSpanId" not in span
    assert span["kind"] == 1
    assert span["startTimeUnixNano"] == "1700000000000000000"
    assert span["endTimeUnixNano"] == "1700000000250000000"
    assert span["attributes"] == [
        {"key": "milepost.run_id", "value": {"stringValue": "run_1"}},
        {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "3"}},
        {"key": "finish", "value": {"arrayValue": {"values": [{"stringValue": "stop"}]}}},
        {"key": "first_s", "value": {"doubleValue": 0.5}},
        {"key": "new", "value": {"boolValue": True}},
    ]


def test_a_span_names_its_parent_its_link_and_its_error() -> None:
    failed = replace(
        ROOT,
        parent_id="00000000000000bb",
        status="error",
        error="no such order",
        attributes={LINKED_SPAN_ID: "00000000000000cc"},
    )

    [span] = spans_of(failed)

    assert span["parentSpanId"] == "00000000000000bb"
    assert span["links"] == [{"traceId": ROOT.trace_id, "spanId": "00000000000000cc", "flags": 256}]
    assert span["status"] == {"code": 2, "message": "no such order"}


def test_no_spans_are_an_empty_document() -> None:
    assert otlp_json([], service_name="desk") == {"resourceSpans": []}
