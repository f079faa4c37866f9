"""Runs being made: many at once, each in its session's turn, or refused in its place."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
from sqlalchemy import BigInteger, case, func, insert, literal, select, union_all

from milepost.core.errors import ConflictError, NotFoundError, OverloadedError
from milepost.core.frozen import dataclass
from milepost.store import (
    arrivals,
    audit,
    erasures,
    idempotency,
    lines,
    log,
    outbox,
    policies,
    schema,
)
from milepost.store.dialect import (
    among,
    now_ms,
    number,
    rows,
    rows_of,
    rows_of_ids,
    text,
    word,
)
from milepost.store.entries import ENTRIES, NAMES, entry_row
from milepost.store.idempotency import Asked
from milepost.store.missing import run_not_found
from milepost.store.records import Entry, NewRun
from milepost.store.work import Call, Rows, Statement, Work

_FIRST = 1  # The place of a run that makes its session.
_R = schema.runs.c


@dataclass(frozen=True, slots=True)
class Created:
    """What became of a request for a run: its id and status, and whether it was there before.

    `queued` is how its log begins, `user` for whom it is, and `replaces` are the runs that it has
    told to stop. Of a request whose input was brought to the run under way, `run_id` is that one,
    and `steered` are the ids of its messages.
    """

    run_id: str
    status: str
    replayed: bool = False
    steered: tuple[str, ...] = ()
    queued: Entry | None = None
    replaces: tuple[str, ...] = ()
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request with a key was answered with: a run, and as which messages it was told."""

    run_id: str
    steered: tuple[str, ...] = ()

    @classmethod
    def of(cls, kept: str) -> "Answer":
        """Return the answer that `kept` stands for."""
        run_id, *steered = kept.split(" ")
        return cls(run_id, tuple(steered))

    def kept(self) -> str:
        """Return how it is written down with the key."""
        return " ".join((self.run_id, *self.steered))


