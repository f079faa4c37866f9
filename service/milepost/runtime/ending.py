"""Ending a run from outside, when no worker holds it or the one that does will not let go."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce

import orjson

from milepost.core.codec import encode
from milepost.core.errors import MilepostError
from milepost.core.events import (
    ApprovalDecided,
    Event,
    MessageAborted,
    MessageStarted,
    RunCancelled,
    SideCallAborted,
    Terminal,
    ToolCallCompleted,
)
from milepost.core.evolve import evolve, fold
from milepost.core.spans import Span
from milepost.core.state import State
from milepost.core.usage import Usage
from milepost.live.frames import Frame
from milepost.live.hub import QUEUE_BELL, inbox_bell
from milepost.runtime import child_runs
from milepost.runtime.journal import Ports, ending
from milepost.runtime.letters import events_of
from milepost.runtime.logged import Logged, logged
from milepost.runtime.lost_side_calls import LostSideCalls
from milepost.runtime.settle import closing, in_hand
from milepost.runtime.stopping import work_of
from milepost.runtime.withholding import without_unseen
from milepost.store import idempotency, log, runs
from milepost.store.idempotency import Asked
from milepost.store.records import Entry, InboxMessage, LogEntry, UsageRow
from milepost.store.runs import Ending, RunRow, StaleError
from milepost.store.work import Work
from milepost.telemetry.spans import SpanFold


async def end_run(
    ports: Ports,
    row: RunRow,
    terminal: Callable[[Usage], Terminal],
    *,
    asked: Asked | None = None,
) -> None:
    """Close the run's log and free its session, fencing off whoever holds the run.

    What came in for the run and was not read yet is written first: a person's answer stands, even
    if nothing follows from it any more.

    `terminal` makes the last event from what the run has used; the key of a request, `asked`, is
    kept in the same transaction. Raises `StaleError` if the run is no longer as `row` says, and
    `AnsweredError` if the request was answered meanwhile.
    """
    entries, inbox_seen, letters = await ports.store.read(_found(row))
    if not entries:
        raise StaleError(f"run {row.id} was erased meanwhile; look again")
    past, now = _Past.of(entries), ports.clock()
    came = await without_unseen(ports, row, past.state, _came(past.state, letters))
    before, last = _last_events(past, [*past.lost, *came], terminal, now)
    events = [*before, last]
    spans, sampled = _cut_off(row, past, events, now)
    change = ending(last, reduce(evolve, events, past.state), now)
    assert change.outcome is not None, "a terminal event has an outcome"
    final = Ending(
        status=change.status,
        outcome=change.outcome,
        entries=tuple(Entry(each.type, now, encode(each).decode()) for each in events),
        head=past.head,
        inbox_seen=inbox_seen,
        usage=_billed(row, past, events, now),
        spans=spans,
    )
    end = runs.end(row, final, ports.new_id("apd"))
    first, freed = await ports.store.write(idempotency.keeping(asked, end))
    ports.metrics.observe_ending(events, spans)
    if spans and sampled:
        ports.export(spans)
    ports.hub.publish(row.id, _frames(row.id, final.entries, first))
    ports.hub.ring(inbox_bell(row.id))
    if freed:
        ports.hub.ring(QUEUE_BELL)
    if row.parent_run_id is not None:
        with suppress(MilepostError):  # The run has ended all the same: the sweeper tells.
            await child_runs.tell(ports, await ports.store.read(runs.find(row.tenant, row.id)))


@dataclass(frozen=True, slots=True)
class _Past:
    """A run's log as it was found, up to `head`; `models` are those that were asked, in order.

    `lost` tells of those that were asked beside the conversation, by a worker that is gone.
    """

    head: int
    log: Sequence[Logged]
    state: State
    models: Sequence[str]
    lost: Sequence[SideCallAborted]

    @classmethod
    def of(cls, entries: Sequence[LogEntry]) -> "_Past":
        log = logged(entries)
        asked = [each.event.model for each in log if isinstance(each.event, MessageStarted)]
        lost = LostSideCalls()
        for each in log:
            lost.feed(each.event)
        return cls(entries[-1].seq, log, fold(each.event for each in log), asked, lost.told())

    @property
    def asked_last(self) -> str:
        return self.models[-1] if self.models else ""


def _found(row: RunRow) -> Work[tuple[list[LogEntry], int, list[InboxMessage]]]:
    """Return the run's log, and its inbox: what was answered there was told to whoever did."""
    entries = yield from log.read_all(row.tenant, row.id)
    seen, letters = yield from log.inbox(row.tenant, row.id, 0)
    return entries, seen, letters


def _came(state: State, letters: Sequence[InboxMessage]) -> list[Event]:
    came: list[Event] = []
    for letter in letters:
        for event in events_of([letter], reduce(evolve, came, state)):
            came.append(event)
            if isinstance(event, ApprovalDecided) and event.decision == "happened":
                came.append(ToolCallCompleted(event.call_id, event.result, 0))
    return came


def _last_events(
    past: _Past, came: Sequence[Event], terminal: Callable[[Usage], Terminal], now_ms: int
) -> tuple[list[Event], Terminal]:
    """Return what came in and what goes before the terminal event, and that event itself.

    Nobody could stop what was in hand from here: it says so.
    """
    state = reduce(evolve, came, past.state)
    event = terminal(state.usage)
    if isinstance(event, RunCancelled):
        stopped = tuple(name for name, _ in in_hand(state))
        event = replace(event, stopped=stopped, work=work_of(state, past.asked_last, {}, now_ms))
    before, last = closing(state, event)
    return [*came, *before], last


def _cut_off(
    row: RunRow, past: _Past, events: Sequence[Event], time_ms: int
) -> tuple[tuple[Span, ...], bool]:
    """Return the spans of what was still open, which end here, and whether they are wanted."""
    provider = past.models[0].partition("/")[0] if past.models else ""
    fold = SpanFold(
        row.id, row.trace_parent, provider=provider, metadata=orjson.loads(row.metadata)
    )
    for each in past.log:
        fold.feed(each.seq, each.time_ms, each.event)
    last = enumerate(events, start=past.head + 1)
    spans = tuple(span for seq, event in last for span in fold.feed(seq, time_ms, event))
    return spans, fold.sampled


def _billed(
    row: RunRow, past: _Past, events: Sequence[Event], time_ms: int
) -> tuple[UsageRow, ...]:
    """Return what is known of the calls of models that the ending cuts off, if there are any."""
    return tuple(
        UsageRow(
            seq,
            row.session_id,
            row.agent,
            event.model if isinstance(event, SideCallAborted) else past.asked_last,
            row.user,
            row.metadata,
            time_ms,
            event.usage,
        )
        for seq, event in enumerate(events, start=past.head + 1)
        if isinstance(event, MessageAborted | SideCallAborted)
    )


def _frames(run_id: str, entries: Sequence[Entry], first: int) -> list[Frame]:
    return [
        Frame(run_id, seq, entry.type, entry.time_ms, entry.data.encode())
        for seq, entry in enumerate(entries, start=first)
    ]
