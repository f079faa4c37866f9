"""Runs from the outside: finding them, and what is done to one that no worker holds."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, case, func, insert, null, or_, select, true, update

from milepost.core.errors import ConflictError
from milepost.core.spans import Span
from milepost.store import alongside, lines, log, outbox, schema
from milepost.store.dialect import (
    insert_new,
    now_ms,
    number,
    rows,
    rows_of,
    rows_of_ids,
    text,
    word,
    words,
)
from milepost.store.entries import ENTRIES, NAMES, entry_row
from milepost.store.listing import Query, paged, where_between, where_equal, where_labelled
from milepost.store.missing import run_not_found
from milepost.store.records import Entry, NewRun, Page, RunFilter, UsageRow
from milepost.store.work import Statement, Work

_R = schema.runs.c
_S = schema.sessions.c


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as the table has it; JSON columns are still encoded.

    `ahead` is how many runs of its session a blocked one waits for.
    """

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
    forked_from: str | None = None
    forked_seq: int | None = None
    rolled_back_by: str | None = None
    made_by: str | None = None
    ahead: int | None = None


COLUMNS = (
    _R.id, _R.tenant, _R.session_id, _R.agent_id, _R.agent, _R.agent_version, _R.user_id,
    _R.status, _R.epoch, _R.lane, _R.created_ms, _R.ended_ms, _R.deadline_ms, _R.run_at_ms,
    _R.metadata, _R.trace_parent, _R.waiting_for, _R.outcome, _R.cancel_ms, _R.scopes,
    _R.parent_run_id, _R.parent_call_id, _R.forked_from, _R.forked_seq, _R.rolled_back_by,
    _R.made_by, lines.ahead(),
)  # fmt: skip


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
        forked_from=run.fork.run_id if run.fork else None,
        forked_seq=run.fork.at_seq if run.fork else None,
        made_by=run.made_by,
    )


_FIND = Statement(select(*COLUMNS).where(_R.id == text("run_id"), _R.tenant == text("tenant")))


def find(tenant: str, run_id: str) -> Work[RunRow]:
    """Return the run; raise `NotFoundError` if the tenant has none such."""
    found = yield _FIND(tenant=tenant, run_id=run_id)
    if not found:
        raise run_not_found(run_id)
    return RunRow(*found[0])


def search(tenant: str, wanted: RunFilter, page: Page) -> Work[list[RunRow]]:
    """Return the tenant's runs that match, one more than the page holds if there are more."""
    found = yield Statement(paged(matching(tenant, wanted), _R.id, page))()
    return [RunRow(*row) for row in found]


def matching(tenant: str, wanted: RunFilter) -> Query:
    """Return the query for `COLUMNS` of the tenant's runs that match."""
    query: Query = select(*COLUMNS).where(_R.tenant == tenant)
    if wanted.status not in {None, "completed"}:
        # SQLite takes an index only where it finds the index's own condition.
        query = query.where(_R.status != word("completed"))
    if wanted.status == "queued":
        query = query.where(_R.status.in_(words(schema.PENDING)))
    else:
        query = where_equal(query, {_R.status: wanted.status})
    if wanted.agent is not None:
        query = query.where(_is_of(wanted.agent))
    query = where_equal(
        query,
        {
            _R.session_id: wanted.session_id,
            _R.user_id: wanted.user,
            _R.made_by: wanted.made_by,
        },
    )
    if wanted.parent_run_id is not None:
        query = query.where(_R.parent_run_id == wanted.parent_run_id)
    if wanted.forked_from is not None:
        query = query.where(_R.forked_from == wanted.forked_from)
    query = where_between(query, _R.created_ms, wanted.created_after_ms, wanted.created_before_ms)
    return where_labelled(query, _R.metadata, wanted.metadata)


