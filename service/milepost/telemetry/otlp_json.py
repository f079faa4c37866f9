"""A run's spans as an OTLP document in JSON, as a collector takes it."""

from base64 import b64decode
from collections.abc import Iterable
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import SERVICE_NAME, Resource

from milepost.core.spans import Span
from milepost.telemetry.otel import readable

# Protobuf's JSON writes bytes in base64, OTLP's writes these in hex.
_IDS = ("traceId", "spanId", "parentSpanId")


def otlp_json(spans: Iterable[Span], *, service_name: str) -> dict[str, Any]:
    """Return what would be posted to a collector's `/v1/traces`, errors' texts included."""
    resource = Resource({SERVICE_NAME: service_name})
    encoded = encode_spans([readable(span, resource, content=True) for span in spans])
    document: dict[str, Any] = MessageToDict(encoded, use_integers_for_enums=True)
    for batch in document.setdefault("resourceSpans", []):
        for scope in batch["scopeSpans"]:
            for span in scope["spans"]:
                _spell_ids(span)
    return document


def _spell_ids(span: dict[str, Any]) -> None:
    for part in (span, *span.get("links", ())):
        for name in _IDS:
            if name in part:
                part[name] = b64decode(part[name]).hex()
