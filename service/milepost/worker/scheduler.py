"""The scheduler: makes the runs of schedules whose time has come, in every process.

It needs no leader: of those that see a time come, one moves the schedule on (see
`store/schedules.py`). What was missed while nobody looked is made up for by one run.
"""

import random

import orjson

from milepost.core.errors import OverloadedError, UnavailableError
from milepost.core.events import RunQueued
from milepost.live.frames import rfc3339
from milepost.live.hub import QUEUE_BELL, SCHEDULES_BELL, session_bell
from milepost.runtime.journal import Ports
from milepost.runtime.timetable import Timetable
from milepost.store import schedules
from milepost.store.agents import AgentRow
from milepost.store.records import Entry, NewRun
from milepost.store.schedules import Came, Due, Occasion, ScheduleRow
from milepost.telemetry.logs import logger
from milepost.worker.turns import rest, take_turn

POLL_S = 1.0
COMING_MAX = 100


class Scheduler:
    """Lets schedules come when they are due, and sleeps until the next one is.

    The bell tells of those that are new in this process; other processes have a scheduler of their
    own, and what is missed is found by polling.
    """

    def __init__(self, ports: Ports, *, queue_max: int, poll_s: float = POLL_S) -> None:
        self._ports = ports
        self._queue_max = queue_max
        self._poll_s = poll_s
        self._log = logger("schedules")

    async def run(self) -> None:
        """Let them come until cancelled."""
        with self._ports.hub.bell(SCHEDULES_BELL) as rung:
            while True:
                rung.clear()
                wait_s = await take_turn(self.tend(), self._poll_s, self._log)
                await rest(rung, wait_s)

    async def tend(self) -> float:
        """Let come what is due; return after how many seconds to look again.

        Where there is no room, all wait. One that fails by itself keeps no other from its time.
        """
        poll_ms = round(self._poll_s * 1000)
        coming = await self._ports.store.read(schedules.due(poll_ms, COMING_MAX))
        due = [each for each in coming if each.in_ms <= 0]
        if not due:
            return coming[0].in_ms / 1000 if coming else self._poll_s
        random.shuffle(due)  # Of several processes, each begins with another one.
        is_well = True
        for each in due:
            is_room = await take_turn(self._come(each), None, self._log)
            if is_room is False:
                return self._poll_s
            is_well &= is_room is True
        return 0 if is_well else self._poll_s

    async def _come(self, due: Due) -> bool:
        """Let one come, whatever becomes of it; return whether there was room for it.

        What it runs is read one by one: it may be long in each.
        """
        try:
            row = await self._ports.store.read(schedules.still_due(due))
            if row is None:
                return True
            occasion = self._occasion(row, due)
            came = await self._ports.store.write(
                schedules.come(occasion, queue_max=self._queue_max)
            )
        except (OverloadedError, UnavailableError) as error:
            self._log.warning("what is due waits", error=str(error))
            return False
        if came is not None:
            self._tell(occasion, came)
        return True

    def _occasion(self, row: ScheduleRow, due: Due) -> Occasion:
        for_ms, next_ms = _times(row, due)
        run_id, session_id = self._ports.new_id("run"), self._ports.new_id("ses")

        def begin(agent: AgentRow) -> NewRun:
            return run_of(row, agent, (run_id, session_id), for_ms, self._ports.clock())

        return Occasion(row, for_ms, due.now_ms, next_ms, begin)

    def _tell(self, occasion: Occasion, came: Came) -> None:
        row = occasion.row
        self._ports.metrics.count_schedule(came.result)
        if occasion.next_ms is None:
            self._log.warning(
                "a schedule comes no more: its zone is not known here, or its days are past",
                schedule=row.id, timezone=row.timezone, cron=row.cron,
            )  # fmt: skip
        if came.result == "refused":
            self._log.warning(
                "a schedule's run was refused", schedule=row.id, code=came.code, why=came.detail
            )
        if came.run:
            self._ports.hub.ring(QUEUE_BELL)
            self._ports.hub.ring(session_bell(came.run.session_id))


def _times(row: ScheduleRow, due: Due) -> tuple[int, int | None]:
    """Return for which time it comes, the last one that is not ahead, and when it comes next.

    One whose zone is not known here any more comes this once, and then waits for somebody to name
    another.
    """
    try:
        timetable = Timetable.of(row.cron, row.timezone)
    except ValueError:
        return due.next_ms, None
    return timetable.latest(due.next_ms, due.now_ms), timetable.after(due.now_ms)


def run_of(
    row: ScheduleRow, agent: AgentRow, ids: tuple[str, str], for_ms: int, now_ms: int
) -> NewRun:
    """Return the run that a schedule becomes: in the session that it names, or in one of its own.

    What it is for stands in its metadata, by which its runs are found and added up.
    """
    wanted = orjson.loads(row.run)
    deadline_s = wanted["deadline_s"]
    run_id, new_session_id = ids
    session_id = row.session_id or new_session_id
    deadline_ms = None if deadline_s is None else now_ms + round(deadline_s * 1000)
    queued = {
        **orjson.loads(row.queued_event),
        "agent": agent.name,
        "agent_id": agent.id,
        "agent_version": agent.version,
        "session_id": session_id,
        "user": row.user,
        "deadline_ms": deadline_ms,
    }
    metadata = {**wanted["metadata"], "schedule_id": row.id, "scheduled_for": rfc3339(for_ms)}
    return NewRun(
        id=run_id,
        tenant=row.tenant,
        session_id=session_id,
        session_is_new=row.session_id is None,
        agent_id=agent.id,
        agent=agent.name,
        agent_version=agent.version,
        user=row.user,
        metadata=orjson.dumps(metadata).decode(),
        lane=wanted["priority"],
        created_ms=now_ms,
        scheduled_ms=None,
        deadline_ms=deadline_ms,
        trace_parent=None,
        queued=Entry(RunQueued.type, now_ms, orjson.dumps(queued).decode()),
        scopes=row.scopes,
        made_by=row.made_by,
        follows_session=row.follows_session,
    )