def _is_of(agent: str) -> ColumnElement[bool]:
    """Return the condition for an agent's runs, by its name or its id.

    What cannot be an id is looked for as a name alone, for which there is an index.
    """
    named = _R.agent == agent
    return named | (_R.agent_id == agent) if agent.startswith("agt_") else named


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
            (_R.cancel_ms.is_(None), func.coalesce(now_ms() + number("grace_ms"), _R.wake_at_ms)),
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
        grace_ms=letter.cancel_grace_ms,
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
        place=func.coalesce(_R.place, number("place")),
    )
    .returning(_R.epoch)
)
# WHERE keeps SQLite from reading ON CONFLICT as a part of the FROM clause.
_ADD_LAST = Statement(
    insert_new(schema.events)
    .from_select(NAMES, ENTRIES.where(true()))
    .returning(schema.events.c.seq)
)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run that no worker may go on with is to end; `head` is the end of the log it closes.

    `inbox_seen` is the last message from outside that its entries take account of; `usage` and
    `spans` are of what the ending cuts off.
    """

    status: str
    outcome: str
    entries: tuple[Entry, ...]
    head: int
    inbox_seen: int = 0
    usage: tuple[UsageRow, ...] = ()
    spans: tuple[Span, ...] = ()


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
        place=(yield from _place_of(row)),
    )
    if not stopped:
        raise StaleError(f"run {row.id} is no longer {row.status}, or got a message; look again")
    if (yield from log.head(row.tenant, row.id)) != ending.head:
        raise StaleError(f"run {row.id} went on behind event {ending.head}; look again")
    last = [
        entry_row(row.id, row.tenant, append_id, epoch=stopped[0][0], seq=seq, entry=entry)
        for seq, entry in enumerate(ending.entries, start=ending.head + 1)
    ]
    added = yield _ADD_LAST(first=rows_of(last))
    if len(added) != len(last):
        raise StaleError(f"run {row.id} was being written to; look again")
    if ending.usage:
        used = [alongside.usage_row(row.id, row.tenant, each) for each in ending.usage]
        yield alongside.INSERT_USAGE(usage=rows_of(used))
    if ending.spans:
        cut = [alongside.span_row(row.tenant, each) for each in ending.spans]
        yield alongside.INSERT_SPANS(spans=rows_of(cut))
    freed, *_ = yield (
        lines.PROMOTE(ending=batch),
        log.WITHDRAW(ended=rows_of([{"run_id": row.id, "tenant": row.tenant, "now_ms": now}])),
        outbox.put(outbox.event_rows(row.tenant, row.id, ending.head + 1, ending.entries)),
    )
    return ending.head + 1, [run_id for (run_id,) in freed]


def _place_of(row: RunRow) -> Work[int | None]:
    """Return the place of a run that ends before its time came: it stood in no line until now."""
    if row.status != "scheduled":
        return None
    joined = yield lines.JOIN(joined=rows_of([{"id": row.session_id, "tenant": row.tenant}]))
    return int(joined[0][1]) if joined else None


class StaleError(ConflictError):
    """What was read is no longer so; read it again."""

    code = "stale"
    retryable = True


_seen = rows("seen", "id")
_now = number("now_ms")
# Alone, for the index: what is due by either clock.
_later_clock = select(case((now_ms() > _now, now_ms()), else_=_now)).scalar_subquery()
_DUE = Statement(
    select(*COLUMNS)
    .where(
        _R.wake_at_ms <= _later_clock,
        # How long a worker has to stop a run is told by the clock that said from when on.
        _R.wake_at_ms <= case((_R.cancel_ms.is_not(None), now_ms()), else_=_now),
        _R.status.not_in(words(schema.ENDED)),
        # Who drives a run ends it at its deadline; it would only stand before the others here.
        or_(_R.status != word("running"), _R.cancel_ms.is_not(None)),
        _R.id.not_in(select(_seen.c.id)),
    )
    .order_by(_R.wake_at_ms)
    .limit(number("limit"))
)
_PROMOTE_SCHEDULED = Statement(
    update(schema.runs)
    .where(_R.id == text("run_id"), _R.tenant == text("tenant"), _R.status == word("scheduled"))
    .values(
        status=case((lines.is_busy(_R.session_id), word("blocked")), else_=word("queued")),
        wake_at_ms=_R.deadline_ms,
        run_at_ms=now_ms(),
        place=number("place"),
    )
    .returning(_R.status)
)


def due(now_ms: int, limit: int, seen: Iterable[str] = ()) -> Work[list[RunRow]]:
    """Return runs for which a time has come: to start, to expire, or to be cancelled by force.

    But for those that were `seen`: one that nothing can be done with stays due. `now_ms` is for
    starts and deadlines; whether somebody had his time to stop a run, the database's clock says.
    """
    found = yield _DUE(now_ms=now_ms, limit=limit, seen=rows_of_ids(seen))
    return [RunRow(*row) for row in found]


def start_scheduled(row: RunRow) -> Work[str | None]:
    """Move a scheduled run into its session's turn; return its status, None if it moved already."""
    session = {"id": row.session_id, "tenant": row.tenant}
    joined = yield lines.JOIN(joined=rows_of([session]))
    place = joined[0][1] if joined else None
    moved = yield _PROMOTE_SCHEDULED(run_id=row.id, tenant=row.tenant, place=place)
    return str(moved[0][0]) if moved else None
