"""Ending a run from outside, when no worker holds it or the one that does will not let go."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce

import orjson

from milepost.core.codec import decode, encode
from milepost.core.errors import MilepostError
from milepost.core.events import (
    Event,
    MessageAborted,
    MessageStarted,
    RunCancelled,
    Terminal,
)
from milepost.core.spans import Span
from milepost.core.state import State, evolve, fold
from milepost.core.usage import Usage
from milepost.live.frames import Frame
from milepost.live.hub import QUEUE_BELL, inbox_bell
from milepost.runtime import child_runs
from milepost.runtime.journal import Ports, ending
from milepost.runtime.letters import events_of
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
    head = entries[-1].seq
    past = [event for entry in entries if (event := decode(entry.type, entry.data))]
    now = ports.clock()
    state = fold(past)
    came = await without_unseen(ports, row, state, _came(state, letters))
    before, last = _last_events(state, came, terminal, _asked_last(past), now)
    events = [*before, last]
    encoded = [encode(each) for each in events]
    spans, sampled = _cut_off(row, entries, events, now)
    change = ending(last, fold([*past, *events]), now)
    assert change.outcome is not None, "a terminal event has an outcome"
    end = runs.end(
        row,
        Ending(
            status=change.status,
            outcome=change.outcome,
            entries=tuple(
                Entry(each.type, now, data.decode())
                for each, data in zip(events, encoded, strict=True)
            ),
            head=head,
            inbox_seen=inbox_seen,
            usage=_billed(row, past, events, head, now),
            spans=spans,
        ),
        ports.new_id("apd"),
    )
    first, freed = await ports.store.write(idempotency.keeping(asked, end))
    frames = [
        Frame(row.id, seq, each.type, now, data)
        for seq, (each, data) in enumerate(zip(events, encoded, strict=True), start=first)
    ]
    ports.metrics.observe_ending(events, spans)
    if spans and sampled:
        ports.export(spans)
    ports.hub.publish(row.id, frames)
    ports.hub.ring(inbox_bell(row.id))
    if freed:
        ports.hub.ring(QUEUE_BELL)
    if row.parent_run_id is not None:
        with suppress(MilepostError):  # The run has ended all the same: the sweeper tells.
            await child_runs.tell(ports, await ports.store.read(runs.find(row.tenant, row.id)))


def _found(row: RunRow) -> Work[tuple[list[LogEntry], int, list[InboxMessage]]]:
    """Return the run's log, and its inbox: what was answered there was told to whoever did."""
    entries = yield from log.read_all(row.tenant, row.id)
    seen, letters = yield from log.inbox(row.tenant, row.id, 0)
    return entries, seen, letters


def _came(state: State, letters: Sequence[InboxMessage]) -> list[Event]:
    came: list[Event] = []
    for letter in letters:
        came += events_of([letter], reduce(evolve, came, state))
    return came


def _last_events(
    state: State,
    came: Sequence[Event],
    terminal: Callable[[Usage], Terminal],
    model: str,
    now_ms: int,
) -> tuple[list[Event], Terminal]:
    """Return what came in and what goes before the terminal event, and that event itself.

    Nobody could stop what was in hand from here: it says so.
    """
    state = reduce(evolve, came, state)
    event = terminal(state.usage)
    if isinstance(event, RunCancelled):
        stopped = tuple(name for name, _ in in_hand(state))
        event = replace(event, stopped=stopped, work=work_of(state, model, {}, now_ms))
    before, last = closing(state, event)
    return [*came, *before], last


def _cut_off(
    row: RunRow, entries: Sequence[LogEntry], events: Sequence[Event], time_ms: int
) -> tuple[tuple[Span, ...], bool]:
    """Return the spans of what was still open, which end here, and whether they are wanted."""
    happened = [
        (entry.seq, entry.time_ms, event)
        for entry in entries
        if (event := decode(entry.type, entry.data))
    ]
    asked = (event.model for _, _, event in happened if isinstance(event, MessageStarted))
    provider = next(asked, "").partition("/")[0]
    fold = SpanFold(
        row.id, row.trace_parent, provider=provider, metadata=orjson.loads(row.metadata)
    )
    for logged in happened:
        fold.feed(*logged)
    last = enumerate(events, start=entries[-1].seq + 1)
    spans = tuple(span for seq, event in last for span in fold.feed(seq, time_ms, event))
    return spans, fold.sampled


def _asked_last(past: Sequence[Event]) -> str:
    """Return the model that was asked last, if one was."""
    started = (event.model for event in reversed(past) if isinstance(event, MessageStarted))
    return next(started, "")


def _billed(
    row: RunRow, past: Sequence[Event], events: Sequence[Event], head: int, time_ms: int
) -> tuple[UsageRow, ...]:
    """Return what is known of the call that the ending cuts off, if there is one."""
    model = _asked_last(past)
    return tuple(
        UsageRow(
            seq, row.session_id, row.agent, model, row.user, row.metadata, time_ms, event.usage
        )
        for seq, event in enumerate(events, start=head + 1)
        if isinstance(event, MessageAborted)
    )
