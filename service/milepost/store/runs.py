"""Runs from the outside: creating, finding, and what the API may do to one that no worker holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import case, exists, func, insert, null, or_, select, true, union_all, update

from milepost.core.errors import ConflictError, NotFoundError, OverloadedError
from milepost.store import idempotency, log, schema
from milepost.store.dialect import (
    among,
    insert_new,
    now_ms,
    number,
    rows,
    rows_of,
    text,
    word,
    words,
)
from milepost.store.idempotency import Asked
from milepost.store.listing import Query, paged, where_between, where_equal, where_labelled
from milepost.store.records import Entry, NewRun, Page, RunFilter, UsageRow
from milepost.store.work import Call, Statement, Work

_R = schema.runs.c
_S = schema.sessions.c


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as the table has it; JSON columns are still encoded."""

    id: str
    tenant: str
    session_id: str
    agent_id: str
    agent: str
    agent_version: int
    user: str | None
    status: str
    epoch: int
    lane: int
    created_ms: int
    ended_ms: int | None
    deadline_ms: int | None
    run_at_ms: int
    metadata: str
    trace_parent: str | None
    waiting_for: str | None
    outcome: str | None
    cancel_ms: int | None
    scopes: str = "[]"
    parent_run_id: str | None = None
    parent_call_id: str | None = None


