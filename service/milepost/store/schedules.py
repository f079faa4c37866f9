"""Schedules: runs that come again and again, and what became of the last one.

A schedule that comes is moved on in the transaction that makes its run, and only by whoever found
it where it stands: of several processes one makes the run, and a crash leaves both or neither.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
from sqlalchemy import case, func, insert, select, update
from sqlalchemy import delete as delete_from

from milepost.core.errors import ConflictError, MilepostError, NotFoundError
from milepost.store import agents, alone, erasures, keys, new_runs, schema
from milepost.store.agents import AgentRow
from milepost.store.dialect import now_ms, number, text
from milepost.store.listing import Query, paged, where_equal, where_labelled
from milepost.store.records import NewRun, Page
from milepost.store.versions import moved
from milepost.store.work import Rows, Statement, Work

SCHEDULES_MAX = 1_000

Overlap = Literal["skip", "allow"]
Result = Literal["started", "skipped", "late", "refused"]

_C = schema.schedules.c
_R = schema.runs.c


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule; JSON columns are encoded.

    `run` is what was asked for, `queued_event` what the first event of each of its runs has in
    common. `next_ms` is None while it does not come. `last` is what became of the last time, and
    `last_run_id` the last run that was made. `made_by` is who answers for its runs, with `scopes`.
    """

    id: str
    tenant: str
    name: str | None
    cron: str
    timezone: str
    overlap: Overlap
    late_max_ms: int | None
    enabled: int
    agent: str
    user: str | None
    run: str
    queued_event: str
    metadata: str
    scopes: str
    made_by: str
    next_ms: int | None
    last: str | None
    last_run_id: str | None
    version: int
    created_ms: int
    updated_ms: int

    @property
    def session_id(self) -> str | None:
        """In which session its runs are; None if each begins one."""
        named: str | None = orjson.loads(self.run)["session_id"]
        return named

    @property
    def follows_session(self) -> bool:
        """Say whether its runs are for the user of their session, whoever that is."""
        may_act_for_others = keys.may_act_for_others(orjson.loads(self.scopes))
        return self.user is None and self.session_id is not None and may_act_for_others

    @property
    def timing(self) -> tuple[int, str, str]:
        """What its next time follows from."""
        return self.enabled, self.cron, self.timezone


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    """Which schedules a search is after; None means any."""

    enabled: bool | None = None
    agent: str | None = None
    user: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Due:
    """A schedule that comes, and in how long: what there is to know before its time is there."""

    tenant: str
    id: str
    next_ms: int
    now_ms: int

    @property
    def in_ms(self) -> int:
        """How long it is until its time; it is over once this is not positive."""
        return self.next_ms - self.now_ms


@dataclass(frozen=True, slots=True)
class Occasion:
    """A schedule whose time has come: for which time, and when it comes next.

    `begin` makes the run, of the agent as it is.
    """

    row: ScheduleRow
    for_ms: int
    now_ms: int
    next_ms: int | None
    begin: Callable[[AgentRow], NewRun]


@dataclass(frozen=True, slots=True)
class Came:
    """What became of a time: a run where it is `started`, else why there is none."""

    result: Result
    run: NewRun | None = None
    code: str | None = None
    detail: str | None = None


