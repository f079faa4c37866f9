"""Schedules for the store's tests, with everything filled in."""

from dataclasses import replace
from typing import Any

import orjson
from sqlalchemy import update

from milepost.core.codec import encode
from milepost.core.events import RunQueued
from milepost.runtime.clock import now_ms
from milepost.store import schema
from milepost.store.agents import AgentRow
from milepost.store.dialect import number, text
from milepost.store.records import NewRun
from milepost.store.schedules import Occasion, ScheduleRow
from milepost.store.work import Call, Statement, Work
from tests.store.conftest import store_at
from tests.store.making import NOW_MS, TENANT, a_run, an_id

HOUR_MS = 3_600_000
NOWHERE = "Atlantis/Capital"

_SET = Statement(update(schema.schedules).values(next_ms=number("next_ms")))
_MOVE = Statement(update(schema.schedules).values(timezone=text("timezone")))


async def let_come(database_url: str) -> None:
    """Have the time of every schedule come, as of a moment ago."""
    await _write(database_url, _SET(next_ms=now_ms() - 1))


async def let_sink(database_url: str) -> None:
    """Have the place of every schedule be known no more."""
    await _write(database_url, _MOVE(timezone=NOWHERE))


async def _write(database_url: str, call: Call) -> None:
    def write() -> Work[None]:
        yield call

    async with store_at(database_url) as store:
        await store.write(write())


def a_wish(**changes: Any) -> str:
    """Return what a schedule runs, as it was asked for."""
    wished: dict[str, Any] = {
        "agent": "clerk",
        "input": "hello",
        "session_id": None,
        "metadata": {},
        "user": None,
        "deadline_s": None,
        "response_format": None,
        "cache": True,
        "priority": 0,
    }
    return orjson.dumps({**wished, **changes}).decode()


def a_schedule(**changes: Any) -> ScheduleRow:
    """Return an hourly schedule that is due now."""
    schedule = ScheduleRow(
        id=an_id("sch"),
        tenant=TENANT,
        name=None,
        cron="0 * * * *",
        timezone="UTC",
        overlap="skip",
        late_max_ms=None,
        enabled=1,
        agent="clerk",
        user=None,
        run=a_wish(),
        queued_event=encode(RunQueued("clerk", "", 0, "", ())).decode(),
        metadata="{}",
        scopes="[]",
        made_by="local",
        next_ms=NOW_MS,
        last=None,
        last_run_id=None,
        version=1,
        created_ms=NOW_MS,
        updated_ms=NOW_MS,
    )
    return replace(schedule, **changes)


def an_occasion(row: ScheduleRow, **changes: Any) -> Occasion:
    """Return the occasion of a schedule that comes on time."""
    assert row.next_ms is not None

    def begin(agent: AgentRow) -> NewRun:
        return a_run(
            session_id=row.session_id or an_id("ses"),
            session_is_new=row.session_id is None,
            agent_id=agent.id,
            agent_version=agent.version,
            user=row.user,
        )

    occasion = Occasion(row, row.next_ms, row.next_ms, row.next_ms + HOUR_MS, begin)
    return replace(occasion, **changes)