COLUMNS = (
    _R.id, _R.tenant, _R.session_id, _R.agent_id, _R.agent, _R.agent_version, _R.user_id,
    _R.status, _R.epoch, _R.lane, _R.created_ms, _R.ended_ms, _R.deadline_ms, _R.run_at_ms,
    _R.metadata, _R.trace_parent, _R.waiting_for, _R.outcome, _R.cancel_ms, _R.scopes,
    _R.parent_run_id, _R.parent_call_id,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Created:
    """What became of a request for a run: its id and status, and whether it was there before."""

    run_id: str
    status: str
    replayed: bool = False


def new_row(run: NewRun, status: str) -> RunRow:
    """Return the run as the table has it once it was queued, without a look."""
    return RunRow(
        id=run.id,
        tenant=run.tenant,
        session_id=run.session_id,
        agent_id=run.agent_id,
        agent=run.agent,
        agent_version=run.agent_version,
        user=run.user,
        status=status,
        epoch=0,
        lane=run.lane,
        created_ms=run.created_ms,
        ended_ms=None,
        deadline_ms=run.deadline_ms,
        run_at_ms=run.created_ms if run.scheduled_ms is None else run.scheduled_ms,
        metadata=run.metadata,
        trace_parent=run.trace_parent,
        waiting_for=None,
        outcome=None,
        cancel_ms=None,
        scopes=run.scopes,
        parent_run_id=run.parent_run_id,
        parent_call_id=run.parent_call_id,
    )


_sessions = rows("sessions_new", "id", "tenant", "user_id", numbers=("now_ms",))
_ADD_SESSIONS = Statement(
    insert(schema.sessions).from_select(
        ["id", "tenant", "user_id", "created_ms", "updated_ms"],
        select(
            _sessions.c.id,
            _sessions.c.tenant,
            _sessions.c.user_id,
            _sessions.c.now_ms,
            _sessions.c.now_ms,
        ),
    )
)
_joined = rows("joined", "id", "tenant", numbers=("now_ms",))
_LOCK_SESSIONS = Statement(
    select(_S.id, _S.tenant)
    .where(_S.id.in_(select(_joined.c.id)))
    .order_by(_S.id)
    .with_for_update()
)

_new = rows(
    "new",
    "id", "tenant", "session_id", "agent_id", "agent", "user_id", "metadata", "trace_parent",
    "scopes", "parent_run_id", "parent_call_id",
    numbers=("agent_version", "lane", "created_ms", "scheduled_ms", "deadline_ms"),
)  # fmt: skip
_active = schema.runs.alias("active")
_session_is_busy = exists().where(
    _active.c.session_id == _new.c.session_id,
    _active.c.turn.is_(None),  # has not ended: the index knows, however long the session is
    _active.c.status.in_(words((*schema.ACTIVE, "blocked"))),
)
_ADD_RUNS = Statement(
    insert(schema.runs)
    .from_select(
        [
            "id", "tenant", "session_id", "agent_id", "agent", "agent_version", "user_id",
            "status", "lane", "run_at_ms", "wake_at_ms", "deadline_ms", "created_ms", "metadata",
            "trace_parent", "scopes", "parent_run_id", "parent_call_id",
        ],
        select(
            _new.c.id,
            _new.c.tenant,
            _new.c.session_id,
            _new.c.agent_id,
            _new.c.agent,
            _new.c.agent_version,
            _new.c.user_id,
            case(
                (_new.c.scheduled_ms.is_not(None), word("scheduled")),
                (_session_is_busy, word("blocked")),
                else_=word("queued"),
            ),
            _new.c.lane,
            func.coalesce(_new.c.scheduled_ms, now_ms()),
            func.coalesce(_new.c.scheduled_ms, _new.c.deadline_ms),
            _new.c.deadline_ms,
            _new.c.created_ms,
            _new.c.metadata,
            _new.c.trace_parent,
            _new.c.scopes,
            _new.c.parent_run_id,
            _new.c.parent_call_id,
        ),
    )
    .returning(_R.id, _R.status)
)  # fmt: skip

_first = rows(
    "first", "run_id", "tenant", "append_id", "type", "data", numbers=("seq", "epoch", "time_ms")
)
_names = [column.name for column in schema.events.c]
_entries = select(*(_first.c[name] for name in _names))
_ADD_EVENTS = Statement(insert(schema.events).from_select(_names, _entries))
# One look for each partial index: there is none for all that is pending.
_queue = (
    union_all(
        select(_R.id).where(_R.status == word("queued")),
        select(_R.id).where(_R.status == word("blocked")),
        select(_R.id).where(_R.status == word("scheduled"), _R.wake_at_ms.is_not(None)),
    )
    .limit(number("limit"))
    .subquery()
)
_QUEUE_LENGTH = Statement(select(func.count()).select_from(_queue))

_A = schema.agents.c
_remembered = rows("remembered", "id")
_AGENTS = Statement(
    select(_A.id, _A.tenant, _A.version).where(
        among(_A.id, select(_remembered.c.id).scalar_subquery()), _A.deleted_ms.is_(None)
    )
)


def create(
    wanted: Sequence[NewRun], *, queue_max: int | None = None
) -> Work[list[Created | Exception]]:
    """Queue runs, each in its session's turn; return what became of each, in order.

    A run whose session is unknown, whose remembered agent has moved, or whose idempotency key was
    used, is answered in its place and leaves no trace. No two of `wanted` may share a session or
    an idempotency key. Raises `OverloadedError` beyond `queue_max`; who asks again for what was
    made before is not concerned.
    """
    outcomes: dict[str, Created | Exception] = {}
    if any(run.request for run in wanted):
        yield from _recall(wanted, outcomes)
    if fresh := [run for run in wanted if run.id not in outcomes]:
        yield from _admit(fresh, outcomes, queue_max, alone=len(wanted) == 1)
    joined = [run for run in wanted if not run.session_is_new and run.id not in outcomes]
    if joined:
        yield from _join(joined, outcomes)
    accepted = [run for run in wanted if run.id not in outcomes]
    if accepted:
        yield from _add(accepted, outcomes)
    return [outcomes[run.id] for run in wanted]


def _recall(wanted: Sequence[NewRun], outcomes: dict[str, Created | Exception]) -> Work[None]:
    """Answer from memory what was asked before."""
    answers = yield from idempotency.recall_all([_asked(run) for run in wanted if run.request])
    for run_id, answer in answers.items():
        if isinstance(answer, str):
            outcomes[run_id] = Created(answer, "", replayed=True)
        else:
            outcomes[run_id] = answer


def _admit(
    fresh: Sequence[NewRun],
    outcomes: dict[str, Created | Exception],
    queue_max: int | None,
    *,
    alone: bool,
) -> Work[None]:
    """Refuse runs whose agent is no longer as remembered, and all that the queue cannot hold."""
    calls: dict[str, Call] = {}
    if remembered := {run.agent_id for run in fresh if run.agent_is_remembered}:
        calls["agents"] = _AGENTS(remembered=rows_of({"id": each} for each in remembered))
    if queue_max is not None:
        calls["length"] = _QUEUE_LENGTH(limit=queue_max + 1)
    if not calls:
        return
    answers = dict(zip(calls, (yield tuple(calls.values())), strict=True))
    standing = set(answers.get("agents", ()))
    for run in fresh:
        version = (run.agent_id, run.tenant, run.agent_version)
        if run.agent_is_remembered and version not in standing:
            outcomes[run.id] = AgentMovedError(
                f"agent {run.agent_id} is gone, or not at version {run.agent_version} any more;"
                " look it up again"
            )
    if queue_max is not None:
        ((length,),) = answers["length"]
        more = sum(run.id not in outcomes for run in fresh)
        _require_room(length, more, queue_max, alone=alone)


def queued(limit: int) -> Work[int]:
    """Return how many runs are queued, at most `limit`."""
    ((length,),) = yield _QUEUE_LENGTH(limit=limit)
    return int(length)


def _require_room(length: int, more: int, queue_max: int, *, alone: bool) -> None:
    if length + more <= queue_max or not more:
        return
    if not alone:
        raise log.GroupSplitError("the queue is nearly full; admit one at a time")
    raise OverloadedError(f"{length} runs are queued, and {queue_max} may be; come back")


def _join(joined: Sequence[NewRun], outcomes: dict[str, Created | Exception]) -> Work[None]:
    """Lock the sessions that are there already, so that a run that ends sees those behind it."""
    batch = rows_of(
        {"id": run.session_id, "tenant": run.tenant, "now_ms": run.created_ms} for run in joined
    )
    locked = yield _LOCK_SESSIONS(joined=batch)
    known = set(locked)
    for run in joined:
        if (run.session_id, run.tenant) not in known:
            outcomes[run.id] = session_not_found(run.session_id)


def session_not_found(session_id: str) -> NotFoundError:
    """Return the error for a session that is not there, or not this tenant's."""
    return NotFoundError(f"there is no session {session_id}", code="session_not_found")


def _add(accepted: Sequence[NewRun], outcomes: dict[str, Created | Exception]) -> Work[None]:
    sessions = [
        {
            "id": run.session_id,
            "tenant": run.tenant,
            "user_id": run.user,
            "now_ms": run.created_ms,
        }
        for run in accepted
        if run.session_is_new
    ]
    calls = [_ADD_SESSIONS(sessions_new=rows_of(sessions))] if sessions else []
    if asked := [_asked(run) for run in accepted if run.request]:
        calls.append(idempotency.remember_all(asked))
    answers = yield (
        *calls,
        _ADD_RUNS(new=rows_of(_run_row(run) for run in accepted)),
        _ADD_EVENTS(
            first=rows_of(
                _entry_row(run.id, run.tenant, run.id, epoch=0, seq=1, entry=run.queued)
                for run in accepted
            )
        ),
    )
    for run_id, status in answers[-2]:
        outcomes[run_id] = Created(run_id, status)


def _asked(run: NewRun) -> Asked:
    assert run.request is not None
    return Asked(run.tenant, run.request, run.id, run.created_ms)


def _run_row(run: NewRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "tenant": run.tenant,
        "session_id": run.session_id,
        "agent_id": run.agent_id,
        "agent": run.agent,
        "agent_version": run.agent_version,
        "user_id": run.user,
        "metadata": run.metadata,
        "trace_parent": run.trace_parent,
        "scopes": run.scopes,
        "parent_run_id": run.parent_run_id,
        "parent_call_id": run.parent_call_id,
        "lane": run.lane,
        "created_ms": run.created_ms,
        "scheduled_ms": run.scheduled_ms,
        "deadline_ms": run.deadline_ms,
    }


def _entry_row(
    run_id: str, tenant: str, append_id: str, *, epoch: int, seq: int, entry: Entry
) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "tenant": tenant,
        "append_id": append_id,
        "type": entry.type,
        "data": entry.data,
        "seq": seq,
        "epoch": epoch,
        "time_ms": entry.time_ms,
    }