_COLUMNS = tuple(_C)
_own = _C.tenant == text("tenant")
_one = (_C.id == text("schedule_id")) & _own
_edit: dict[str, Any] = {
    "name": text("name"),
    "cron": text("cron"),
    "timezone": text("timezone"),
    "overlap": text("overlap"),
    "late_max_ms": number("late_max_ms"),
    "enabled": number("enabled"),
    "agent": text("agent"),
    "user_id": text("user"),
    "run": text("run"),
    "queued_event": text("queued_event"),
    "metadata": text("metadata"),
    "scopes": text("scopes"),
    "made_by": text("made_by"),
}
_edit_of = ("user", *(name for name in _edit if name != "user_id"))
_CREATE = Statement(
    insert(schema.schedules).values(
        id=text("id"),
        tenant=text("tenant"),
        next_ms=number("next_ms"),
        created_ms=number("created_ms"),
        updated_ms=number("created_ms"),
        **_edit,
    )
)
_there = select(_C.id).where(_own).limit(SCHEDULES_MAX).subquery()
_COUNT = Statement(select(func.count()).select_from(_there))
_FIND = Statement(select(*_COLUMNS).where(_one))
_expected = number("expected").is_(None) | (_C.version == number("expected"))
_CHANGE = Statement(
    update(schema.schedules)
    .where(_one, _expected)
    .values(
        version=_C.version + 1,
        updated_ms=number("now_ms"),
        # It may have come since it was read: where it stands is known here alone.
        next_ms=case((number("retimed") == 1, number("next_ms")), else_=_C.next_ms),
        **_edit,
    )
    .returning(*_COLUMNS)
)
_DELETE = Statement(delete_from(schema.schedules).where(_one, _expected).returning(_C.id))
_NOW = Statement(select(now_ms()))
# Looked at once: what may be another with each row, no index is looked through for.
_now = select(now_ms()).scalar_subquery()
_DUE = Statement(
    select(_C.tenant, _C.id, _C.next_ms, _now)
    .where(_C.next_ms.is_not(None), _C.next_ms <= _now + number("within_ms"))
    .order_by(_C.next_ms, _C.id)
    .limit(number("limit"))
)
_STILL_DUE = Statement(select(*_COLUMNS).where(_one, _C.next_ms == number("due_ms")))
_MOVE_ON = Statement(
    update(schema.schedules)
    .where(_one, _C.next_ms == number("due_ms"), _C.version == number("version"))
    .values(next_ms=number("next_ms"))
    .returning(_C.id)
)
_KEEP = Statement(
    update(schema.schedules)
    .where(_one)
    .values(last=text("last"), last_run_id=func.coalesce(text("run_id"), _C.last_run_id))
)
_STATUS = Statement(select(_R.status).where(_R.id == text("run_id"), _R.tenant == text("tenant")))


def create(row: ScheduleRow) -> Work[ScheduleRow]:
    """Keep a schedule.

    Raises `ConflictError` if the tenant has too many, `NotFoundError` without such an agent, and
    `UserBeingErasedError` if its runs were for such a user.
    """
    yield from alone.counting(row.tenant, "schedules")
    yield from erasures.require_none(row.tenant, row.user)
    ((there,),) = yield _COUNT(tenant=row.tenant)
    if there >= SCHEDULES_MAX:
        raise ConflictError(
            f"there are {there} schedules, and {SCHEDULES_MAX} may be; delete one first",
            code="too_many_schedules",
        )
    yield from agents.find(row.tenant, row.agent)
    yield _CREATE(**_kept(row, "id", "tenant", "next_ms", "created_ms", *_edit_of))
    return row


def find(tenant: str, schedule_id: str) -> Work[ScheduleRow]:
    """Return the schedule; raise `NotFoundError` if the tenant has none such."""
    found = yield _FIND(tenant=tenant, schedule_id=schedule_id)
    if not found:
        raise NotFoundError(f"there is no schedule {schedule_id}", code="schedule_not_found")
    return ScheduleRow(*found[0])


def search(tenant: str, wanted: ScheduleFilter, page: Page) -> Work[list[ScheduleRow]]:
    """Return the tenant's schedules that match, one more than the page holds if there are more."""
    query: Query = select(*_COLUMNS).where(_C.tenant == tenant)
    enabled = None if wanted.enabled is None else int(wanted.enabled)
    narrowed = {_C.enabled: enabled, _C.agent: wanted.agent, _C.user_id: wanted.user}
    query = where_labelled(where_equal(query, narrowed), _C.metadata, wanted.metadata)
    found = yield Statement(paged(query, _C.id, page))()
    return _rows(found)


