"""How long things are kept, as a tenant says, and what is to go by now, a page at a time.

Nothing here is erased that is not over. Whoever erases does so in transactions of their own (see
`store/removals.py`), beside others who do the same.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal, NamedTuple

import orjson
from sqlalchemy import and_, delete, exists, or_, select, update
from sqlalchemy.dialects import postgresql

from milepost.core.errors import ConflictError
from milepost.store import batches, conversations, leftovers, schema
from milepost.store.dialect import (
    among,
    in_reach,
    insert_new,
    number,
    reach,
    rows,
    rows_of_ids,
    text,
    tidied_words,
)
from milepost.store.partitions import TIME_ENDS, first_id
from milepost.store.removals import close_sessions, remove_runs
from milepost.store.untelling import untell
from milepost.store.work import Statement, Work

RUNS_MAX = 100
LOOKS_MAX = 500
SESSIONS_MAX = 100
MEMORIES_MAX = 500
BATCHES_MAX = 20
TENANTS_MAX = 500

Wearing = Literal["events", "traces", "artifacts"]

_K = schema.retention.c
_M = schema.retention_marks.c
_R = schema.runs.c
_S = schema.sessions.c
_B = schema.batches.c
_Y = schema.memories.c


@dataclass(frozen=True, slots=True)
class Rules:
    """How long what is over is kept, in milliseconds; None means for good.

    A run takes all along that belongs to it: so its log, its trace and its artifacts may go before
    it, and never stay behind.
    """

    runs_ms: int | None = None
    events_ms: int | None = None
    artifacts_ms: int | None = None
    traces_ms: int | None = None
    memories_ms: int | None = None

    @property
    def encoded(self) -> str:
        """The rules as they are written down."""
        return orjson.dumps(asdict(self)).decode()


@dataclass(frozen=True, slots=True)
class RetentionRow:
    """A tenant's rules. Version 0 is that of a tenant which never had any."""

    tenant: str
    rules: Rules = Rules()
    version: int = 0
    updated_ms: int | None = None

    @property
    def id(self) -> str:
        """What they are called: there is one set."""
        return "retention"


_ROW = (_K.tenant, _K.rules, _K.version, _K.updated_ms)
_GET = Statement(select(*_ROW).where(_K.tenant == text("tenant")))
_ALL = Statement(
    select(*_ROW).where(_K.tenant > text("after")).order_by(_K.tenant).limit(TENANTS_MAX)
)
_ADD = Statement(
    insert_new(schema.retention)
    .values(tenant=text("tenant"), rules=text("rules"), version=1, updated_ms=number("now_ms"))
    .returning(_K.version)
)
_REPLACE = Statement(
    update(schema.retention)
    .where(_K.tenant == text("tenant"), _K.version == number("expected"))
    .values(rules=text("rules"), version=_K.version + 1, updated_ms=number("now_ms"))
    .returning(_K.version)
)

_turn = postgresql.insert(schema.retention_marks).values(
    tenant="", resource="turn", through=text("until")
)
_TAKE_TURN = Statement(
    _turn.on_conflict_do_update(
        index_elements=[_M.tenant, _M.resource],
        set_={"through": _turn.excluded.through},
        where=or_(_M.through <= text("now"), _M.through > text("too_far")),
    ).returning(_M.tenant)
)
_mark = postgresql.insert(schema.retention_marks).values(
    tenant=text("tenant"), resource=text("resource"), through=text("through")
)
_MARK = Statement(
    _mark.on_conflict_do_update(
        index_elements=[_M.tenant, _M.resource],
        set_={"through": _mark.excluded.through},
        where=_M.through < _mark.excluded.through,
    )
)
_MARKED = Statement(
    select(_M.through).where(_M.tenant == text("tenant"), _M.resource == text("resource"))
)

