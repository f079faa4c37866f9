"""A span: one row of a run's trace, derived from its events."""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from milepost.core.frozen import dataclass

SpanKind = Literal[
    "invoke_agent", "chat", "execute_tool", "guardrail", "policy", "denial", "cache_hit",
    "structured_retry", "fallback", "loop", "budget",
]  # fmt: skip
SpanStatus = Literal["ok", "error", "cancelled"]

# What is counted by: the names of these attributes are those that rows are searched for.
CACHE_HIT = "milepost.cache_hit"
CALL_ID = "gen_ai.tool.call.id"
CHUNKS = "milepost.tool.chunks"
COERCED = "milepost.tool.coerced"
ERROR_TYPE = "error.type"
PARAMETERS = "milepost.tool.parameters"

Attribute = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """What was done, when, and how it ended. Ids are hex (16 and 8 bytes), from run and seq.

    `seq` is that of the event which opened the span: one event may close several spans, but it
    opens one at most, so that (run, seq) names a span. What happens at one moment begins and ends
    with its event.
    """

    run_id: str
    seq: int
    trace_id: str
    span_id: str
    parent_id: str | None
    kind: SpanKind
    name: str
    start_ms: int
    end_ms: int
    status: SpanStatus
    error: str | None = None
    model: str | None = None
    tool: str | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
