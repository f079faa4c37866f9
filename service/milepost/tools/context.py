"""What a tool may know about the call that it answers, and what it may say meanwhile."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from structlog.stdlib import BoundLogger, get_logger

from milepost.tools.artifacts import EmitArtifact, emit_artifact
from milepost.tools.emitting import Emit, emit_to_nobody
from milepost.tools.pending import StashPending, stash_pending
from milepost.tools.transaction import NO_TRANSACTION, Transaction

Progress = Callable[[object], None]

_LOG: BoundLogger = get_logger("milepost.tool")


class Remember(Protocol):
    """Keeps what should be known beyond the run."""

    def __call__(self, text: str, /) -> None:
        """Keep `text`."""


def unheard(_: object) -> None:
    """Say it to nobody."""


def forgotten(_: str, /) -> None:
    """Keep nothing."""


@dataclass(frozen=True, slots=True)
class Approved:
    """A person's yes to the call."""

    by: str
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Handed to the parameter that is annotated with it; no model sees it or can supply it.

    `idempotency_key` is the same for every attempt at this call and differs between calls: pass it
    on, and the other side can tell a repetition from a new call. `attempt` counts from 1.
    `deadline_ms` is Unix time in milliseconds, None where the run has none. `approval` says who
    said yes to the call, None where nobody was asked.

    `progress(text)` shows text to those who follow the run, while the tool runs and from whatever
    thread; it is kept nowhere. `emit(name, value)` tells them of an event of the tool's own, which
    is kept in the run's log. `remember(text)` keeps nothing but what whoever runs the tool makes
    of it: memories are kept by the tool `remember`. `emit_artifact(...)` is the function
    of that name, for threads of the tool's own too, and so is `stash_pending(...)`. `log` is what
    `logger` is made from. `tx` is the transaction of a `transactional` tool.
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
    tool: str = ""
    approval: Approved | None = None
    progress: Progress = field(default=unheard, repr=False, compare=False)
    emit: Emit = field(default=emit_to_nobody, repr=False, compare=False)
    remember: Remember = field(default=forgotten, repr=False, compare=False)
    emit_artifact: EmitArtifact = field(default=emit_artifact, repr=False, compare=False)
    stash_pending: StashPending = field(default=stash_pending, repr=False, compare=False)
    tx: Transaction = field(default=NO_TRANSACTION, repr=False, compare=False)
    log: BoundLogger = field(default=_LOG, repr=False, compare=False)

    @property
    def deadline(self) -> datetime | None:
        """When the run will be ended, None where it has no such time."""
        if self.deadline_ms is None:
            return None
        return datetime.fromtimestamp(self.deadline_ms / 1000, UTC)

    @property
    def logger(self) -> BoundLogger:
        """The process' own log, with the run, the call and the tool in every line."""
        bound: BoundLogger = self.log.bind(run=self.run_id, call=self.call_id, tool=self.tool)
        return bound