_sessions = rows("sessions_new", "id", "tenant", "user_id", "kind", numbers=("now_ms",))
_ADD_SESSIONS = Statement(
    insert(schema.sessions).from_select(
        ["id", "tenant", "user_id", "kind", "created_ms", "updated_ms", "arrivals"],
        select(
            _sessions.c.id,
            _sessions.c.tenant,
            _sessions.c.user_id,
            _sessions.c.kind,
            _sessions.c.now_ms,
            _sessions.c.now_ms,
            literal(_FIRST, BigInteger, literal_execute=True),
        ),
    )
)
_new = rows(
    "new",
    "id", "tenant", "session_id", "agent_id", "agent", "user_id", "metadata", "trace_parent",
    "scopes", "parent_run_id", "parent_call_id", "forked_from",
    "made_by",
    numbers=(
        "agent_version", "lane", "created_ms", "scheduled_ms", "deadline_ms", "forked_seq", "place",
    ),
)  # fmt: skip
_ADD_RUNS = Statement(
    insert(schema.runs)
    .from_select(
        [
            "id", "tenant", "session_id", "agent_id", "agent", "agent_version", "user_id",
            "status", "lane", "run_at_ms", "wake_at_ms", "deadline_ms", "created_ms", "metadata",
            "trace_parent", "scopes", "parent_run_id", "parent_call_id", "forked_from",
            "forked_seq", "made_by", "place",
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
                (lines.is_busy(_new.c.session_id), word("blocked")),
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
            _new.c.place,
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
_followed = rows("followed", "id")
_OWNERS = Statement(
    select(schema.sessions.c.tenant, schema.sessions.c.id, schema.sessions.c.user_id).where(
        among(schema.sessions.c.id, select(_followed.c.id).scalar_subquery()),
        schema.sessions.c.user_id.is_not(None),
    )
)
_sources = rows("sources", "id")
# Whoever erases a run waits until what goes on from it is there, and is found with it.
_HOLD_SOURCES = Statement(
    select(_R.id, _R.tenant, _R.session_id)
    .where(among(_R.id, select(_sources.c.id).scalar_subquery()))
    .order_by(_R.id)
    .with_for_update(read=True, key_share=True)
)
_STATUS = Statement(select(_R.status).where(_R.id == text("run_id"), _R.tenant == text("tenant")))


def create(
    wanted: Sequence[NewRun], *, queue_max: int | None = None
) -> Work[list[Created | Exception]]:
    """Queue runs, each in its session's turn; return what became of each, in order.

    A run whose session is unknown or archived, whose remembered agent has moved, or whose
    idempotency key was used, is answered in its place and leaves no trace. No two of `wanted` may
    share a session or an idempotency key. Raises `OverloadedError` beyond `queue_max`; who asks
    again for what was made before is not concerned.
    """
    outcomes: dict[str, Created | Exception] = {}
    if any(run.request for run in wanted):
        yield from _recall(wanted, outcomes)
    if fresh := [run for run in wanted if run.id not in outcomes]:
        fresh = yield from _admit(fresh, outcomes, queue_max, alone=len(wanted) == 1)
    joined = [run for run in fresh if not run.session_is_new]
    places = (yield from _join(joined, outcomes)) if joined else {}
    forked = yield from _hold_sources([run for run in fresh if run.fork], outcomes)
    accepted = [run for run in fresh if run.id not in outcomes]
    if any(run.if_active for run in accepted):
        accepted = yield from _arrive(accepted, outcomes)
    if accepted:
        yield from _add(accepted, places, outcomes)
    for run, session_id in forked:
        yield from policies.hand_down(run.tenant, session_id, run.session_id)
    return [outcomes[run.id] for run in wanted]


def _arrive(
    accepted: Sequence[NewRun], outcomes: dict[str, Created | Exception]
) -> Work[list[NewRun]]:
    """Have runs do what they want about those that are there; return those that are made then."""
    made: list[NewRun] = []
    for run in accepted:
        if run.session_is_new or run.if_active is None:
            made.append(run)
            continue
        try:
            arrived = yield from arrivals.arrive(run)
        except arrivals.SessionBusyError as error:
            outcomes[run.id] = error
            continue
        if isinstance(arrived, NewRun):
            made.append(arrived)
        else:
            said = Answer(arrived.run_id, run.if_active.message_ids)
            outcomes[run.id] = Created(said.run_id, "", steered=said.steered)
            if run.request:
                asked = replace(_asked(run), resource_id=said.kept())
                yield idempotency.remember_all([asked])
    return made


def _recall(wanted: Sequence[NewRun], outcomes: dict[str, Created | Exception]) -> Work[None]:
    """Answer from memory what was asked before."""
    answers = yield from idempotency.recall_all([_asked(run) for run in wanted if run.request])
    for run_id, answer in answers.items():
        if isinstance(answer, str):
            earlier = Answer.of(answer)
            outcomes[run_id] = Created(earlier.run_id, "", replayed=True, steered=earlier.steered)
        else:
            outcomes[run_id] = answer


def _admit(
    fresh: Sequence[NewRun],
    outcomes: dict[str, Created | Exception],
    queue_max: int | None,
    *,
    alone: bool,
) -> Work[list[NewRun]]:
    """Refuse runs whose agent is no longer as remembered, and all that the queue cannot hold.

    Nothing is taken for a user who is being erased. Return the others, each with the user for whom
    it is.
    """
    calls = _looks(fresh, queue_max)
    if not calls:
        return list(fresh)
    answers = dict(zip(calls, (yield tuple(calls.values())), strict=True))
    for run in fresh:
        if refusal := _refusal(run, answers):
            outcomes[run.id] = refusal
    admitted = [run for run in fresh if run.id not in outcomes]
    if owners := {(tenant, each): user for tenant, each, user in answers.get("owners", ())}:
        admitted = yield from _followed_by(admitted, owners, outcomes)
    if queue_max is not None:
        ((length,),) = answers["length"]
        _require_room(length, len(admitted), queue_max, alone=alone)
    return admitted


def _looks(fresh: Sequence[NewRun], queue_max: int | None) -> dict[str, Call]:
    """Return the statements that say what there is of what these runs need."""
    calls: dict[str, Call] = {}
    if remembered := {run.agent_id for run in fresh if run.agent_is_remembered}:
        calls["agents"] = _AGENTS(remembered=rows_of_ids(remembered))
    if users := {(run.tenant, run.user) for run in fresh if run.user is not None}:
        calls["together"], calls["erased"] = erasures.looking_for(users)
    if followed := {run.session_id for run in fresh if _follows(run)}:
        calls["owners"] = _OWNERS(followed=rows_of_ids(followed))
    if queue_max is not None:
        calls["length"] = _QUEUE_LENGTH(limit=queue_max + 1)
    return calls


def _follows(run: NewRun) -> bool:
    return run.follows_session and run.user is None and not run.session_is_new


def _followed_by(
    admitted: Sequence[NewRun],
    owners: Mapping[tuple[str, str], str],
    outcomes: dict[str, Created | Exception],
) -> Work[list[NewRun]]:
    """Give runs that are for nobody to their sessions' users, but for one who is being erased."""
    given = [
        _given(run, owners.get((run.tenant, run.session_id))) if _follows(run) else run
        for run in admitted
    ]
    users = {(run.tenant, run.user) for run in given if run.user is not None}
    _, erased = yield erasures.looking_for(users)
    for run in given:
        if run.user is not None and (run.tenant, run.user) in erased:
            outcomes[run.id] = erasures.refused(run.user)
    return [run for run in given if run.id not in outcomes]


def _given(run: NewRun, user: str | None) -> NewRun:
    if user is None:
        return run
    data = orjson.dumps({**orjson.loads(run.queued.data), "user": user}).decode()
    return replace(run, user=user, queued=replace(run.queued, data=data))


def _refusal(run: NewRun, answers: Mapping[str, Rows]) -> Exception | None:
    version = (run.agent_id, run.tenant, run.agent_version)
    if run.agent_is_remembered and version not in answers["agents"]:
        return AgentMovedError(
            f"agent {run.agent_id} is gone, or not at version {run.agent_version} any more;"
            " look it up again"
        )
    if run.user is not None and (run.tenant, run.user) in answers["erased"]:
        return erasures.refused(run.user)
    return None


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


def _join(
    joined: Sequence[NewRun], outcomes: dict[str, Created | Exception]
) -> Work[dict[str, int]]:
    """Stand in the lines of sessions that are there already; return the places by session."""
    batch = rows_of({"id": run.session_id, "tenant": run.tenant} for run in joined)
    places: dict[str, int] = {}
    archived: set[str] = set()
    for session_id, place, archived_ms in (yield lines.JOIN(joined=batch)):
        places[session_id] = place
        if archived_ms is not None:
            archived.add(session_id)
    for run in joined:
        if run.session_id not in places:
            outcomes[run.id] = _not_joinable(run.session_id)
        elif run.session_id in archived:
            outcomes[run.id] = _session_archived(run.session_id)
    return places


def _hold_sources(
    forks: Sequence[NewRun], outcomes: dict[str, Created | Exception]
) -> Work[list[tuple[NewRun, str]]]:
    """Refuse forks of runs that are gone; the others stay until the end of the transaction.

    Behind the locks of the sessions that others of the group join, as everywhere. Return the forks
    that are made, each with the session of its source.
    """
    sources = [(run, run.fork.run_id) for run in forks if run.fork]
    if not sources:
        return []
    found = yield _HOLD_SOURCES(sources=rows_of_ids({source for _, source in sources}))
    there = {(run_id, tenant): session_id for run_id, tenant, session_id in found}
    made: list[tuple[NewRun, str]] = []
    for run, source in sources:
        if (source, run.tenant) in there:
            made.append((run, there[source, run.tenant]))
        else:
            outcomes[run.id] = run_not_found(source)
    return made


def _not_joinable(session_id: str) -> NotFoundError:
    return NotFoundError(
        f"there is no session {session_id}; leave session_id out, and the run begins one, or make"
        " one first with POST /v1/sessions",
        code="session_not_found",
    )


def _session_archived(session_id: str) -> ConflictError:
    return ConflictError(
        f"session {session_id} is archived, and takes no runs; take it out of the archive",
        code="session_archived",
    )


def _add(
    accepted: Sequence[NewRun], places: Mapping[str, int], outcomes: dict[str, Created | Exception]
) -> Work[None]:
    sessions = [
        {
            "id": run.session_id,
            "tenant": run.tenant,
            "user_id": run.user,
            "kind": _kind_of_session(run),
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
        _ADD_RUNS(
            new=rows_of(_run_row(run, places.get(run.session_id, _FIRST)) for run in accepted)
        ),
        _ADD_EVENTS(
            first=rows_of(
                entry_row(run.id, run.tenant, run.id, epoch=0, seq=seq, entry=entry)
                for run in accepted
                for seq, entry in enumerate(_entries(run), start=1)
            )
        ),
    )
    made = {run.id: run for run in accepted}
    for run_id, status in answers[-2]:
        run = made[run_id]
        outcomes[run_id] = Created(
            run_id, status, queued=run.queued, replaces=run.replaces, user=run.user
        )


def _kind_of_session(run: NewRun) -> str:
    if run.parent_run_id is not None:
        return "child"
    return "trial" if run.is_trial else "chat"


def _entries(run: NewRun) -> list[Entry]:
    """Return what the run's log begins with."""
    return [run.queued, run.fork.forked] if run.fork else [run.queued]


def _asked(run: NewRun) -> Asked:
    assert run.request is not None
    return Asked(run.tenant, run.request, run.id, run.created_ms)


def _run_row(run: NewRun, place: int) -> dict[str, Any]:
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
        # Who comes later stands in line once his time has come.
        "place": place if run.scheduled_ms is None else None,
    }


def landed(run: NewRun) -> Work[Created | None]:
    """Return what became of this very run, if it is there: ids are never given twice."""
    if found := (yield _STATUS(tenant=run.tenant, run_id=run.id)):
        (first,) = yield from log.read(run.tenant, run.id, limit=1)
        told = orjson.loads(first.data)
        return Created(
            run.id,
            str(found[0][0]),
            queued=Entry(first.type, first.time_ms, first.data),
            replaces=tuple(told.get("replaces", ())) if run.if_active else (),
            user=told.get("user"),
        )
    heard = yield from arrivals.heard(run)
    if heard is None or run.if_active is None:
        return None
    return Created(heard.run_id, "", steered=run.if_active.message_ids)


class AgentMovedError(ConflictError):
    """A remembered agent was changed or deleted since; look it up again."""

    code = "stale"
    retryable = True
