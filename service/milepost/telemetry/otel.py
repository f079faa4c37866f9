"""Spans in OpenTelemetry's own form, with our ids, parents and links."""

from collections.abc import Iterator

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from milepost.core.spans import ERROR_TYPE, Attribute, Span
from milepost.telemetry.attributes import LINKED_SPAN_ID, LINKED_TRACE, RUN_ID
from milepost.telemetry.context import TraceContext

NANOS_PER_MS = 1_000_000
SERVER_ERRORS = 500

_SCOPE = InstrumentationScope("milepost")


def readable(span: Span, resource: Resource, *, content: bool) -> ReadableSpan:
    """Return a run's span. The text of an error may quote what was said, so it counts as content.

    The parent of an agent's span is in another process, or in another request of this one.
    """
    attributes = {RUN_ID: span.run_id, **span.attributes}
    links = list(_links(span.trace_id, attributes))
    remote = span.kind == "invoke_agent"
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace_id, span.span_id),
        parent=_context(span.trace_id, span.parent_id, remote=remote) if span.parent_id else None,
        resource=resource,
        attributes=attributes,
        links=links,
        kind=SpanKind.CLIENT if span.kind == "chat" else SpanKind.INTERNAL,
        status=_status(span, content=content),
        start_time=span.start_ms * NANOS_PER_MS,
        end_time=span.end_ms * NANOS_PER_MS,
        instrumentation_scope=_SCOPE,
    )


def readable_server(
    name: str, place: TraceContext, times_ms: tuple[int, int], status_code: int, resource: Resource
) -> ReadableSpan:
    """Return the span of a request; `name` is its method and its route."""
    method, _, route = name.partition(" ")
    attributes: dict[str, str | int] = {
        "http.request.method": method,
        "http.route": route,
        "http.response.status_code": status_code,
    }
    failed = status_code >= SERVER_ERRORS
    if failed:
        attributes[ERROR_TYPE] = str(status_code)
    parent_id, trace_id = place.parent_id, place.trace_id
    start_ms, end_ms = times_ms
    return ReadableSpan(
        name=name,
        context=_context(trace_id, place.span_id),
        parent=_context(trace_id, parent_id, remote=True) if parent_id else None,
        resource=resource,
        attributes=attributes,
        kind=SpanKind.SERVER,
        status=Status(StatusCode.ERROR if failed else StatusCode.UNSET),
        start_time=start_ms * NANOS_PER_MS,
        end_time=end_ms * NANOS_PER_MS,
        instrumentation_scope=_SCOPE,
    )


def _links(trace_id: str, attributes: dict[str, Attribute]) -> Iterator[Link]:
    """Yield what the span goes on from: an earlier span of its run, or one of another run."""
    if linked_id := attributes.pop(LINKED_SPAN_ID, None):
        yield Link(_context(trace_id, str(linked_id)))
    origin = TraceContext.parse(str(attributes.pop(LINKED_TRACE, "")))
    if origin is not None:
        yield Link(_context(origin.trace_id, origin.span_id, remote=True))


def _context(trace_id: str, span_id: str, *, remote: bool = False) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=remote, trace_flags=flags)


def _status(span: Span, *, content: bool) -> Status:
    if span.status != "error":
        return Status(StatusCode.UNSET)
    return Status(StatusCode.ERROR, span.error if content else None)