_is_due = _R.ended_ms.is_not(None) & (_R.ended_ms < number("before_ms"))
_stretch = (_R.id > text("after")) & (_R.id < text("until"))
_DUE = Statement(
    select(_R.id)
    .where(_R.tenant == text("tenant"), _stretch, _is_due)
    .order_by(_R.id)
    .limit(RUNS_MAX)
)
_DUE_OF_ALL = Statement(
    select(_R.id, _R.tenant).where(_stretch, _is_due).order_by(_R.id).limit(RUNS_MAX)
)
_unread = exists().where(schema.recollections.c.run_id == _R.id)
_LOOK = Statement(
    select(_R.id, _is_due & ~_unread)
    .where(_R.tenant == text("tenant"), _stretch)
    .order_by(_R.id)
    .limit(number("limit"))
)
_worn = rows("worn", "id")
_worn_ids = select(_worn.c.id).scalar_subquery()
_DELETE_EVENTS = Statement(
    delete(schema.events)
    .where(
        among(schema.events.c.run_id, _worn_ids),
        in_reach(schema.events.c.run_id),
        schema.events.c.tenant == text("tenant"),
    )
    .returning(schema.events.c.seq)
)
_DELETE_SPANS = Statement(
    delete(schema.spans)
    .where(among(schema.spans.c.run_id, _worn_ids), schema.spans.c.tenant == text("tenant"))
    .returning(schema.spans.c.seq)
)
_DELETE_ARTIFACTS = Statement(
    delete(schema.artifacts)
    .where(among(schema.artifacts.c.run_id, _worn_ids), schema.artifacts.c.tenant == text("tenant"))
    .returning(schema.artifacts.c.id)
)
_old_memories = (
    select(_Y.number)
    .where(
        _Y.tenant == text("tenant"),
        _Y.updated_ms < number("before_ms"),
        _Y.seen_ms < number("before_ms"),
    )
    .order_by(_Y.updated_ms)
    .limit(MEMORIES_MAX)
    .with_for_update(skip_locked=True)
)
_DELETE_MEMORIES = Statement(
    delete(schema.memories).where(_Y.number.in_(_old_memories)).returning(_Y.id)
)
_OLD_BATCHES = Statement(
    select(_B.id)
    .where(
        _B.tenant == text("tenant"),
        _B.id > text("after"),
        _B.ended_ms.is_not(None),
        _B.ended_ms < number("before_ms"),
    )
    .order_by(_B.id)
    .limit(BATCHES_MAX)
)
_fork = schema.sessions.alias("fork")
_going_on = schema.runs.alias("going_on")
_is_at_rest = (
    ~exists().where(_fork.c.forked_from == _S.id, _fork.c.forked_from.is_not(None)),
    ~exists().where(_going_on.c.session_id == _S.id, _going_on.c.ended_ms.is_(None)),
)
_EXPIRED = Statement(
    select(_S.tenant, _S.id, _S.expires_ms)
    .where(
        _S.expires_ms.is_not(None),
        _S.expires_ms <= number("now_ms"),
        or_(
            _S.expires_ms > number("after_ms"),
            and_(_S.expires_ms == number("after_ms"), _S.id > text("after_id")),
        ),
        *_is_at_rest,
    )
    .order_by(_S.expires_ms, _S.id)
    .limit(SESSIONS_MAX)
)
_STILL_EXPIRED = Statement(
    select(_S.id)
    .where(
        _S.id == text("session_id"),
        _S.tenant == text("tenant"),
        _S.expires_ms <= number("now_ms"),
        _S.expires_ms.is_not(None),
    )
    .with_for_update()
)
_one = (_S.id == text("session_id")) & (_S.tenant == text("tenant"))
_THERE = Statement(select(_S.id).where(_one))
_AT_REST = Statement(select(_S.id).where(_one, *_is_at_rest))
_RUNS_IN = Statement(
    select(_R.id)
    .where(_R.session_id == text("session_id"), _R.tenant == text("tenant"))
    .order_by(_R.id)
    .limit(RUNS_MAX)
)
_KEEPING = Statement(
    select(_S.id, _S.tenant, _S.keep_ms)
    .where(_S.keep_ms.is_not(None), _S.id > text("after"))
    .order_by(_S.id)
    .limit(SESSIONS_MAX)
)
_DUE_IN = Statement(
    select(_R.id)
    .where(
        _R.session_id == text("session_id"),
        _R.tenant == text("tenant"),
        _R.turn.is_not(None),
        _is_due,
    )
    .order_by(_R.turn)
    .limit(RUNS_MAX)
)
_TIDY = Statement(tidied_words())


