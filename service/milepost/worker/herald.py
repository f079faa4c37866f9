"""The herald: tells a dispatcher that has to be told which runs are ready, in every process.

Whatever makes a run ready rings the queue's bell after its commit, and the queue says which runs
those are. So nothing has to be told twice, no telling stands in a transaction, and one that is lost
is found by the next look.
"""

import asyncio
import time
from zlib import crc32

from milepost.dispatch.port import Announce, Ready
from milepost.live.hub import QUEUE_BELL
from milepost.runtime.journal import Ports
from milepost.store import queue
from milepost.store.queue import ReadyRun, Seat
from milepost.telemetry.logs import logger
from milepost.worker.turns import rest, take_turn

READY_MAX = 500
PACE_S = 0.01
POLL_S = 1.0
SEAT_S = 2.0
TURN_MS = 3_000
AGAIN_S = 30.0


class Herald:
    """Tells of runs as long as its worker's lease lasts.

    The living share the runs out by their ids, and one that is still ready is the next one's after
    `TURN_MS`: so each is told by one at first, and by another if that one is gone.
    """

    def __init__(
        self, worker: str, ports: Ports, announce: Announce, *, poll_s: float = POLL_S
    ) -> None:
        self._worker = worker
        self._ports = ports
        self._announce = announce
        self._poll_s = poll_s
        self._seat = Seat(living=1, before=0)
        self._seat_due_s = 0.0
        self._told_s: dict[tuple[str, int], float] = {}
        self._log = logger("herald")

    async def run(self) -> None:
        """Tell until cancelled, at a pace at which what becomes ready together is told together."""
        with self._ports.hub.bell(QUEUE_BELL) as rung:
            while True:
                heard = rung.is_set()
                rung.clear()
                await take_turn(self.tell(heard=heard), None, self._log)
                await asyncio.sleep(PACE_S)
                await rest(rung, self._poll_s)

    async def tell(self, *, heard: bool = False) -> None:
        """Tell of what is ready, and this one's to tell, and was not told just now.

        A bell that nobody else can have heard is answered by whoever heard it, for all of them.
        """
        store, now_s = self._ports.store, time.monotonic()
        alone = heard and self._ports.hub.link is None
        if now_s >= self._seat_due_s:
            self._seat = await store.read(queue.seat(self._worker))
            self._seat_due_s = now_s + SEAT_S
        ready = {(each.id, each.epoch): each for each in await store.read(queue.ready(READY_MAX))}
        # What is ready no more needs no remembering: the next time, it is under another epoch.
        self._told_s = {key: told_s for key, told_s in self._told_s.items() if key in ready}
        mine = {
            key: each
            for key, each in ready.items()
            if self._is_due(key, now_s) and (alone or self._is_mine(each))
        }
        if mine:
            told = await self._announce([Ready(each.id, each.lane) for each in mine.values()])
            self._told_s |= {key: now_s for key in mine if key[0] in told}

    def _is_due(self, key: tuple[str, int], now_s: float) -> bool:
        told_s = self._told_s.get(key)
        return told_s is None or now_s >= told_s + AGAIN_S

    def _is_mine(self, run: ReadyRun) -> bool:
        turn = crc32(run.id.encode()) + run.ready_for_ms // TURN_MS
        return turn % max(self._seat.living, 1) == self._seat.before