_FIND = Statement(select(*COLUMNS).where(_R.id == text("run_id"), _R.tenant == text("tenant")))


def find(tenant: str, run_id: str) -> Work[RunRow]:
    """Return the run; raise `NotFoundError` if the tenant has none such."""
    found = yield _FIND(tenant=tenant, run_id=run_id)
    if not found:
        raise NotFoundError(f"there is no run {run_id}", code="run_not_found")
    return RunRow(*found[0])


def landed(run: NewRun) -> Work[Created | None]:
    """Return what became of this very run, if it is there: ids are never given twice."""
    found = yield _FIND(tenant=run.tenant, run_id=run.id)
    return Created(run.id, RunRow(*found[0]).status) if found else None


def search(tenant: str, wanted: RunFilter, page: Page) -> Work[list[RunRow]]:
    """Return the tenant's runs that match, one more than the page holds if there are more."""
    found = yield Statement(paged(matching(tenant, wanted), _R.id, page))()
    return [RunRow(*row) for row in found]


def matching(tenant: str, wanted: RunFilter) -> Query:
    """Return the query for `COLUMNS` of the tenant's runs that match."""
    query: Query = select(*COLUMNS).where(_R.tenant == tenant)
    if wanted.status == "queued":
        query = query.where(_R.status.in_(words(schema.PENDING)))
    elif wanted.status not in {None, *schema.ORDINARY}:
        # SQLite takes an index only where it finds the index's own condition.
        query = query.where(_R.status.not_in(words(schema.ORDINARY)), _R.status == wanted.status)
    else:
        query = where_equal(query, {_R.status: wanted.status})
    if wanted.agent is not None:
        query = query.where((_R.agent == wanted.agent) | (_R.agent_id == wanted.agent))
    query = where_equal(query, {_R.session_id: wanted.session_id, _R.user_id: wanted.user})
    if wanted.parent_run_id is not None:
        query = query.where(_R.parent_run_id == wanted.parent_run_id)
    query = where_between(query, _R.created_ms, wanted.created_after_ms, wanted.created_before_ms)
    return where_labelled(query, _R.metadata, wanted.metadata)


