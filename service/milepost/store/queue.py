"""Which worker holds which run: claims, leases, and what becomes of a dead worker's runs.

Only the database's clock judges a lease. A worker's id is never used again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import orjson
from sqlalchemy import (
    ColumnElement,
    and_,
    case,
    exists,
    func,
    insert,
    null,
    or_,
    select,
    union_all,
    update,
)

from milepost.core.codec import encode
from milepost.core.decide import CRASHES_MAX
from milepost.core.errors import FencedError
from milepost.core.events import (
    MessageCompleted,
    RunResumed,
    RunRetried,
    RunStarted,
    ToolCallCompleted,
    ToolCallFailed,
)
from milepost.store import log, outbox, schema
from milepost.store.dialect import (
    among,
    in_reach,
    now_ms,
    number,
    reach,
    rows,
    rows_of,
    text,
    word,
    words,
)
from milepost.store.hurry import hurrying
from milepost.store.migrations import newest
from milepost.store.records import Claim, LogEntry
from milepost.store.work import Call, Row, Statement, Work

CLAIM_MAX = 10
SWEEP_MAX = 100
CRASH_BACKOFF_MS = (0, 1_000, 5_000, 25_000)
# Of runs that crash their worker once more, each waits for an operator.
LAST_TRY = CRASHES_MAX - 1
ANY_CRASHES = 1_000_000
APART_MS = 600_000
# What sets a run's count of crashes back, as in its state.
PROGRESS = frozenset(
    event.type for event in (MessageCompleted, ToolCallCompleted, ToolCallFailed, RunRetried)
)

_W = schema.workers.c
_R = schema.runs.c
_E = schema.events.c

_REGISTER = Statement(
    insert(schema.workers).values(
        id=text("worker"),
        until_ms=now_ms() + number("ttl_ms"),
        dead=0,
        started_ms=now_ms(),
        knows=text("knows"),
    )
)
_RENEW = Statement(
    update(schema.workers)
    .where(_W.id == text("worker"), _W.dead == 0)
    .values(until_ms=now_ms() + number("ttl_ms"))
    .returning(_W.id)
)
_DISMISS = Statement(update(schema.workers).where(_W.id == text("worker")).values(dead=1))
_DISMISS_OTHERS = Statement(
    update(schema.workers).where(_W.id != text("worker"), _W.dead == 0).values(dead=1)
)

_alive = exists().where(_W.id == text("worker"), _W.dead == 0, _W.until_ms > now_ms())


_TAKEN = (
    _R.id,
    _R.tenant,
    _R.session_id,
    _R.agent_id,
    _R.agent_version,
    _R.user_id,
    _R.epoch,
    _R.inbox_seq,
    _R.metadata,
    _R.trace_parent,
    _R.resume_why,
    _R.scopes,
    _R.lane,
    select(schema.sessions.c.turns).where(schema.sessions.c.id == _R.session_id).scalar_subquery(),
    _R.made_by,
    _R.crashes,
)

# Nobody waits for ever for a worker that has none in hand beside which it may not be.
_may_come_along = or_(_R.crashes <= number("crashes_max"), _R.run_at_ms <= now_ms() - APART_MS)


def _claim(*narrowed: ColumnElement[bool], fair: bool) -> Statement:
    """Return the claim; the fair one ignores lanes, so that the low ones never starve.

    Of what was picked, those that have crashed come first, and one that is on its last try comes
    where there is none of them: whoever has lost a worker for the first time is not kept waiting.
    """
    order = (_R.run_at_ms, _R.id) if fair else (_R.lane.desc(), _R.run_at_ms, _R.id)
    # A CTE, never `id IN (SELECT ... LIMIT n)`: that may run twice and lock more than n rows.
    pick = (
        select(_R.id, _R.crashes)
        .where(
            _R.status == word("queued"),
            _R.run_at_ms <= now_ms(),
            _alive,
            _may_come_along,
            *narrowed,
        )
        .order_by(*order)
        .limit(number("limit"))
        .with_for_update(skip_locked=True)
        .cte("pick")
    )
    alone = select(func.min(pick.c.id)).where(pick.c.crashes >= LAST_TRY).scalar_subquery()
    have_crashed = select(pick.c.id).where(pick.c.crashes.between(1, LAST_TRY - 1))
    together = select(pick.c.id).where(
        or_(pick.c.crashes < LAST_TRY, and_(pick.c.id == alone, ~have_crashed.exists()))
    )
    return Statement(
        update(schema.runs)
        # The lock guards the status; asked for again, it would lead over all of the queue's index.
        .where(_R.id.in_(together))
        .values(status="running", owner=text("worker"), epoch=_R.epoch + 1)
        .returning(*_TAKEN)
    )


_wanted = rows("wanted", "run_id")
_is_wanted = among(_R.id, select(_wanted.c.run_id).scalar_subquery())

_CLAIM = _claim(fair=False)
_CLAIM_FAIR = _claim(fair=True)
_CLAIM_SPECIFIC = _claim(_is_wanted, fair=True)
_CLAIM_OVERDUE = _claim(_R.run_at_ms <= now_ms() - number("ready_for_ms"), fair=True)

_claimed = rows(
    "claimed", "run_id", "tenant", "append_id", "type", "data", numbers=("epoch", "time_ms")
)
_later = schema.events.alias("later")
_BEGIN = Statement(
    insert(schema.events)
    .from_select(
        ["run_id", "seq", "tenant", "epoch", "append_id", "type", "time_ms", "data"],
        select(
            _claimed.c.run_id,
            select(func.coalesce(func.max(_later.c.seq), 0) + 1)
            .where(_later.c.run_id == _claimed.c.run_id, in_reach(_later.c.run_id))
            .scalar_subquery(),
            _claimed.c.tenant,
            _claimed.c.epoch,
            _claimed.c.append_id,
            _claimed.c.type,
            _claimed.c.time_ms,
            _claimed.c.data,
        ),
    )
    .returning(_E.run_id, _E.seq)
)

_owned = (_R.owner == text("worker"), _R.status == word("running"))
_CLAIMED = Statement(
    select(*_TAKEN, _E.seq).where(
        *_owned,
        _E.run_id == _R.id,
        _E.epoch == _R.epoch,
        _E.append_id == text("append_id"),
    )
)
_OWNED = Statement(select(_R.tenant, _R.id, _R.epoch).where(*_owned))

_expired = (
    select(_W.id)
    .where(_W.dead == 0, _W.until_ms <= now_ms())
    .limit(SWEEP_MAX)
    .with_for_update(skip_locked=True)
    .cte("expired")
)
_DECLARE_DEAD = Statement(
    update(schema.workers)
    .where(_W.id.in_(select(_expired.c.id)), _W.dead == 0)
    .values(dead=1)
    .returning(_W.id)
)

# A crash counts only if nothing was achieved since the claim: of the epoch's events, these say so.
_achieved = exists().where(
    _E.run_id == _R.id, _E.epoch == _R.epoch, _E.type.in_(words(tuple(sorted(PROGRESS))))
)
_crashes = case((_achieved, 0), else_=_R.crashes)


def _backoff(crashes: ColumnElement[int]) -> ColumnElement[int]:
    """Return how long a run rests that crashed so often before without achieving anything."""
    return case(
        *((crashes == count, wait_ms) for count, wait_ms in enumerate(CRASH_BACKOFF_MS[:-1])),
        else_=CRASH_BACKOFF_MS[-1],
    )


_holder_lives = exists().where(_W.id == _R.owner, _W.dead == 0)
_stranded = (
    select(_R.id, _crashes.label("crashes"))
    .where(_R.status == word("running"), ~_holder_lives)
    .limit(SWEEP_MAX)
    .with_for_update(skip_locked=True, of=schema.runs)
    .cte("stranded")
)
_REQUEUE = Statement(
    update(schema.runs)
    .where(_R.id == _stranded.c.id)
    .values(
        status="queued",
        owner=null(),
        crashes=_stranded.c.crashes + 1,
        resume_why="crash",
        run_at_ms=now_ms() + _backoff(_stranded.c.crashes),
    )
    .returning(_R.id)
)
_GIVE_UP = Statement(
    update(schema.runs)
    .where(
        _R.id == text("run_id"),
        _R.tenant == text("tenant"),
        _R.epoch == number("epoch"),
        _R.owner == text("worker"),
        _R.status == word("running"),
    )
    .values(
        status="queued",
        owner=null(),
        crashes=_crashes + case((text("why") == word("crash"), 1), else_=0),
        resume_why=text("why"),
        run_at_ms=now_ms() + _backoff(_crashes),
    )
    .returning(_R.id)
)


def register(worker: str, ttl_ms: int) -> Work[None]:
    """Make a new worker known, its lease running, and the newest schema that its code knows."""
    yield _REGISTER(worker=worker, ttl_ms=ttl_ms, knows=newest())


def renew(worker: str, ttl_ms: int) -> Work[None]:
    """Extend the worker's lease; raise `FencedError` if it has been declared dead."""
    renewed = yield _RENEW(worker=worker, ttl_ms=ttl_ms)
    if not renewed:
        raise FencedError(f"worker {worker} was declared dead; go on under a new id")


