"""The scribe: has runs that are over read by memory runs, in every process, without a leader.

Each is read exactly once: the run that reads it comes in the transaction in which its row goes.
Nobody waits for that, and what fails concerns nobody but memory.
"""

from milepost.core.codec import encode
from milepost.core.errors import MilepostError, NotFoundError, OverloadedError
from milepost.core.events import InputMessage, Parent, RunQueued
from milepost.core.state import transcript
from milepost.live.hub import LESSONS_BELL, QUEUE_BELL
from milepost.memory.extraction import conversation
from milepost.runtime.history import folded
from milepost.runtime.journal import Ports
from milepost.runtime.memory_runs import CALL_ID, memory_id, memory_name
from milepost.store import log, recollections, rollbacks, runs
from milepost.store.erasures import UserBeingErasedError
from milepost.store.recollections import RecollectionRow
from milepost.store.records import Entry, NewRun
from milepost.store.runs import RunRow
from milepost.telemetry.logs import logger
from milepost.worker.turns import rest, take_turn

POLL_S = 1.0
READ_MAX = 50
QUEUE_PARTS = 2
LANE = -1
GIVE_UP_MS = 24 * 3_600_000


class Scribe:
    """Tends the runs that are to be read.

    The bell tells of those that ended in this process; other processes have a scribe of their own,
    and what is missed is found by polling.
    """

    def __init__(self, ports: Ports, *, queue_max: int, poll_s: float = POLL_S) -> None:
        self._ports = ports
        # Of the queue, as batches: there is always room for runs that somebody waits for.
        self._queue_max = max(queue_max // QUEUE_PARTS, 1)
        self._poll_s = poll_s
        self._log = logger("memory")

    async def run(self) -> None:
        """Tend them until cancelled."""
        with self._ports.hub.bell(LESSONS_BELL) as rung:
            while True:
                rung.clear()
                if not await take_turn(self.tend(), 0, self._log):
                    await rest(rung, self._poll_s)

    async def tend(self) -> int:
        """Have the runs read that wait longest; return how many were dealt with."""
        waiting = await self._ports.store.read(recollections.waiting(READ_MAX))
        done = [await take_turn(self._read(row), False, self._log) for row in waiting]
        return sum(done)

    async def _read(self, row: RecollectionRow) -> bool:
        """Let a memory run read this one; say whether nobody has to look at it again."""
        store, now_ms = self._ports.store, self._ports.clock()
        # Age comes first: what cannot even be looked at must not stand before the others for good.
        is_old = now_ms - row.created_ms > GIVE_UP_MS
        wanted = None if is_old else await self._wanted(row)
        if wanted is None:
            await store.write(recollections.drop(row))
            return True
        try:
            begun = await store.write(recollections.begin(row, wanted, queue_max=self._queue_max))
        except OverloadedError:
            return False  # Whoever waits for an answer goes first.
        except MilepostError as error:
            # What is being erased is not there any more once one might try again.
            if error.retryable and not isinstance(error, UserBeingErasedError):
                raise
            self._log.warning("nobody can learn of a run", run=row.run_id, error=str(error))
            await store.write(recollections.drop(row))
            return True
        if begun:
            self._ports.hub.ring(QUEUE_BELL)
        return True

    async def _wanted(self, row: RecollectionRow) -> NewRun | None:
        """Return the run that is to read this one; None if nothing can be learned of it."""
        store = self._ports.store
        try:
            over = await store.read(runs.find(row.tenant, row.run_id))
        except NotFoundError:
            return None  # It was erased meanwhile.
        if await store.read(rollbacks.is_rolled_back(row.tenant, row.run_id)):
            return None
        state = folded(await store.read(log.read_all(row.tenant, row.run_id)))
        said = conversation(transcript(state))
        if not said:
            return None
        return self._run(over, said, state.parent)

    def _run(self, over: RunRow, said: str, above: Parent | None) -> NewRun:
        ports = self._ports
        now_ms, run_id, session_id = ports.clock(), ports.new_id("run"), ports.new_id("ses")
        agent_id, agent = memory_id(over.agent_id), memory_name(over.agent)
        depth = above.depth + 1 if above else 1
        asked_in = above.session_id if above else None
        queued = RunQueued(
            agent=agent,
            agent_id=agent_id,
            agent_version=over.agent_version,
            session_id=session_id,
            input=(InputMessage("user", said),),
            user=over.user,
            parent=Parent(over.id, CALL_ID, depth, asked_in or over.session_id),
        )
        return NewRun(
            id=run_id,
            tenant=over.tenant,
            session_id=session_id,
            session_is_new=True,
            agent_id=agent_id,
            agent=agent,
            agent_version=over.agent_version,
            user=over.user,
            metadata=over.metadata,
            lane=LANE,
            created_ms=now_ms,
            scheduled_ms=None,
            deadline_ms=None,
            trace_parent=over.trace_parent,
            queued=Entry(queued.type, now_ms, encode(queued).decode()),
            parent_run_id=over.id,
            parent_call_id=CALL_ID,
        )
