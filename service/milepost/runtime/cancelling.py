"""Stopping a run from outside: by its worker where one holds it, else by ending it here."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import orjson

from milepost.core.errors import MilepostError
from milepost.core.events import RunCancelled
from milepost.live.hub import QUEUE_BELL, inbox_bell, ring_for
from milepost.runtime.ending import end_run
from milepost.runtime.journal import Ports
from milepost.store import children, idempotency, runs
from milepost.store.arrivals import reason_of
from milepost.store.idempotency import AnsweredError, Asked
from milepost.store.lines import GRACE_MS
from milepost.store.records import NewRun
from milepost.store.runs import Letter, RunRow, StaleError
from milepost.store.work import Work

TRIES = 5
CLEARED_MAX = 20


@dataclass(frozen=True, slots=True)
class Cancellation:
    """Who wants which run to stop, and why; `asked` is the request's own key, if it has one."""

    tenant: str
    run_id: str
    by: str
    reason: str | None = None
    asked: Asked | None = None


async def cancel_run(ports: Ports, wanted: Cancellation) -> bool:
    """Stop a run unless it is over; return whether this very request had been answered before.

    Whatever is done is done with the request's key in one transaction, on the state that was
    read: whoever finds that it has changed looks again.
    """
    for _ in range(TRIES):
        if wanted.asked is not None:
            earlier = await ports.store.write(idempotency.recall(wanted.asked))
            if earlier is not None:
                return True
        row = await ports.store.read(runs.find(wanted.tenant, wanted.run_id))
        try:
            await _stop(ports, row, wanted)
        except (StaleError, AnsweredError):
            continue
        return False
    raise StaleError(f"run {wanted.run_id} changes too fast to be cancelled; try again")


async def _stop(ports: Ports, row: RunRow, wanted: Cancellation) -> None:
    if row.ended_ms is None and row.status != "running":
        await end_run(
            ports,
            row,
            lambda used: RunCancelled(wanted.by, wanted.reason, (), used),
            asked=wanted.asked,
        )
        with suppress(MilepostError):  # The run has ended all the same: the sweeper stops them.
            await abandon_children(ports, row.tenant, row.id)
        return
    status = await ports.store.write(
        idempotency.keeping(wanted.asked, _told(row, wanted, ports.clock()))
    )
    if status == "queued":
        ports.hub.ring(QUEUE_BELL)
    ports.hub.ring(inbox_bell(row.id))


def _told(row: RunRow, wanted: Cancellation, now_ms: int) -> Work[str | None]:
    """Ask the run's worker to stop; return the run's status then, None if it is over."""
    said = orjson.dumps({"by": wanted.by, "reason": wanted.reason}).decode()
    letter = Letter("cancel", said, "cancel", now_ms, GRACE_MS)
    return (yield from runs.deliver(row.tenant, row.id, letter))


async def clear_way(ports: Ports, wanted: NewRun, replaced: Sequence[str]) -> None:
    """End runs that were told to stop for another one, in their order, as far as nobody holds them.

    It only saves time: whoever takes one of them reads that it must stop. Behind one that a worker
    holds, or has just taken, the others wait for their turn as they did.
    """
    assert wanted.if_active is not None, "only who wants to replaces anybody"
    by, reason = wanted.if_active.by, reason_of(wanted)
    with suppress(MilepostError):
        for run_id in replaced[:CLEARED_MAX]:
            ring_for(ports.hub, run_id)
            row = await ports.store.read(runs.find(wanted.tenant, run_id))
            if row.status == "running":
                return
            if row.ended_ms is None:
                await end_run(ports, row, lambda used: RunCancelled(by, reason, (), used))
                await abandon_children(ports, row.tenant, row.id)


async def abandon_children(ports: Ports, tenant: str, run_id: str) -> None:
    """Stop the runs that one which is over had started: nobody waits for their answers."""
    for child_id in await ports.store.read(children.open_of(tenant, run_id)):
        await cancel_child(ports, tenant, child_id)


async def cancel_child(ports: Ports, tenant: str, child_id: str) -> None:
    """Stop a run whose parent is over."""
    await cancel_run(ports, Cancellation(tenant, child_id, "parent", "its parent run is over"))
