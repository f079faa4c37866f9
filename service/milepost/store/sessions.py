"""Sessions: conversations, whose history is the logs of their runs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from sqlalchemy import ColumnElement, insert, select, update

from milepost.core.errors import ConflictError
from milepost.store import belongings, children, conversations, erasures, log, schema
from milepost.store.dialect import among, number, rows, rows_of_ids, text, words
from milepost.store.listing import Query, paged, where_between, where_equal, where_labelled
from milepost.store.missing import session_not_found
from milepost.store.records import Page
from milepost.store.versions import moved
from milepost.store.work import Rows, Statement, Work

_S = schema.sessions.c
_R = schema.runs.c

SessionKind = Literal["chat", "child", "trial"]
"""What a session was made for: to talk in, for a run that another has started, to try a tool."""
KINDS: tuple[SessionKind, ...] = get_args(SessionKind)


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A conversation; `metadata` is encoded JSON, `turns` counts its ended runs.

    A session that was forked shares what was said in `forked_from` up to its turn `forked_turn`, of
    which up to and with message `forked_index`; all of it, if that is None.
    """

    id: str
    tenant: str
    user: str | None
    title: str | None
    metadata: str
    version: int
    turns: int
    created_ms: int
    updated_ms: int
    archived_ms: int | None = None
    ttl_ms: int | None = None
    expires_ms: int | None = None
    keep_ms: int | None = None
    forked_from: str | None = None
    forked_turn: int | None = None
    forked_index: int | None = None
    kind: SessionKind = "chat"


@dataclass(frozen=True, slots=True)
class NewSession:
    """A conversation to be begun; `metadata` is encoded JSON.

    It may be erased `ttl_ms` after something happened in it last, and each of its runs `keep_ms`
    after its end; None means never.
    """

    id: str
    tenant: str
    user: str | None
    title: str | None
    metadata: str
    created_ms: int
    ttl_ms: int | None = None
    keep_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Which sessions a search is after; None means any. Titles are to have `title` in them."""

    user: str | None = None
    title: str | None = None
    archived: bool | None = None
    forked_from: str | None = None
    kind: SessionKind | None = None
    created_after_ms: int | None = None
    created_before_ms: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionEdit:
    """What a session is to be from now on; `metadata` is encoded JSON."""

    title: str | None
    metadata: str
    archived_ms: int | None = None
    ttl_ms: int | None = None
    keep_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A run in its session's order: those that ended are numbered, the one under way is next."""

    number: int
    run_id: str
    ended: bool