def get(tenant: str) -> Work[RetentionRow]:
    """Return the tenant's rules, none where it never had any."""
    found = yield _GET(tenant=tenant)
    return _row(*found[0]) if found else RetentionRow(tenant)


def all_after(tenant: str) -> Work[list[RetentionRow]]:
    """Return the rules of the tenants behind this one, so many at a time."""
    return [_row(*row) for row in (yield _ALL(after=tenant))]


def _row(tenant: str, rules: str, version: int, updated_ms: int) -> RetentionRow:
    known = {each.name for each in fields(Rules)}
    said = {name: value for name, value in orjson.loads(rules).items() if name in known}
    return RetentionRow(tenant, Rules(**said), version, updated_ms)


def replace(before: RetentionRow, rules: Rules, now_ms: int) -> Work[RetentionRow]:
    """Put other rules in the place of exactly these; `ConflictError` if they moved since."""
    bound = {"tenant": before.tenant, "rules": rules.encoded, "now_ms": now_ms}
    if before.version:
        changed = yield _REPLACE(**bound, expected=before.version)
    else:
        changed = yield _ADD(**bound)
    if not changed:
        raise ConflictError(
            "the retention was changed meanwhile; read it again", code="precondition_failed"
        )
    return RetentionRow(before.tenant, rules, changed[0][0], now_ms)


def take_turn(now_ms: int, every_ms: int) -> Work[bool]:
    """Say whether it is this process that looks for what is to go, once in so long a time.

    A turn that lasts longer than two was taken by a clock that ran ahead: nobody waits for that.
    """
    until, too_far = _moment(now_ms + every_ms), _moment(now_ms + 2 * every_ms)
    return bool((yield _TAKE_TURN(now=_moment(now_ms), until=until, too_far=too_far)))


def _moment(time_ms: int) -> str:
    return f"{time_ms:020d}"


def remove_due(tenant: str, after: str, before_ms: int) -> Work[tuple[int, str | None]]:
    """Erase runs that ended before then; return how many, and behind which run to go on, if any."""
    found = yield _DUE(tenant=tenant, after=after, until=first_id(before_ms), before_ms=before_ms)
    ids = [run_id for (run_id,) in found]
    if not ids:
        return 0, None
    removed = yield from remove_runs(tenant, ids)
    return len(removed.gone), ids[-1] if len(ids) == RUNS_MAX else None


def due_of_all(after: str, before_ms: int) -> Work[list[tuple[str, str]]]:
    """Return runs of all tenants that ended before then, each with its tenant."""
    found = yield _DUE_OF_ALL(after=after, until=first_id(before_ms), before_ms=before_ms)
    return [(run_id, tenant) for run_id, tenant in found]


@dataclass(frozen=True, slots=True)
class Worn:
    """How much of runs is gone, behind which run to go on, and whether all before it is done."""

    gone: int
    after: str | None
    solid: bool


def wear(
    tenant: str, resource: Wearing, after: str | None, before_ms: int, *, solid: bool = True
) -> Work[Worn]:
    """Erase a part of runs that ended before then: their log, their traces or their artifacts.

    Begins where the last one ended that left nothing out, if `after` is None. A run that goes on
    is left out, and looked at again the next time.
    """
    if after is None:
        marked = yield _MARKED(tenant=tenant, resource=resource)
        after = marked[0][0] if marked else ""
    stretch = {"after": after, "until": first_id(before_ms), "limit": LOOKS_MAX}
    seen = yield _LOOK(tenant=tenant, **stretch, before_ms=before_ms)
    due = [run_id for run_id, is_due in seen if is_due]
    gone = (yield from _worn_off(tenant, resource, due)) if due else 0
    first_kept = next((run_id for run_id, is_due in seen if not is_due), None)
    if solid and (through := _through(due, first_kept)):
        yield _MARK(tenant=tenant, resource=resource, through=through)
    more = seen[-1][0] if len(seen) == LOOKS_MAX else None
    return Worn(gone, more, solid and first_kept is None)


