"""In which order a session's runs are shown to who follows it: the order in which they came.

A turn is known only when its run has ended, and one that is cancelled while it waits has an earlier
turn than the one that it waited for. The place in the line is given once and never changes, so that
what a client has seen of a session is always the same beginning. Runs that were made before there
were places come first, by their turns.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import func, select

from milepost.store import schema
from milepost.store.dialect import among, number, rows, rows_of_ids, text, words
from milepost.store.work import Statement, Work

_R = schema.runs.c
_S = schema.sessions.c


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a run stands in its session; `turn` is known once it has ended."""

    run_id: str
    status: str
    place: int | None
    turn: int | None

    @property
    def waits(self) -> bool:
        """Say whether it waits for its turn: what it has to tell comes behind all before it."""
        return self.status == "blocked"


_COLUMNS = (_R.id, _R.status, _R.place, _R.turn)
_here = (_R.session_id == text("session_id")) & (_R.tenant == text("tenant"))
_SPOT = Statement(select(*_COLUMNS).where(_R.id == text("run_id"), _here))
_UNPLACED = Statement(
    select(*_COLUMNS)
    .where(_here, _R.place.is_(None), _R.turn > number("turn"))
    .order_by(_R.turn)
    .limit(1)
)
_UNPLACED_ACTIVE = Statement(
    select(*_COLUMNS).where(_here, _R.place.is_(None), _R.status.in_(words(schema.ACTIVE)))
)
_PLACED = Statement(
    select(*_COLUMNS).where(_here, _R.place > number("place")).order_by(_R.place).limit(1)
)
_watched = rows("watched", "id")
_STANDS = Statement(
    select(_S.id, func.coalesce(_S.arrivals, 0) + _S.turns).where(
        among(_S.id, select(_watched.c.id).scalar_subquery())
    )
)


def spot(tenant: str, session_id: str, run_id: str) -> Work[Spot | None]:
    """Return where the run stands in the session, if it is there."""
    found = yield _SPOT(tenant=tenant, session_id=session_id, run_id=run_id)
    return Spot(*found[0]) if found else None


def following(tenant: str, session_id: str, behind: Spot | None) -> Work[Spot | None]:
    """Return the run behind that one, or the session's first; None if there is none yet.

    One that is scheduled stands nowhere before its time.
    """
    named = {"tenant": tenant, "session_id": session_id}
    if behind is None or behind.place is None:
        unplaced = yield from _following_unplaced(tenant, session_id, behind)
        if unplaced is not None:
            return unplaced
    placed = yield _PLACED(**named, place=(behind.place or 0) if behind else 0)
    return Spot(*placed[0]) if placed else None


def _following_unplaced(tenant: str, session_id: str, behind: Spot | None) -> Work[Spot | None]:
    """Return the next of those without a place; the last of them may be under way."""
    named = {"tenant": tenant, "session_id": session_id}
    if behind is not None:
        behind = yield from spot(tenant, session_id, behind.run_id)  # It may have ended meanwhile.
        if behind is None or behind.turn is None:
            return None
    ended = yield _UNPLACED(**named, turn=behind.turn if behind else 0)
    found = ended or (yield _UNPLACED_ACTIVE(**named))
    return Spot(*found[0]) if found else None


def stands(session_ids: Collection[str]) -> Work[dict[str, int]]:
    """Return for each session that is there a number that grows with what happens in it."""
    found = yield _STANDS(watched=rows_of_ids(session_ids))
    return dict(found)
