"""Ending a run from outside, when no worker holds it or the one that does will not let go."""

from collections.abc import Callable
from dataclasses import replace

from milepost.core.codec import decode, encode
from milepost.core.events import RunCancelled, Terminal
from milepost.core.state import State, fold
from milepost.core.usage import Usage
from milepost.live.frames import Frame
from milepost.live.hub import QUEUE_BELL, inbox_bell
from milepost.runtime.journal import Ports, ending
from milepost.runtime.settle import closing, in_hand
from milepost.store import log, runs
from milepost.store.records import Entry
from milepost.store.runs import Ending, RunRow


async def end_run(ports: Ports, row: RunRow, terminal: Callable[[Usage], Terminal]) -> None:
    """Close the run's log and free its session, fencing off whoever holds the run.

    `terminal` makes the last event from what the run has used. Raises `StaleError` if the run is
    no longer as `row` says.
    """
    entries = await ports.store.read(log.read_all(row.tenant, row.id))
    found = (decode(entry.type, entry.data) for entry in entries)
    state = fold(event for event in found if event)
    event = _naming_what_stopped(terminal(state.usage), state)
    now = ports.clock()
    events = closing(state, event)
    encoded = [encode(each) for each in events]
    change = ending(event, now)
    assert change.outcome is not None, "a terminal event has an outcome"
    written = tuple(
        Entry(each.type, now, data.decode()) for each, data in zip(events, encoded, strict=True)
    )
    first, freed = await ports.store.write(
        runs.end(
            row,
            Ending(change.status, change.outcome, written, head=entries[-1].seq),
            ports.new_id("apd"),
        )
    )
    frames = [
        Frame(row.id, seq, each.type, now, data)
        for seq, (each, data) in enumerate(zip(events, encoded, strict=True), start=first)
    ]
    ports.hub.publish(row.id, frames)
    ports.hub.ring(inbox_bell(row.id))
    if freed:
        ports.hub.ring(QUEUE_BELL)


def _naming_what_stopped(event: Terminal, state: State) -> Terminal:
    if not isinstance(event, RunCancelled):
        return event
    return replace(event, stopped=tuple(name for name, _ in in_hand(state)))