def _through(due: Sequence[str], first_kept: str | None) -> str | None:
    """Return up to where nothing is left: what a run starts bears the time of that run."""
    if first_kept is None:
        return max(due, default=None)
    return max((each for each in due if each[:TIME_ENDS] < first_kept[:TIME_ENDS]), default=None)


def _worn_off(tenant: str, resource: Wearing, due: Sequence[str]) -> Work[int]:
    worn = rows_of_ids(due)
    match resource:
        case "events":
            yield from untell(tenant, due)
            return len((yield _DELETE_EVENTS(worn=worn, tenant=tenant, **reach(due))))
        case "traces":
            return len((yield _DELETE_SPANS(worn=worn, tenant=tenant)))
        case "artifacts":
            yield leftovers.of_runs(tenant, worn)
            return len((yield _DELETE_ARTIFACTS(worn=worn, tenant=tenant)))


def forget_memories(tenant: str, before_ms: int) -> Work[int]:
    """Forget memories that were neither changed nor mentioned since then; return how many."""
    gone = yield _DELETE_MEMORIES(tenant=tenant, before_ms=before_ms)
    if gone:
        yield _TIDY()
    return len(gone)


def remove_batches(tenant: str, after: str, before_ms: int) -> Work[tuple[int, str | None]]:
    """Erase batches that ended before then; return how many, and behind which to go on, if any."""
    found = [
        each for (each,) in (yield _OLD_BATCHES(tenant=tenant, after=after, before_ms=before_ms))
    ]
    for batch_id in found:
        yield from batches.delete(tenant, batch_id)
    return len(found), found[-1] if len(found) == BATCHES_MAX else None


class Expired(NamedTuple):
    """A session whose time was over at `expires_ms`."""

    tenant: str
    session_id: str
    expires_ms: int


def expired(now_ms: int, behind: Expired | None = None) -> Work[list[Expired]]:
    """Return sessions whose time is over, which nothing goes on from, the first to expire first.

    So many at a time: there may be more behind the last of them.
    """
    after_ms, after_id = (behind.expires_ms, behind.session_id) if behind else (-1, "")
    found = yield _EXPIRED(now_ms=now_ms, after_ms=after_ms, after_id=after_id)
    return [Expired(*row) for row in found]


def remove_expired(tenant: str, session_id: str, now_ms: int) -> Work[bool]:
    """Erase a page of an expired session's runs, or what is left of it; say whether there is more.

    One that somebody goes on with meanwhile is left with what it still has.
    """
    named = {"tenant": tenant, "session_id": session_id}
    inside = [run_id for (run_id,) in (yield _RUNS_IN(**named))]
    if not inside:
        # Its chats' lock comes before its own, as for whoever speaks in them.
        yield from conversations.lock_of_session(tenant, session_id)
    if not (yield _STILL_EXPIRED(**named, now_ms=now_ms)):
        return False
    # By a statement that begins behind the lock: it sees a fork that was made while that waited.
    if not (yield _AT_REST(**named)):
        return False
    if not inside:
        yield from close_sessions(tenant, [session_id])
        return False
    removed = yield from remove_runs(tenant, inside)
    return bool(removed.gone)


def keeping(after: str) -> Work[list[tuple[str, str, int]]]:
    """Return sessions that say how long their runs are kept: id, tenant, and how long."""
    return [(each, tenant, keep) for each, tenant, keep in (yield _KEEPING(after=after))]


def is_there(tenant: str, session_id: str) -> Work[bool]:
    """Say whether there is such a session."""
    return bool((yield _THERE(tenant=tenant, session_id=session_id)))


def remove_kept(tenant: str, session_id: str, before_ms: int) -> Work[int]:
    """Erase a page of runs of a session that ended before then; return how many that was."""
    found = yield _DUE_IN(tenant=tenant, session_id=session_id, before_ms=before_ms)
    if not found:
        return 0
    removed = yield from remove_runs(tenant, [run_id for (run_id,) in found])
    return len(removed.gone)
