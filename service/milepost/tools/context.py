"""What a tool may know about the call that it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Handed to the parameter that is annotated with it; no model sees it or can supply it.

    `idempotency_key` is the same for every attempt at this call and differs between calls: pass it
    on, and the other side can tell a repetition from a new call. `attempt` counts from 1.
    `deadline_ms` is Unix time in milliseconds, None where the run has none.
    """

    run_id: str
    session_id: str
    tenant: str
    user: str | None
    call_id: str
    attempt: int
    idempotency_key: str
    deadline_ms: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
