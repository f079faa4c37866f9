"""The pump: lets the items of batches become runs, in every process, without a leader.

A batch takes no more of the queue than its share, so that there is room for single runs; and its
runs stand in a lane below theirs unless it asks for another.
"""

import asyncio
import random

import orjson

from milepost.core.events import RunQueued
from milepost.live.hub import BATCHES_BELL, QUEUE_BELL, batch_bell
from milepost.runtime.cancelling import Cancellation, cancel_run
from milepost.runtime.journal import Ports
from milepost.store import batch_turns
from milepost.store.batch_turns import Item, Offer, Standing, Turn
from milepost.store.batches import BatchRow
from milepost.store.records import Entry, NewRun
from milepost.telemetry.logs import logger
from milepost.worker.turns import rest, take_turn

PACE_S = 0.02
IDLE_PACE_S = 0.25
POLL_S = 1.0
BEGIN_MAX = 100
STOP_MAX = 100
NEEDY_MAX = 1_000
QUEUE_PARTS = 2


class Pump:
    """Tends the batches that are not over.

    The bell tells of runs that ended in this process; other processes have a pump of their own, and
    what is missed is found by polling.
    """

    def __init__(self, ports: Ports, *, queue_max: int, poll_s: float = POLL_S) -> None:
        self._ports = ports
        # Of a queue for one run, a batch may have all.
        self._queued_max = max(queue_max // QUEUE_PARTS, 1)
        self._poll_s = poll_s
        self._log = logger("batches")

    async def run(self) -> None:
        """Tend them until cancelled, at a pace at which what ends together is seen together."""
        with self._ports.hub.bell(BATCHES_BELL) as rung:
            while True:
                rung.clear()
                tends = await take_turn(self.tend(), False, self._log)
                await asyncio.sleep(PACE_S if tends else IDLE_PACE_S)
                await rest(rung, self._poll_s)

    async def tend(self) -> bool:
        """Give a turn to each batch that needs one; return whether any is not over."""
        is_any, room, needy = await self._look()
        # In any order: where room is scarce, none is always the first.
        random.shuffle(needy)
        for standing in needy:
            if standing.needs_a_turn(room):
                room -= await take_turn(self._turns(standing.row, room), 0, self._log)
        return is_any

    async def _look(self) -> tuple[bool, int, list[Standing]]:
        """Return whether any batch is not over, the room in the queue, and who may need a turn.

        All are looked at until so many need one: those that only wait for people would else hide
        the ones behind them.
        """
        behind: BatchRow | None = None
        needy: list[Standing] = []
        while True:
            look = batch_turns.look(self._queued_max, behind)
            standings, queued = await self._ports.store.read(look)
            room = self._queued_max - queued
            needy += [each for each in standings if each.needs_a_turn(room)]
            if len(standings) < batch_turns.LOOK_MAX or len(needy) >= NEEDY_MAX:
                return bool(behind or standings), room, needy
            behind = standings[-1].row

    async def _turns(self, row: BatchRow, room: int) -> int:
        """Give a batch its turns, as many runs in each as a transaction should hold.

        Returns how many runs began.
        """
        begun = 0
        while True:
            most = max(min(BEGIN_MAX, row.concurrency, room - begun), 0)
            turn = await self._turn(row, most)
            begun += turn.begun if turn else 0
            if turn is None or turn.begun < BEGIN_MAX:
                return begun

    async def _turn(self, row: BatchRow, most: int) -> Turn | None:
        ports = self._ports
        ids = [(ports.new_id("run"), ports.new_id("ses")) for _ in range(most)]
        offer = Offer(ids, run_of, ports.clock)
        turn = await ports.store.write(batch_turns.turn(row.tenant, row.id, offer))
        if turn is None:
            return None
        if turn.begun:
            ports.hub.ring(QUEUE_BELL)
        if turn.changed:
            ports.hub.ring(batch_bell(row.id))
        # Any of them: one that cannot be stopped stays among them, and hides no other for good.
        for run_id in random.sample(turn.untold, min(STOP_MAX, len(turn.untold))):
            by, reason = turn.row.cancelled_by or "", turn.row.cancel_reason
            wanted = Cancellation(row.tenant, run_id, by, reason)
            await take_turn(cancel_run(ports, wanted), False, self._log)
        return turn


def run_of(row: BatchRow, item: Item, ids: tuple[str, str], now_ms: int) -> NewRun:
    """Return the run that an item becomes, in a session of its own."""
    run_id, session_id = ids
    deadline_ms = None if row.deadline_after_ms is None else now_ms + row.deadline_after_ms
    queued = {
        **orjson.loads(row.queued_event),
        "session_id": session_id,
        "input": orjson.Fragment(item.input),
        "deadline_ms": deadline_ms,
    }
    return NewRun(
        id=run_id,
        tenant=row.tenant,
        session_id=session_id,
        session_is_new=True,
        agent_id=row.agent_id,
        agent=row.agent,
        agent_version=row.agent_version,
        user=row.user,
        metadata=item.metadata or row.metadata,
        lane=row.lane,
        created_ms=now_ms,
        scheduled_ms=None,
        deadline_ms=deadline_ms,
        trace_parent=row.trace_parent,
        queued=Entry(RunQueued.type, now_ms, orjson.dumps(queued).decode()),
        scopes=row.scopes,
        made_by=row.made_by,
    )
