"""Sessions: conversations, whose history is the logs of their runs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Table, insert, select, update
from sqlalchemy import delete as delete_from

from milepost.core.errors import ConflictError
from milepost.store import children, conversations, log, schema
from milepost.store.dialect import among, number, rows, rows_of, text, words
from milepost.store.listing import Query, paged, where_between, where_equal, where_labelled
from milepost.store.new_runs import session_not_found
from milepost.store.records import Page
from milepost.store.work import Rows, Statement, Work

_S = schema.sessions.c
_R = schema.runs.c


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A conversation; `metadata` is encoded JSON, `turns` counts its ended runs."""

    id: str
    tenant: str
    user: str | None
    title: str | None
    metadata: str
    version: int
    turns: int
    created_ms: int
    updated_ms: int


@dataclass(frozen=True, slots=True)
class NewSession:
    """A conversation to be begun; `metadata` is encoded JSON."""

    id: str
    tenant: str
    user: str | None
    title: str | None
    metadata: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Which sessions a search is after; None means any."""

    user: str | None = None
    created_after_ms: int | None = None
    created_before_ms: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionEdit:
    """What a session is to be from now on; `metadata` is encoded JSON."""

    title: str | None
    metadata: str


@dataclass(frozen=True, slots=True)
class Turn:
    """A run in its session's order: those that ended are numbered, the one under way is next."""

    number: int
    run_id: str
    ended: bool


_COLUMNS = tuple(_S)
_CREATE = Statement(
    insert(schema.sessions).values(
        id=text("session_id"),
        tenant=text("tenant"),
        user_id=text("user_id"),
        title=text("title"),
        metadata=text("metadata"),
        created_ms=number("now_ms"),
        updated_ms=number("now_ms"),
    )
)
_one = (_S.id == text("session_id")) & (_S.tenant == text("tenant"))
_FIND = Statement(select(*_COLUMNS).where(_one))
_LOCK = Statement(select(_S.version).where(_one).with_for_update())
_UPDATE = Statement(
    update(schema.sessions)
    .where(_one, number("expected").is_(None) | (_S.version == number("expected")))
    .values(
        title=text("title"),
        metadata=text("metadata"),
        version=_S.version + 1,
        updated_ms=number("now_ms"),
    )
    .returning(*_COLUMNS)
)
_LOCK_RUNS = Statement(
    select(_R.id, _R.ended_ms, _R.parent_run_id.is_not(None) & _R.told_ms.is_(None))
    .where(_R.session_id == text("session_id"), _R.tenant == text("tenant"))
    .order_by(_R.id)
    .with_for_update()
)
_gone = rows("gone", "id")
_closed = rows("closed", "id")
_DELETE = Statement(
    delete_from(schema.sessions).where(
        among(_S.id, select(_closed.c.id).scalar_subquery()), _S.tenant == text("tenant")
    )
)


def _delete_of(table: Table) -> Statement:
    """Return the deletion of what belongs to runs, in the tenant that they belong to."""
    column = table.c.id if table is schema.runs else table.c.run_id
    return Statement(
        delete_from(table).where(
            among(column, select(_gone.c.id).scalar_subquery()), table.c.tenant == text("tenant")
        )
    )


_DELETE_VOTES = Statement(
    delete_from(schema.votes).where(
        schema.votes.c.tenant == text("tenant"),
        schema.votes.c.approval_id.in_(
            select(schema.approvals.c.id).where(
                schema.approvals.c.run_id.in_(select(_gone.c.id)),
                schema.approvals.c.tenant == text("tenant"),
            )
        ),
    )
)
# Not the usage: those rows are the bill.
_DELETIONS = (
    _DELETE_VOTES,
    *(
        _delete_of(table)
        for table in (
            schema.approvals,
            schema.artifacts,
            schema.channel_messages,
            schema.events,
            schema.inbox,
            schema.outbox,
            schema.pending_actions,
            schema.spans,
            schema.webhook_deliveries,
            schema.runs,
        )
    ),
)
_DELETIONS_OF_SESSIONS = tuple(
    Statement(
        delete_from(column.table).where(
            column.table.c.tenant == text("tenant"),
            among(column, select(_closed.c.id).scalar_subquery()),
        )
    )
    for column in (
        schema.artifact_contents.c.session_id,
        schema.grants.c.session_id,
        schema.policies.c.scope,
    )
)
_HISTORY = Statement(
    select(_R.id)
    .where(
        _R.tenant == text("tenant"),
        _R.session_id == text("session_id"),
        _R.turn <= number("through"),
    )
    .order_by(_R.turn.desc())
    .limit(number("limit"))
)

_UNDER_WAY = Statement(
    select(_S.turns + 1, _R.id)
    .select_from(schema.runs.join(schema.sessions, _S.id == _R.session_id))
    .where(
        _R.tenant == text("tenant"),
        _R.session_id == text("session_id"),
        _R.status.in_(words(schema.ACTIVE)),
    )
)


def create(session: NewSession) -> Work[SessionRow]:
    """Begin a conversation."""
    yield _CREATE(
        session_id=session.id,
        tenant=session.tenant,
        user_id=session.user,
        title=session.title,
        metadata=session.metadata,
        now_ms=session.created_ms,
    )
    return (yield from find(session.tenant, session.id))