def dismiss(worker: str) -> Work[None]:
    """Let a worker go: its lease is over."""
    yield _DISMISS(worker=worker)


def dismiss_others(worker: str) -> Work[None]:
    """Declare every other worker dead: the holder of an embedded database's lock is alone."""
    yield _DISMISS_OTHERS(worker=worker)


def bearable(crashes: int) -> int:
    """Return how often a run may have crashed that is driven beside one with so many crashes.

    Nobody can tell which run ended a worker. One that is on its last try is beside none that has
    crashed before, lest it waits for an operator because of that one.
    """
    if crashes == 0:
        return ANY_CRASHES
    return LAST_TRY - 1 if crashes < LAST_TRY else 0


def claim(
    worker: str,
    limit: int,
    append_id: str,
    time_ms: int,
    *,
    crashes_max: int = ANY_CRASHES,
    fair: bool = False,
) -> Work[list[Claim]]:
    """Take up to `limit` runs that are ready, for a worker whose lease stands.

    None has crashed more often than `crashes_max`, unless it was ready for long: see `bearable`.

    The claim is itself an event, and its seq is the head from which the worker may append: a
    worker that read the newest log later could adopt a successor's head and pass for it.
    """
    statement = _CLAIM_FAIR if fair else _CLAIM
    ready = statement(worker=worker, limit=limit, crashes_max=crashes_max)
    return (yield from _take(ready, worker, append_id, time_ms))