_DELIVER = Statement(
    update(schema.runs)
    .where(
        _R.id == text("run_id"),
        _R.tenant == text("tenant"),
        _R.status.not_in(words(schema.ENDED)),
    )
    .values(
        inbox_seq=_R.inbox_seq + 1,
        status=case((_R.status == word("waiting"), word("queued")), else_=_R.status),
        waiting_for=case((_R.status == word("waiting"), null()), else_=_R.waiting_for),
        resume_why=case((_R.status == word("waiting"), text("why")), else_=_R.resume_why),
        run_at_ms=case((_R.status == word("waiting"), now_ms()), else_=_R.run_at_ms),
        cancel_ms=func.coalesce(_R.cancel_ms, number("cancel_ms")),
        # Asking twice gives the worker no more time.
        wake_at_ms=case(
            (_R.cancel_ms.is_(None), func.coalesce(number("wake_at_ms"), _R.wake_at_ms)),
            else_=_R.wake_at_ms,
        ),
    )
    .returning(_R.inbox_seq, _R.status)
)
_PUT = Statement(
    insert(schema.inbox).values(
        run_id=text("run_id"),
        seq=number("seq"),
        tenant=text("tenant"),
        kind=text("kind"),
        data=text("data"),
        created_ms=number("now_ms"),
    )
)


@dataclass(frozen=True, slots=True)
class Letter:
    """A message for a run from outside; `why` is how a waiting run says that it was resumed."""

    kind: str
    data: str
    why: str
    now_ms: int
    cancel_grace_ms: int | None = None


def deliver(tenant: str, run_id: str, letter: Letter) -> Work[str | None]:
    """Put a message into the run's inbox, and queue the run if it waits; return its status then.

    None if the run is over: nobody would read it.
    """
    cancels = letter.cancel_grace_ms is not None
    moved = yield _DELIVER(
        tenant=tenant,
        run_id=run_id,
        why=letter.why,
        now_ms=letter.now_ms,
        cancel_ms=letter.now_ms if cancels else None,
        wake_at_ms=letter.now_ms + (letter.cancel_grace_ms or 0) if cancels else None,
    )
    if not moved:
        return None
    ((seq, status),) = moved
    yield _PUT(
        run_id=run_id,
        seq=seq,
        tenant=tenant,
        kind=letter.kind,
        data=letter.data,
        now_ms=letter.now_ms,
    )
    return str(status)


