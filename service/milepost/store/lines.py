"""A session's line: in which order its runs came, who is next, and how many are ahead of one."""

from sqlalchemy import ColumnElement, case, exists, func, null, or_, select, update

from milepost.store import schema
from milepost.store.dialect import among, now_ms, rows, word, words
from milepost.store.work import Statement

GRACE_MS = 10_000  # How long whoever holds a run has to stop it.

_R = schema.runs.c
_S = schema.sessions.c
UNENDED = (*schema.ACTIVE, "blocked")

_joined = rows("joined", "id", "tenant")
_locked = (
    select(_S.id)
    .where(
        _S.id.in_(select(_joined.c.id)),
        exists().where(_joined.c.id == _S.id, _joined.c.tenant == _S.tenant),
    )
    .order_by(_S.id)
    .with_for_update()
    .cte("locked")
)
# Locks the sessions, in one order, so that a run that ends sees those behind it; counts who comes.
JOIN = Statement(
    update(schema.sessions)
    .where(_S.id.in_(select(_locked.c.id)))
    .values(arrivals=_S.arrivals + 1)
    .returning(_S.id, _S.arrivals, _S.archived_ms)
)


def is_busy(session_id: ColumnElement[str]) -> ColumnElement[bool]:
    """Say whether a run of the session is under way, or waits for its turn."""
    other = schema.runs.alias("other")
    return exists().where(
        other.c.session_id == session_id,
        other.c.turn.is_(None),  # has not ended: the index knows, however long the session is
        other.c.status.in_(words(UNENDED)),
    )


_ending = rows("ending", "session_id", "tenant", numbers=("now_ms",))
_blocked = schema.runs.alias("blocked")
_active = schema.runs.alias("active")
# Those that came under a version which counted nobody are first: they have no place.
_first = (
    select(_blocked.c.id)
    .where(_blocked.c.status == word("blocked"), _blocked.c.session_id == _ending.c.session_id)
    .order_by(_blocked.c.place.asc().nulls_first(), _blocked.c.id)
    .limit(1)
    .scalar_subquery()
)
PROMOTE = Statement(
    update(schema.runs)
    .where(
        among(_R.id, select(_first).select_from(_ending).scalar_subquery()),
        _R.status == word("blocked"),
        ~exists().where(
            _active.c.session_id == _R.session_id,
            _active.c.status.in_([word(status) for status in schema.ACTIVE]),
        ),
    )
    .values(
        status="queued",
        run_at_ms=now_ms(),
        # Who was told to stop while he waited for his turn has his time from now on.
        wake_at_ms=case((_R.cancel_ms.is_not(None), now_ms() + GRACE_MS), else_=_R.wake_at_ms),
    )
    .returning(_R.id)
)


def ahead() -> ColumnElement[int]:
    """Return how many runs a blocked one waits for, the one under way among them; else NULL."""
    other = schema.runs.alias("other")
    came = func.coalesce(other.c.place, 0), func.coalesce(_R.place, 0)
    count = (
        select(func.count())
        .select_from(other)
        .where(
            other.c.session_id == _R.session_id,
            other.c.turn.is_(None),
            other.c.status.in_(words(UNENDED)),
            or_(
                other.c.status != word("blocked"),
                came[0] < came[1],
                (came[0] == came[1]) & (other.c.id < _R.id),
            ),
        )
        .scalar_subquery()
    )
    return case((_R.status == word("blocked"), count), else_=null())