def claim_specific(
    worker: str,
    run_ids: Sequence[str],
    append_id: str,
    time_ms: int,
    *,
    crashes_max: int = ANY_CRASHES,
) -> Work[list[Claim]]:
    """Take those of these runs that are ready, as `claim` would; the others are not for now."""
    wanted = rows_of([{"run_id": run_id} for run_id in run_ids])
    ready = _CLAIM_SPECIFIC(
        worker=worker, limit=len(run_ids), crashes_max=crashes_max, wanted=wanted
    )
    return (yield from _take(ready, worker, append_id, time_ms))


def claim_overdue(
    worker: str,
    limit: int,
    ready_for_ms: int,
    append_id: str,
    time_ms: int,
    *,
    crashes_max: int = ANY_CRASHES,
) -> Work[list[Claim]]:
    """Take up to `limit` runs that nobody took since they were ready, which is so long ago."""
    ready = _CLAIM_OVERDUE(
        worker=worker, limit=limit, crashes_max=crashes_max, ready_for_ms=ready_for_ms
    )
    return (yield from _take(ready, worker, append_id, time_ms))


def _take(ready: Call, worker: str, append_id: str, time_ms: int) -> Work[list[Claim]]:
    """Take what is ready. All others pass it over meanwhile: nobody may be frozen here for long."""
    _, taken = yield hurrying(), ready
    return (yield from _begin(taken, worker, append_id, time_ms)) if taken else []


def _begin(taken: Sequence[Row], worker: str, append_id: str, time_ms: int) -> Work[list[Claim]]:
    """Write that runs were taken, and return what their worker needs."""
    begun = [_begun(row, worker, append_id, time_ms) for row in taken]
    fresh = [row[0] for row in taken if row[6] == 1]
    begin = _BEGIN(claimed=orjson.dumps(begun).decode(), **reach(row[0] for row in taken))
    heads, _, found = yield (begin, outbox.put_last(begun), log.read_together(fresh))
    logs: dict[str, list[LogEntry]] = {run_id: [] for run_id in fresh}
    for run_id, *entry in found:
        logs[run_id].append(LogEntry(*entry))
    return _claims(taken, dict(heads), logs)


def claimed(worker: str, append_id: str) -> Work[list[Claim]]:
    """Return what landed of the worker's claim of this id, whose answer was lost."""
    taken = yield _CLAIMED(worker=worker, append_id=append_id)
    return _claims(taken, {row[0]: row[-1] for row in taken}, {})


def owned(worker: str) -> Work[list[tuple[str, str, int]]]:
    """Return the tenant, id and epoch of each run that is the worker's."""
    found = yield _OWNED(worker=worker)
    return [(tenant, run_id, epoch) for tenant, run_id, epoch in found]


def _begun(row: Row, worker: str, append_id: str, time_ms: int) -> dict[str, str | int]:
    epoch, why = row[6], row[10]
    event = RunStarted(epoch, worker) if epoch == 1 else RunResumed(epoch, worker, why or "crash")
    return {
        "run_id": row[0],
        "tenant": row[1],
        "append_id": append_id,
        "type": event.type,
        "data": encode(event).decode(),
        "epoch": epoch,
        "time_ms": time_ms,
    }


