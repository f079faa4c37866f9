"""Spans that are still open, and how they come to their ends."""

from collections.abc import Mapping
from dataclasses import field

from milepost.core.copying import replace
from milepost.core.frozen import dataclass
from milepost.core.spans import Span, SpanKind
from milepost.telemetry.attributes import Attributes
from milepost.telemetry.endings import WORKER_LOST, Ending


@dataclass(frozen=True)  # Without slots, which makes copies cheap.
class Begun:
    """It may start later than it was opened: a retry waits first.

    `cut_ms` is when the worker let go of it, and `lost` says that the worker died. What goes on
    `elsewhere`, at the client's or in another run, is in no worker's hands.
    """

    seq: int
    span_id: str
    kind: SpanKind
    name: str
    opened_ms: int
    start_ms: int
    parent_id: str | None
    model: str | None = None
    tool: str | None = None
    attributes: Attributes = field(default_factory=dict)
    cut_ms: int | None = None
    lost: bool = False
    elsewhere: bool = False

    def saying(self, told: Attributes) -> "Begun":
        """Return it with more to say."""
        return replace(self, attributes={**self.attributes, **told})

    def ended(self, run_id: str, trace_id: str, time_ms: int, ending: Ending) -> Span:
        """Return the span; clocks may step back, and a retry may be given up while it waits."""
        if self.lost:
            ending = WORKER_LOST
        if self.cut_ms is not None:
            time_ms = self.cut_ms
        end_ms = max(time_ms, self.opened_ms)
        return Span(
            run_id=run_id,
            seq=self.seq,
            trace_id=trace_id,
            span_id=self.span_id,
            parent_id=self.parent_id,
            kind=self.kind,
            name=self.name,
            start_ms=min(self.start_ms, end_ms),
            end_ms=end_ms,
            status=ending.status,
            error=ending.error,
            model=self.model,
            tool=self.tool,
            attributes={**self.attributes, **ending.attributes},
        )


def cut(open_spans: Mapping[str, Begun], time_ms: int, *, lost: bool) -> Mapping[str, Begun]:
    """Return the spans with what a worker had in hand cut off here, whenever that gets told.

    Only the first cut counts: a later worker never had it in hand.
    """
    return {
        key: begun
        if begun.elsewhere or begun.cut_ms is not None
        else replace(begun, cut_ms=time_ms, lost=lost)
        for key, begun in open_spans.items()
    }