_STOP = Statement(
    update(schema.runs)
    .where(
        _R.id == text("run_id"),
        _R.tenant == text("tenant"),
        _R.epoch == number("epoch"),
        _R.status == text("was"),
        _R.inbox_seq == number("inbox_seen"),
    )
    .values(
        status=text("status"),
        owner=null(),
        epoch=_R.epoch + 1,
        outcome=text("outcome"),
        waiting_for=null(),
        wake_at_ms=null(),
        ended_ms=number("now_ms"),
        turn=select(_S.turns).where(_S.id == _R.session_id).scalar_subquery(),
    )
    .returning(_R.epoch)
)
# WHERE keeps SQLite from reading ON CONFLICT as a part of the FROM clause.
_ADD_LAST = Statement(
    insert_new(schema.events)
    .from_select(_names, _entries.where(true()))
    .returning(schema.events.c.seq)
)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run that no worker may go on with is to end; `head` is the end of the log it closes.

    `inbox_seen` is the last message from outside that its entries take account of, `usage` is of
    what the ending cuts off.
    """

    status: str
    outcome: str
    entries: tuple[Entry, ...]
    head: int
    inbox_seen: int = 0
    usage: tuple[UsageRow, ...] = ()


def end(row: RunRow, ending: Ending, append_id: str) -> Work[tuple[int, list[str]]]:
    """End a run from outside, fencing off whoever holds it.

    Returns the seq of the first of the ending's entries, and the runs that were set free.

    A compare-and-set on the status and epoch that `row` was read with, on the inbox and on the
    log's end; raises `StaleError` if any of them moved since.
    """
    now = ending.entries[-1].time_ms
    batch = rows_of([{"session_id": row.session_id, "tenant": row.tenant, "now_ms": now}])
    yield log.LOCK_SESSIONS(ending=batch)
    yield log.TURN_SESSIONS(ending=batch)
    stopped = yield _STOP(
        run_id=row.id,
        tenant=row.tenant,
        epoch=row.epoch,
        was=row.status,
        inbox_seen=ending.inbox_seen,
        status=ending.status,
        outcome=ending.outcome,
        now_ms=now,
    )
    if not stopped:
        raise StaleError(f"run {row.id} is no longer {row.status}, or got a message; look again")
    if (yield from log.head(row.tenant, row.id)) != ending.head:
        raise StaleError(f"run {row.id} went on behind event {ending.head}; look again")
    last = [
        _entry_row(row.id, row.tenant, append_id, epoch=stopped[0][0], seq=seq, entry=entry)
        for seq, entry in enumerate(ending.entries, start=ending.head + 1)
    ]
    added = yield _ADD_LAST(first=rows_of(last))
    if len(added) != len(last):
        raise StaleError(f"run {row.id} was being written to; look again")
    if ending.usage:
        used = [log.usage_row(row.id, row.tenant, each) for each in ending.usage]
        yield log.INSERT_USAGE(usage=rows_of(used))
    freed, _ = yield (
        log.PROMOTE(ending=batch),
        log.WITHDRAW(ended=rows_of([{"run_id": row.id, "tenant": row.tenant, "now_ms": now}])),
    )
    return ending.head + 1, [run_id for (run_id,) in freed]


class StaleError(ConflictError):
    """What was read is no longer so; read it again."""

    code = "stale"
    retryable = True


class AgentMovedError(ConflictError):
    """A remembered agent was changed or deleted since; look it up again."""

    code = "stale"
    retryable = True


_DUE = Statement(
    select(*COLUMNS)
    .where(
        _R.wake_at_ms <= number("now_ms"),
        _R.status.not_in(words(schema.ENDED)),
        # Who drives a run ends it at its deadline; it would only stand before the others here.
        or_(_R.status != word("running"), _R.cancel_ms.is_not(None)),
    )
    .order_by(_R.wake_at_ms)
    .limit(number("limit"))
)
_busy = schema.runs.alias("busy")
_PROMOTE_SCHEDULED = Statement(
    update(schema.runs)
    .where(_R.id == text("run_id"), _R.tenant == text("tenant"), _R.status == word("scheduled"))
    .values(
        status=case(
            (
                exists().where(
                    _busy.c.session_id == _R.session_id,
                    _busy.c.turn.is_(None),
                    _busy.c.status.in_(words((*schema.ACTIVE, "blocked"))),
                ),
                word("blocked"),
            ),
            else_=word("queued"),
        ),
        wake_at_ms=_R.deadline_ms,
        run_at_ms=now_ms(),
    )
    .returning(_R.status)
)


def due(now_ms: int, limit: int) -> Work[list[RunRow]]:
    """Return runs for which a time has come: to start, to expire, or to be cancelled by force."""
    found = yield _DUE(now_ms=now_ms, limit=limit)
    return [RunRow(*row) for row in found]


def start_scheduled(row: RunRow, now_ms: int) -> Work[str | None]:
    """Move a scheduled run into its session's turn; return its status, None if it moved already."""
    yield log.LOCK_SESSIONS(
        ending=rows_of([{"session_id": row.session_id, "tenant": row.tenant, "now_ms": now_ms}])
    )
    moved = yield _PROMOTE_SCHEDULED(run_id=row.id, tenant=row.tenant)
    return str(moved[0][0]) if moved else None