@dataclass(frozen=True, slots=True)
class Erased:
    """What is gone: sessions, and their runs with those below them."""

    sessions: list[str]
    runs: list[str]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a session's past: the turns of a session behind `after` and before `before`.

    Of the last of them only what stands up to and with message `end`, if `end` says so.
    """

    session_id: str
    after: int
    before: int | None = None
    end: int | None = None

    def has(self, turn: int) -> bool:
        """Say whether the turn lies in it."""
        return self.after < turn and (self.before is None or turn < self.before)

    def ends_before(self, turn: int, index: int) -> bool:
        """Say whether this message of one of its turns does not belong to it."""
        is_last = self.before is not None and turn == self.before - 1
        return is_last and self.end is not None and index > self.end


_COLUMNS = (
    _S.id, _S.tenant, _S.user_id, _S.title, _S.metadata, _S.version, _S.turns, _S.created_ms,
    _S.updated_ms, _S.archived_ms, _S.ttl_ms, _S.expires_ms, _S.keep_ms, _S.forked_from,
    _S.forked_turn, _S.forked_index, _S.kind,
)  # fmt: skip
BEGINNING: Mapping[str, ColumnElement[Any]] = {
    "id": text("session_id"),
    "tenant": text("tenant"),
    "user_id": text("user_id"),
    "title": text("title"),
    "metadata": text("metadata"),
    "created_ms": number("now_ms"),
    "updated_ms": number("now_ms"),
    "ttl_ms": number("ttl_ms"),
    "expires_ms": number("now_ms") + number("ttl_ms"),
    "keep_ms": number("keep_ms"),
}
"""What the row of every session begins with, however it came to be; `beginning_of` binds it."""

_CREATE = Statement(insert(schema.sessions).values(**BEGINNING))
_one = (_S.id == text("session_id")) & (_S.tenant == text("tenant"))
_FIND = Statement(select(*_COLUMNS).where(_one))
_LOCK = Statement(select(_S.version).where(_one).with_for_update())
# Whoever erases it waits, and then sees what was added; who changes it is not kept waiting.
_HOLD = Statement(select(_S.id).where(_one).with_for_update(read=True, key_share=True))
_UPDATE = Statement(
    update(schema.sessions)
    .where(_one, number("expected").is_(None) | (_S.version == number("expected")))
    .values(
        title=text("title"),
        metadata=text("metadata"),
        version=_S.version + 1,
        updated_ms=number("now_ms"),
        archived_ms=number("archived_ms"),
        ttl_ms=number("ttl_ms"),
        expires_ms=number("now_ms") + number("ttl_ms"),
        keep_ms=number("keep_ms"),
    )
    .returning(*_COLUMNS)
)
_LOCK_RUNS = Statement(
    select(_R.id, _R.ended_ms, _R.parent_run_id.is_not(None) & _R.told_ms.is_(None))
    .where(_R.session_id == text("session_id"), _R.tenant == text("tenant"))
    .order_by(_R.id)
    .with_for_update()
)
_parents = rows("parents", "id")
_FORKS = Statement(
    select(_S.id, _S.forked_from)
    .where(among(_S.forked_from, select(_parents.c.id).scalar_subquery()))
    .order_by(_S.id)
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
    select(_S.turns + 1, _R.id, _R.rolled_back_by.is_not(None))
    .select_from(schema.runs.join(schema.sessions, _S.id == _R.session_id))
    .where(
        _R.tenant == text("tenant"),
        _R.session_id == text("session_id"),
        _R.status.in_(words(schema.ACTIVE)),
    )
)


def beginning_of(session: NewSession) -> dict[str, str | int | None]:
    """Return what the parameters of `BEGINNING` are for this session."""
    return {
        "session_id": session.id,
        "tenant": session.tenant,
        "user_id": session.user,
        "title": session.title,
        "metadata": session.metadata,
        "now_ms": session.created_ms,
        "ttl_ms": session.ttl_ms,
        "keep_ms": session.keep_ms,
    }


def create(session: NewSession) -> Work[SessionRow]:
    """Begin a conversation."""
    yield from erasures.require_none(session.tenant, session.user)
    yield _CREATE(**beginning_of(session))
    return (yield from find(session.tenant, session.id))


def find(tenant: str, session_id: str) -> Work[SessionRow]:
    """Return the session; raise `NotFoundError` if the tenant has none such."""
    found = yield _FIND(tenant=tenant, session_id=session_id)
    if not found:
        raise session_not_found(session_id)
    return SessionRow(*found[0])


def hold(tenant: str, session_id: str) -> Work[None]:
    """Have nobody erase the session before the transaction ends; raise if there is none."""
    if not (yield _HOLD(tenant=tenant, session_id=session_id)):
        raise session_not_found(session_id)


def search(tenant: str, wanted: SessionFilter, page: Page) -> Work[list[SessionRow]]:
    """Return the tenant's sessions that match, one more than the page holds if there are more."""
    query: Query = select(*_COLUMNS).where(_S.tenant == tenant)
    equal = {_S.user_id: wanted.user, _S.forked_from: wanted.forked_from, _S.kind: wanted.kind}
    query = where_equal(query, equal)
    if wanted.title is not None:
        query = query.where(_S.title.icontains(wanted.title, autoescape=True))
    if wanted.archived is not None:
        is_archived = _S.archived_ms.is_not(None)
        query = query.where(is_archived if wanted.archived else ~is_archived)
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
    """Make the session what it is to be from now on.

    Raises `ConflictError` with the code precondition_failed if a version was expected and the
    session has another one by now. Runs leave the version alone.
    """
    changed = yield _UPDATE(
        tenant=tenant,
        session_id=session_id,
        title=edit.title,
        metadata=edit.metadata,
        archived_ms=edit.archived_ms,
        ttl_ms=edit.ttl_ms,
        keep_ms=edit.keep_ms,
        now_ms=now_ms,
        expected=expected_version,
    )
    if changed:
        return SessionRow(*changed[0])
    row = yield from find(tenant, session_id)
    raise moved("session", row, expected_version)


