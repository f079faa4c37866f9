"""A run in a worker's hands: its state, its place in the log, and the one way to go on."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import orjson

from milepost.core.agents import Agent
from milepost.core.codec import encode, usage_shown
from milepost.core.events import (
    ApprovalWithdrawn,
    ArtifactCreated,
    Event,
    MemorySummarized,
    MemoryTrimmed,
    MessageAborted,
    MessageCompleted,
    RunCancelled,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunIncomplete,
    SideCallAborted,
    Terminal,
    ToolCallFailed,
    ToolCallScreened,
    ToolResultCompressed,
)
from milepost.core.evolve import evolve
from milepost.core.frozen import dataclass
from milepost.core.open_call import CallStatus
from milepost.core.spans import Span
from milepost.core.state import State
from milepost.core.usage import Usage
from milepost.core.window import Place
from milepost.live.frames import Frame
from milepost.live.hub import LESSONS_BELL, QUEUE_BELL, Hub, approvals_bell
from milepost.runtime import notices
from milepost.runtime.clock import Clock, NewId
from milepost.runtime.ports import RunPorts
from milepost.runtime.worked_time import WorkedTime
from milepost.store.records import (
    Append,
    Change,
    Claim,
    Entry,
    NewApproval,
    NewArtifact,
    NewSummary,
    UsageRow,
)
from milepost.telemetry.spans import SpanFold

if TYPE_CHECKING:  # A run in process has no store, and needs none of what one brings along.
    from milepost.runtime.artifacts import Shelf
    from milepost.store.store import Store
    from milepost.telemetry.metrics import Metrics


Write = Callable[[Append], Awaitable[tuple[int, tuple[str, ...]]]]
"""Writes an iteration; see `RunStore.append`."""


@dataclass(frozen=True, slots=True)
class Stamped:
    """An event and the moment when it happened, in Unix milliseconds."""

    event: Event
    time_ms: int


@dataclasses.dataclass(slots=True)
class _Written:
    """What the events of one iteration are, wherever they are written down or shown."""

    entries: list[Entry] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    usage: list[UsageRow] = field(default_factory=list)
    artifacts: list[NewArtifact] = field(default_factory=list)
    summaries: list[NewSummary] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    skips: bool = False


_TRIMMING = (MemorySummarized, MemoryTrimmed)


def no_export(_: Sequence[Span]) -> None:
    """Send spans nowhere: no collector is named."""


@dataclass(frozen=True, slots=True)
class Ports:
    """A service's own: what its journals write to, and what it takes time and ids from."""

    store: "Store"
    hub: Hub
    clock: Clock
    new_id: NewId
    metrics: "Metrics"
    shelf: "Shelf"
    export: Callable[[Sequence[Span]], None] = no_export