def _claims(
    taken: Sequence[Row], heads: dict[str, int], logs: dict[str, list[LogEntry]]
) -> list[Claim]:
    return [
        Claim(
            run_id=row[0],
            tenant=row[1],
            session_id=row[2],
            agent_id=row[3],
            agent_version=row[4],
            user=row[5],
            epoch=row[6],
            head=heads[row[0]],
            inbox_seq=row[7],
            turns=row[13],
            metadata=row[8],
            trace_parent=row[9],
            entries=tuple(logs[row[0]]) if row[0] in logs else None,
            scopes=row[11],
            lane=row[12],
            made_by=row[14],
            crashes=row[15],
        )
        for row in taken
    ]


def sweep() -> Work[list[str]]:
    """Declare lapsed workers dead and queue the runs of the dead; return those runs.

    Other sweeps pass those over meanwhile: nobody may be frozen here for long.
    """
    yield hurrying(), _DECLARE_DEAD()
    stranded = yield _REQUEUE()
    return [run_id for (run_id,) in stranded]


def give_up(
    tenant: str, run_id: str, epoch: int, worker: str, why: Literal["crash", "outage"]
) -> Work[bool]:
    """Queue a run again whose driving failed, if it is still this worker's under this epoch.

    What the database's absence broke off does not count against the run.
    """
    given = yield _GIVE_UP(tenant=tenant, run_id=run_id, epoch=epoch, worker=worker, why=why)
    return bool(given)


_READY = Statement(
    select(_R.id, _R.epoch, _R.lane, now_ms() - _R.run_at_ms)
    .where(_R.status == word("queued"), _R.run_at_ms <= now_ms())
    .order_by(_R.lane.desc(), _R.run_at_ms, _R.id)
    .limit(number("limit"))
)
_SEAT = Statement(
    select(
        func.count(), func.coalesce(func.sum(case((_W.id < text("worker"), 1), else_=0)), 0)
    ).where(_W.dead == 0, _W.until_ms > now_ms())
)
_STANDING = Statement(
    select(_R.status, _R.run_at_ms - now_ms(), _R.wake_at_ms).where(_R.id == text("run_id"))
)


@dataclass(frozen=True, slots=True)
class ReadyRun:
    """A run that waits for a worker. Who claims it counts its epoch up: no two waits share one."""

    id: str
    epoch: int
    lane: int
    ready_for_ms: int


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a worker stands among those that live: so many there are, so many stand before it."""

    living: int
    before: int


@dataclass(frozen=True, slots=True)
class Standing:
    """How a run stands: it may be claimed after `ready_in_ms`, if it is queued at all."""

    status: str
    ready_in_ms: int
    wake_at_ms: int | None

    @property
    def over(self) -> bool:
        """Say whether it has ended."""
        return self.status in schema.ENDED


def ready(limit: int) -> Work[list[ReadyRun]]:
    """Return runs of all tenants that are ready, in the order of the claim."""
    found = yield _READY(limit=limit)
    return [ReadyRun(*row) for row in found]


def seat(worker: str) -> Work[Seat]:
    """Return the worker's seat, by which those that live share out what one of them has to do."""
    ((living, before),) = yield _SEAT(worker=worker)
    return Seat(int(living), int(before))


def standing(run_id: str) -> Work[Standing | None]:
    """Return how a run of whatever tenant stands, None if there is none such any more."""
    found = yield _STANDING(run_id=run_id)
    return Standing(*found[0]) if found else None


def _load(*narrowed: ColumnElement[bool]) -> Statement:
    """Return the count of runs by status.

    Each branch has a partial index of its own; in one they would read every run that ever was.
    """
    return Statement(
        union_all(
            select(_R.status, func.count())
            .where(_R.status.in_(words(schema.ACTIVE)), *narrowed)
            .group_by(_R.status),
            select(word("blocked"), func.count()).where(_R.status == word("blocked"), *narrowed),
            select(word("scheduled"), func.count()).where(
                _R.status == word("scheduled"), _R.wake_at_ms.is_not(None), *narrowed
            ),
        )
    )


_LOAD = _load()
_LOAD_OF = _load(_R.tenant == text("tenant"))


def load() -> Work[dict[str, int]]:
    """Return how many runs of all tenants are in each status that is not an end."""
    counted = yield _LOAD()
    return {status: count for status, count in counted if count}


def load_of(tenant: str) -> Work[dict[str, int]]:
    """Return how many of the tenant's runs are in each status that is not an end."""
    counted = yield _LOAD_OF(tenant=tenant)
    return {status: count for status, count in counted if count}