def delete(tenant: str, session_id: str, *, expected_version: int | None = None) -> Work[list[str]]:
    """Erase the session, as `erase` does; return the sessions that are gone."""
    gone = yield from erase(tenant, session_id, expected_version=expected_version)
    return gone.sessions


def erase(tenant: str, session_id: str, *, expected_version: int | None = None) -> Work[Erased]:
    """Erase the session with its runs and all that belongs to them, but for their usage.

    The sessions that were made for the runs below them go as well; returns all that are gone.
    Raises `ConflictError` with the code session_busy while one of the runs is not over, or one of
    the session's own has not told the run that started it; and with session_has_forks while another
    session shares what was said.
    """
    named = {"tenant": tenant, "session_id": session_id}
    yield from conversations.lock_of_session(tenant, session_id)
    locked, found = yield _LOCK(**named), _LOCK_RUNS(**named)
    if not locked:
        raise session_not_found(session_id)
    if expected_version not in {None, locked[0][0]}:
        raise moved("session", (yield from find(tenant, session_id)), expected_version)
    for run_id, ended_ms, is_awaited in found:
        if ended_ms is None or is_awaited:
            raise _busy(session_id, run_id)
    own = [run_id for run_id, *_ in found]
    below = yield from children.lock_below(tenant, own)
    for each in below:
        if not each.is_over:
            raise _busy(session_id, each.run_id)
    gone = [*own, *(each.run_id for each in below)]
    erased = [session_id, *dict.fromkeys(each.session_id for each in below)]
    yield from _require_no_forks(erased)
    yield belongings.erasing_runs(tenant, gone)
    yield from belongings.erase_sessions(tenant, erased)
    return Erased(erased, gone)


def _require_no_forks(session_ids: Sequence[str]) -> Work[None]:
    """Raise `ConflictError` if others than these share the past of one of these."""
    for fork_id, parent_id in (yield _FORKS(parents=rows_of_ids(session_ids))):
        if fork_id not in session_ids:
            raise ConflictError(
                f"session {fork_id} was forked off {parent_id}, and shares its past; erase it"
                " first, or archive this one",
                code="session_has_forks",
            )


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


def turns(
    tenant: str,
    session_id: str,
    page: Page,
    *,
    rolled_back: bool = False,
    run_id: str | None = None,
    stretch: Stretch | None = None,
) -> Work[list[Turn]]:
    """Return the session's turns; the page's cursor is a turn's number. None waits for its turn.

    With `run_id` it is the turn of that run alone, with `stretch` only what lies in that; those
    that were rolled back are left out, unless they are asked for.

    The one under way is read first: if it ends meanwhile, it is found again among the ended.
    """
    named = {"tenant": tenant, "session_id": session_id}
    active = yield _UNDER_WAY(**named)
    query: Query = select(_R.turn, _R.id).where(
        _R.tenant == tenant, _R.session_id == session_id, _R.turn.is_not(None)
    )
    query = where_equal(query, {_R.id: run_id})
    if not rolled_back:
        query = query.where(_R.rolled_back_by.is_(None))
    if stretch is not None:
        query = where_between(query, _R.turn, stretch.after, stretch.before)
    ended = yield Statement(paged(query, _R.turn, page))()
    found = {turn: Turn(turn, ended_id, True) for turn, ended_id in ended}
    for turn, active_id, is_rolled_back in active:
        counts = rolled_back or not is_rolled_back
        counts &= stretch is None or stretch.has(turn)
        if counts and _lies_in(turn, page) and run_id in {None, active_id}:
            found.setdefault(turn, Turn(turn, active_id, False))
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
