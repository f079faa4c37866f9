"""Runs being made: many at once, each in its session's turn, or refused in its place."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import case, exists, func, insert, select, union_all

from milepost.core.errors import ConflictError, NotFoundError, OverloadedError
from milepost.core.frozen import dataclass
from milepost.store import audit, idempotency, log, outbox, schema
from milepost.store.dialect import (
    among,
    now_ms,
    number,
    rows,
    rows_of,
    text,
    word,
    words,
)
from milepost.store.entries import ENTRIES, NAMES, entry_row
from milepost.store.idempotency import Asked
from milepost.store.records import Entry, NewRun
from milepost.store.work import Call, Statement, Work

_R = schema.runs.c
_S = schema.sessions.c


@dataclass(frozen=True, slots=True)
class Created:
    """What became of a request for a run: its id and status, and whether it was there before."""

    run_id: str
    status: str
    replayed: bool = False


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
    "scopes", "parent_run_id", "parent_call_id", "forked_from",
    "made_by",
    numbers=("agent_version", "lane", "created_ms", "scheduled_ms", "deadline_ms", "forked_seq"),
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
            "trace_parent", "scopes", "parent_run_id", "parent_call_id", "forked_from",
            "forked_seq", "made_by",
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
            _new.c.forked_from,
            _new.c.forked_seq,
            _new.c.made_by,
        ),
    )
    .returning(_R.id, _R.status)
)  # fmt: skip

_ADD_EVENTS = Statement(insert(schema.events).from_select(NAMES, ENTRIES))
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
_STATUS = Statement(select(_R.status).where(_R.id == text("run_id"), _R.tenant == text("tenant")))


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
    calls += [audit.adding(run.fork.act) for run in accepted if run.fork]
    told = (outbox.event_rows(run.tenant, run.id, 1, _entries(run)) for run in accepted)
    calls.append(outbox.put([row for each in told for row in each]))
    answers = yield (
        *calls,
        _ADD_RUNS(new=rows_of(_run_row(run) for run in accepted)),
        _ADD_EVENTS(
            first=rows_of(
                entry_row(run.id, run.tenant, run.id, epoch=0, seq=seq, entry=entry)
                for run in accepted
                for seq, entry in enumerate(_entries(run), start=1)
            )
        ),
    )
    for run_id, status in answers[-2]:
        outcomes[run_id] = Created(run_id, status)


def _entries(run: NewRun) -> list[Entry]:
    """Return what the run's log begins with."""
    return [run.queued, run.fork.forked] if run.fork else [run.queued]


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
        "made_by": run.made_by,
        "parent_run_id": run.parent_run_id,
        "parent_call_id": run.parent_call_id,
        "forked_from": run.fork.run_id if run.fork else None,
        "forked_seq": run.fork.at_seq if run.fork else None,
        "lane": run.lane,
        "created_ms": run.created_ms,
        "scheduled_ms": run.scheduled_ms,
        "deadline_ms": run.deadline_ms,
    }


def landed(run: NewRun) -> Work[Created | None]:
    """Return what became of this very run, if it is there: ids are never given twice."""
    found = yield _STATUS(tenant=run.tenant, run_id=run.id)
    return Created(run.id, str(found[0][0])) if found else None


class AgentMovedError(ConflictError):
    """A remembered agent was changed or deleted since; look it up again."""

    code = "stale"
    retryable = True