class Journal:
    """Appends to one run under one epoch, and shows what was appended only when it is durable.

    Whoever appends holds `lock` from where it looks at the state.
    """

    def __init__(
        self,
        claim: Claim,
        agent: Agent,
        state: State,
        spans: SpanFold,
        ports: RunPorts,
        worked: WorkedTime | None = None,
    ) -> None:
        self.claim = claim
        self.agent = agent
        self.state = state
        self.worked = worked or WorkedTime()
        self.lock = asyncio.Lock()
        self.head = claim.head
        self.inbox_seen = 0
        self.inbox_known = claim.inbox_seq
        self.told_of: tuple[str, ...] = ()  # The runs of which a summary tells.
        self.lost: Sequence[SideCallAborted] = ()  # What the claim found lost with a dead worker.
        self._spans = spans
        self._ports = ports
        self._writer = ports.new_id("apd")
        self._tries = 0

    def stamp(self, *events: Event) -> list[Stamped]:
        """Return the events as happening now."""
        now = self._ports.clock()
        return [Stamped(event, now) for event in events]

    async def append(
        self,
        happened: Sequence[Stamped],
        *,
        state: State,
        change: Change | None = None,
        approvals: Sequence[NewApproval] = (),
        inbox_read: int | None = None,
        write: Write | None = None,
    ) -> None:
        """Write one iteration: its events, and all that changes with them, in one transaction.

        `state` is what the events lead to; `write` writes them into a transaction that is open
        already, and commits it. Raises `FencedError` and `InboxMovedError`, after which
        this journal is where it was before.
        """
        self._tries += 1
        spans = self._spans.fork()
        written = self._written(happened, spans)
        item = Append(
            run_id=self.claim.run_id,
            tenant=self.claim.tenant,
            session_id=self.claim.session_id,
            epoch=self.claim.epoch,
            head=self.head,
            append_id=f"{self._writer}:{self.head}:{self._tries}",
            entries=tuple(written.entries),
            inbox_seen=self.inbox_seen if inbox_read is None else inbox_read,
            inbox_consumed=inbox_read is not None,
            change=change,
            spans=tuple(written.spans),
            usage=tuple(written.usage),
            approvals=tuple(approvals),
            withdrawn=tuple(written.withdrawn),
            skips=written.skips,
            artifacts=tuple(written.artifacts),
            summaries=tuple(written.summaries),
            told_of=self.told_of if written.summaries else (),
        )
        self.inbox_known, freed = await (write or self._ports.store.append)(item)
        if written.frames:
            self.head += len(written.frames)
            self._ports.hub.publish(self.claim.run_id, written.frames)
        self._spans = spans
        self.state = state
        self.inbox_seen = item.inbox_seen
        if change and change.lesson.is_to_be_read:
            self._ports.hub.ring(LESSONS_BELL)
        if freed or (change and change.status == "queued"):
            self._ports.hub.ring(QUEUE_BELL)
        if approvals or item.withdrawn:
            self._ports.hub.ring(approvals_bell(self.claim.tenant))
        if change and change.status == "failed":
            self._tell_of_failure(happened)
        self._ports.metrics.observe_append((stamped.event for stamped in happened), item.spans)
        if item.spans and spans.sampled:
            self._ports.export(item.spans)

    def _tell_of_failure(self, happened: Sequence[Stamped]) -> None:
        for stamped in happened:
            if isinstance(stamped.event, RunFailed):
                notices.run_failed(stamped.event, self.claim.run_id, self.agent.name)

    def _written(self, happened: Sequence[Stamped], spans: SpanFold) -> "_Written":
        """Return what the events are in the log, in streams and in the tables beside the log."""
        written = _Written()
        run_id = self.claim.run_id
        for seq, stamped in enumerate(happened, start=self.head + 1):
            event, time_ms = stamped.event, stamped.time_ms
            data = encode(event)
            written.entries.append(Entry(event.type, time_ms, data.decode()))
            written.frames.append(Frame(run_id, seq, event.type, time_ms, data))
            written.spans += spans.feed(seq, time_ms, event)
            if spent := self._spent(event):
                written.usage.append(self._row(seq, time_ms, *spent))
            if isinstance(event, ArtifactCreated):
                written.artifacts.append(self._artifact(event, time_ms))
            if isinstance(event, _TRIMMING):
                written.summaries.append(self._summary(event, time_ms))
            if isinstance(event, ApprovalWithdrawn):
                written.withdrawn.append(event.approval_id)
            if isinstance(event, ToolCallFailed):
                written.skips |= self._is_the_clients(event.call_id)
        return written

    def _is_the_clients(self, call_id: str) -> bool:
        """Say whether the client may be answering the call just now: the log says that it may."""
        call = self.state.calls.get(call_id)
        return call is not None and call.status is CallStatus.AWAITED and not call.child_run_id

    def _row(self, seq: int, time_ms: int, model: str, usage: Usage) -> UsageRow:
        return UsageRow(
            seq=seq,
            session_id=self.claim.session_id,
            agent=self.agent.name,
            model=model,
            user=self.claim.user,
            metadata=self.claim.metadata,
            time_ms=time_ms,
            usage=usage,
        )

    def _artifact(self, event: ArtifactCreated, time_ms: int) -> NewArtifact:
        return NewArtifact(
            id=event.artifact_id,
            session_id=self.claim.session_id,
            call_id=event.call_id,
            filename=event.filename,
            mime_type=event.mime_type,
            size=event.size,
            sha256=event.sha256,
            url=event.url,
            role=event.role,
            retention=event.retention,
            created_ms=time_ms,
        )

    def _summary(self, event: MemorySummarized | MemoryTrimmed, time_ms: int) -> NewSummary:
        first, last = Place.of(event.first), Place.of(event.last)
        return NewSummary(
            id=event.id,
            session_id=self.claim.session_id,
            from_turn=first.turn,
            from_index=first.at,
            through_turn=last.turn,
            through_index=last.at,
            content=event.content if isinstance(event, MemorySummarized) else "",
            model=event.model,
            created_ms=time_ms,
        )

    def _spent(self, event: Event) -> tuple[str, Usage] | None:
        """Return what a model call took, as far as is known, and which model it was."""
        match event:
            case MessageCompleted(usage=usage, answered_by=answered_by):
                return answered_by or self.agent.model, usage
            case MessageAborted(usage=usage) if usage != Usage():
                return self.agent.model, usage
            case ToolResultCompressed(model=model, usage=usage) if usage != Usage():
                return model, usage
            case MemorySummarized(usage=usage) | MemoryTrimmed(usage=usage) if usage != Usage():
                return event.model or self.agent.model, usage
            case SideCallAborted(model=model, usage=usage):
                return model, usage
            case ToolCallScreened(usage=usage) if usage != Usage():
                assert self.agent.guardrails is not None, "only guardrails screen calls"
                assert self.agent.guardrails.coherence is not None, "only a model takes anything"
                return self.agent.guardrails.coherence.model, usage
            case _:
                return None


def folded(state: State, happened: Sequence[Stamped]) -> State:
    """Return the state after the events."""
    for stamped in happened:
        state = evolve(state, stamped.event)
    return state


def ending(event: Terminal, state: State, time_ms: int) -> Change:
    """Return what the terminal event makes of its run's row; `state` is where it leads to.

    What a client is shown of the outcome leaves out what only a run above has to know.
    """
    outcome: dict[str, object] = {
        "usage": usage_shown(event.usage),
        "below": usage_shown(state.children),
        "tool_calls": state.tool_calls,
    }
    match event:
        case RunCompleted():
            outcome |= {"output": event.output, "finish_reason": event.finish_reason}
        case RunIncomplete():
            outcome |= {"output": event.output, "finish_reason": event.reason}
        case RunFailed():
            outcome |= {"error": event.error}
        case RunCancelled():
            outcome |= {"finish_reason": "cancelled"}
        case RunExpired():
            outcome |= {"finish_reason": f"expired: {event.limit}"}
    status = event.type.removeprefix("run.")
    return Change(status, outcome=orjson.dumps(outcome).decode(), ended_ms=time_ms)