def change(row: ScheduleRow, wanted: ScheduleRow, *, now_ms: int) -> Work[ScheduleRow]:
    """Let the schedule be as wanted; unless its timing changes, it comes when it would have anyway.

    Raises `ConflictError` with the code precondition_failed if it has another version by now,
    `NotFoundError` without such an agent, and `UserBeingErasedError` as `create` does.
    """
    if wanted.run != row.run:  # One whose agent is gone may be paused all the same.
        yield from agents.find(row.tenant, wanted.agent)
    changed = yield _CHANGE(
        **_kept(wanted, "tenant", "next_ms", *_edit_of),
        schedule_id=row.id,
        retimed=int(wanted.timing != row.timing),
        now_ms=now_ms,
        expected=row.version,
    )
    if not changed:
        raise moved("schedule", (yield from find(row.tenant, row.id)), row.version)
    # Behind the lock of the row, as where it comes.
    yield from erasures.require_none(row.tenant, wanted.user)
    return ScheduleRow(*changed[0])


def delete(tenant: str, schedule_id: str, *, expected_version: int | None = None) -> Work[None]:
    """Forget the schedule; its runs stay, as what they are."""
    named = {"tenant": tenant, "schedule_id": schedule_id}
    if not (yield _DELETE(**named, expected=expected_version)):
        raise moved("schedule", (yield from find(tenant, schedule_id)), expected_version)


def now() -> Work[int]:
    """Return the time by which schedules come: the database's, since there is one of it."""
    ((time_ms,),) = yield _NOW()
    return int(time_ms)


def due(within_ms: int, limit: int) -> Work[list[Due]]:
    """Return the schedules of all tenants that come within so long, the first ones first."""
    return [Due(*each) for each in (yield _DUE(within_ms=within_ms, limit=limit))]


def still_due(due: Due) -> Work[ScheduleRow | None]:
    """Return the schedule, None if it does not come at that time any more."""
    found = yield _STILL_DUE(tenant=due.tenant, schedule_id=due.id, due_ms=due.next_ms)
    return ScheduleRow(*found[0]) if found else None


def come(occasion: Occasion, *, queue_max: int) -> Work[Came | None]:
    """Let a schedule's time come; None if it has come, or the schedule is another by now.

    Raises `OverloadedError` if the queue has no room: then its time has not come yet.
    """
    row = occasion.row
    moved_on = yield _MOVE_ON(
        tenant=row.tenant,
        schedule_id=row.id,
        due_ms=row.next_ms,
        version=row.version,
        next_ms=occasion.next_ms,
    )
    if not moved_on:
        return None
    came = yield from _came(occasion, queue_max)
    yield _KEEP(
        tenant=row.tenant,
        schedule_id=row.id,
        last=_told(occasion, came),
        run_id=came.run.id if came.run else None,
    )
    return came


def _came(occasion: Occasion, queue_max: int) -> Work[Came]:
    row = occasion.row
    if row.late_max_ms is not None and occasion.now_ms - occasion.for_ms > row.late_max_ms:
        return Came("late")
    if row.overlap == "skip" and (yield from _is_active(row)):
        return Came("skipped")
    try:
        yield from keys.require_valid(row.tenant, row.made_by)
        run = occasion.begin((yield from agents.find(row.tenant, row.agent)))
    except MilepostError as error:
        return _refused(error)
    (made,) = yield from new_runs.create([run], queue_max=queue_max)
    if isinstance(made, MilepostError):
        return _refused(made)
    assert not isinstance(made, Exception), made
    return Came("started", run)


def _is_active(row: ScheduleRow) -> Work[bool]:
    """Say whether the last run of the schedule is not over; one that was erased is."""
    if row.last_run_id is None:
        return False
    found = yield _STATUS(tenant=row.tenant, run_id=row.last_run_id)
    return bool(found) and found[0][0] not in schema.ENDED


def _refused(error: MilepostError) -> Came:
    return Came("refused", code=error.code, detail=str(error))


def _told(occasion: Occasion, came: Came) -> str:
    return orjson.dumps(
        {
            "for_ms": occasion.for_ms,
            "at_ms": occasion.now_ms,
            "result": came.result,
            "run_id": came.run.id if came.run else None,
            "code": came.code,
            "detail": came.detail,
        }
    ).decode()


def _kept(row: ScheduleRow, *names: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def _rows(found: Rows) -> list[ScheduleRow]:
    return [ScheduleRow(*row) for row in found]