def find(tenant: str, session_id: str) -> Work[SessionRow]:
    """Return the session; raise `NotFoundError` if the tenant has none such."""
    found = yield _FIND(tenant=tenant, session_id=session_id)
    if not found:
        raise session_not_found(session_id)
    return SessionRow(*found[0])


def search(tenant: str, wanted: SessionFilter, page: Page) -> Work[list[SessionRow]]:
    """Return the tenant's sessions that match, one more than the page holds if there are more."""
    query: Query = select(*_COLUMNS).where(_S.tenant == tenant)
    query = where_equal(query, {_S.user_id: wanted.user})
    query = where_between(query, _S.created_ms, wanted.created_after_ms, wanted.created_before_ms)
    query = where_labelled(query, _S.metadata, wanted.metadata)
    found = yield Statement(paged(query, _S.id, page))()
    return [SessionRow(*row) for row in found]


def change(
    tenant: str,
    session_id: str,
    edit: SessionEdit,
    *,
    now_ms: int,
    expected_version: int | None = None,
) -> Work[SessionRow]:
    """Give the session a title and metadata.

    Raises `ConflictError` with the code precondition_failed if a version was expected and the
    session has another one by now. Runs leave the version alone.
    """
    changed = yield _UPDATE(
        tenant=tenant,
        session_id=session_id,
        title=edit.title,
        metadata=edit.metadata,
        now_ms=now_ms,
        expected=expected_version,
    )
    if changed:
        return SessionRow(*changed[0])
    row = yield from find(tenant, session_id)
    raise _moved(row, expected_version)


def _moved(row: SessionRow, expected: int | None) -> ConflictError:
    return ConflictError(
        f"session {row.id} is at version {row.version}, not {expected}; read it again",
        code="precondition_failed",
    )


def delete(tenant: str, session_id: str, *, expected_version: int | None = None) -> Work[list[str]]:
    """Erase the session with its runs and all that belongs to them, but for their usage.

    The sessions that were made for the runs below them go as well; returns all that are gone.
    Raises `ConflictError` with the code session_busy while one of the runs is not over, or one of
    the session's own has not told the run that started it.
    """
    named = {"tenant": tenant, "session_id": session_id}
    yield from conversations.lock_of_session(tenant, session_id)
    locked, found = yield _LOCK(**named), _LOCK_RUNS(**named)
    if not locked:
        raise session_not_found(session_id)
    if expected_version not in {None, locked[0][0]}:
        raise _moved((yield from find(tenant, session_id)), expected_version)
    for run_id, ended_ms, is_awaited in found:
        if ended_ms is None or is_awaited:
            raise _busy(session_id, run_id)
    own = [run_id for run_id, *_ in found]
    below = yield from children.lock_below(tenant, own)
    for each in below:
        if not each.is_over:
            raise _busy(session_id, each.run_id)
    gone = rows_of({"id": run_id} for run_id in (*own, *(each.run_id for each in below)))
    erased = [session_id, *dict.fromkeys(each.session_id for each in below)]
    closed = rows_of({"id": each} for each in erased)
    yield (
        *(statement(gone=gone, tenant=tenant) for statement in _DELETIONS),
        *(statement(closed=closed, tenant=tenant) for statement in _DELETIONS_OF_SESSIONS),
        _DELETE(closed=closed, tenant=tenant),
    )
    yield from conversations.delete_of_session(tenant, session_id)
    return erased


def _busy(session_id: str, run_id: str) -> ConflictError:
    return ConflictError(
        f"the run {run_id}, in session {session_id} or below it, is not over;"
        " wait for it, or cancel it",
        code="session_busy",
    )


def history(tenant: str, session_id: str, through_turn: int, *, limit: int) -> Work[list[str]]:
    """Return the session's last ended runs up to and with `through_turn`, in their order."""
    found = yield _HISTORY(tenant=tenant, session_id=session_id, through=through_turn, limit=limit)
    return [run_id for (run_id,) in reversed(found)]


def turns(tenant: str, session_id: str, page: Page) -> Work[list[Turn]]:
    """Return the session's turns; the page's cursor is a turn's number. None waits for its turn.

    The one under way is read first: if it ends meanwhile, it is found again among the ended.
    """
    named = {"tenant": tenant, "session_id": session_id}
    active = yield _UNDER_WAY(**named)
    query: Query = select(_R.turn, _R.id).where(
        _R.tenant == tenant, _R.session_id == session_id, _R.turn.is_not(None)
    )
    ended = yield Statement(paged(query, _R.turn, page))()
    found = {turn: Turn(turn, run_id, True) for turn, run_id in ended}
    for turn, run_id in active:
        if _lies_in(turn, page):
            found.setdefault(turn, Turn(turn, run_id, False))
    ordered = sorted(found, reverse=not page.ascending)
    return [found[turn] for turn in ordered[: page.limit + 1]]


def _lies_in(turn: int, page: Page) -> bool:
    if page.after is None:
        return True
    return turn > int(page.after) if page.ascending else turn < int(page.after)


def logs(run_ids: Collection[str]) -> Work[Rows]:
    """Return the runs' logs: rows of run, seq, type, time and data."""
    found: Rows = yield log.read_together(run_ids)
    return found
