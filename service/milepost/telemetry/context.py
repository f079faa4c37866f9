"""Where a span stands in its trace: the W3C header, and ids that are derived instead of drawn.

Derived ids make everything that is told about a run repeatable: told twice, it is the same span.
"""

import hashlib
import re

from milepost.core.frozen import dataclass

SAMPLED = 0b01
RANDOM = 0b10
_REQUEST_SEQ = 0  # The log begins at 1: what was there before it is the request.

_TRACEPARENT = re.compile(
    "(?P<version>(?!ff)[0-9a-f]{2})"
    "-(?P<trace_id>(?!0{32})[0-9a-f]{32})"
    "-(?P<span_id>(?!0{16})[0-9a-f]{16})"
    "-(?P<flags>[0-9a-f]{2})"
    "(?P<rest>-.*)?"
)


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span's place in its trace; `parent_id` is None at the root. Ids are lower-case hex."""

    trace_id: str
    span_id: str
    flags: int = SAMPLED
    parent_id: str | None = None

    @classmethod
    def parse(cls, header: str | None) -> "TraceContext | None":
        """Return what a `traceparent` says, or None if it is missing or not valid.

        A later version is read as far as version 00 goes, and flags that have no name yet are
        dropped, as the recommendation asks.
        """
        found = _TRACEPARENT.fullmatch(header or "")
        if found is None or (found["version"] == "00" and found["rest"]):
            return None
        flags = int(found["flags"], 16) & (SAMPLED | RANDOM)
        return cls(found["trace_id"], found["span_id"], flags)

    @property
    def sampled(self) -> bool:
        """Say whether the caller wants to see this trace."""
        return bool(self.flags & SAMPLED)

    def child(self, span_id: str) -> "TraceContext":
        """Return the place of a span below this one."""
        return TraceContext(self.trace_id, span_id, self.flags, self.span_id)

    def header(self) -> str:
        """Return the `traceparent` that makes the receiver's spans children of this one."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"


def trace_id_of(run_id: str) -> str:
    """Return the trace of a run that nobody's trace led to."""
    return hashlib.sha256(run_id.encode()).digest()[:16].hex()


def span_id_of(run_id: str, seq: int) -> str:
    """Return the id of the span that the run's event `seq` opened."""
    return hashlib.sha256(f"{run_id}:{seq}".encode()).digest()[:8].hex()


def request_context(run_id: str, caller: TraceContext | None) -> TraceContext:
    """Return the place of the request that created the run, between its caller and the run."""
    span_id = span_id_of(run_id, _REQUEST_SEQ)
    if caller is None:
        return TraceContext(trace_id_of(run_id), span_id)
    return caller.child(span_id)
