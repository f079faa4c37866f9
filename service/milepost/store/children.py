"""Runs that other runs have started: which of them are over, and which have nobody left."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson
from sqlalchemy import exists, select, update

from milepost.store import runs, schema
from milepost.store.dialect import among, number, rows, rows_of_ids, text, words
from milepost.store.hurry import hurrying
from milepost.store.records import CHILD_LETTER
from milepost.store.runs import COLUMNS, Letter, RunRow
from milepost.store.work import Statement, Work

_R = schema.runs.c
_S = schema.sessions.c
_parent = schema.runs.alias("parent")

_UNTOLD = Statement(
    select(*COLUMNS)
    .where(_R.parent_run_id.is_not(None), _R.told_ms.is_(None), _R.ended_ms.is_not(None))
    .order_by(_R.ended_ms)
    .limit(number("limit"))
)
_OPEN = Statement(
    select(_R.id)
    .where(
        _R.parent_run_id == text("run_id"),
        _R.tenant == text("tenant"),
        _R.status.not_in(words(schema.ENDED)),
    )
    .order_by(_R.id)
)
_ABOVE = Statement(
    select(_R.parent_run_id, _R.session_id).where(
        _R.id == text("run_id"), _R.tenant == text("tenant")
    )
)
_seen = rows("seen", "id")
_ORPHANS = Statement(
    select(_R.tenant, _R.id)
    .where(
        _R.parent_run_id.is_not(None),
        _R.told_ms.is_(None),
        _R.ended_ms.is_(None),
        _R.cancel_ms.is_(None),
        ~exists().where(
            _parent.c.id == _R.parent_run_id, _parent.c.status.not_in(words(schema.ENDED))
        ),
        _R.id.not_in(select(_seen.c.id)),
    )
    .limit(number("limit"))
)
# Also whom it tells: whoever decides on questions of both in one go locks them in this order.
_LOCK_BOTH = Statement(
    select(_R.id)
    .where(_R.id.in_((text("run_id"), text("parent_run_id"))), _R.tenant == text("tenant"))
    .order_by(_R.id)
    .with_for_update()
)
_TELL = Statement(
    update(schema.runs)
    .where(
        _R.id == text("run_id"),
        _R.tenant == text("tenant"),
        _R.ended_ms.is_not(None),
        _R.told_ms.is_(None),
    )
    .values(told_ms=number("now_ms"))
    .returning(_R.id)
)

_above = rows("above", "id")
_sessions_below = select(_R.session_id).where(
    _R.parent_run_id.is_not(None),
    among(_R.parent_run_id, select(_above.c.id).scalar_subquery()),
    _R.tenant == text("tenant"),
)
_LOCK_SESSIONS = Statement(
    select(_S.id)
    .where(among(_S.id, _sessions_below.scalar_subquery()), _S.tenant == text("tenant"))
    .order_by(_S.id)
    .with_for_update()
)
_entered = rows("entered", "id")
_LOCK_RUNS = Statement(
    select(_R.id, _R.session_id, _R.parent_run_id, _R.ended_ms.is_not(None))
    .where(
        among(_R.session_id, select(_entered.c.id).scalar_subquery()),
        _R.tenant == text("tenant"),
    )
    .order_by(_R.id)
    .with_for_update()
)


@dataclass(frozen=True, slots=True)
class Descendant:
    """A run that another has started, in a session of its own."""

    run_id: str
    session_id: str
    is_over: bool


@dataclass(frozen=True, slots=True)
class Told:
    """Whom a child has told that it is over, and the parent's status then: None if it is too."""

    parent_run_id: str
    status: str | None


def untold(limit: int) -> Work[list[RunRow]]:
    """Return children that are over and have not told it yet, those that wait longest first."""
    found = yield _UNTOLD(limit=limit)
    return [RunRow(*row) for row in found]


def open_of(tenant: str, run_id: str) -> Work[list[str]]:
    """Return the runs that this one has started and that are not over."""
    found = yield _OPEN(tenant=tenant, run_id=run_id)
    return [child_id for (child_id,) in found]


def session_above(tenant: str, run_id: str) -> Work[str | None]:
    """Return the session of the run, or of the uppermost above it; None if the run is gone."""
    session_id: str | None = None
    above: str | None = run_id
    while above and (found := (yield _ABOVE(tenant=tenant, run_id=above))):  # Only so deep.
        ((above, session_id),) = found
    return session_id


def orphans(limit: int, seen: Iterable[str] = ()) -> Work[list[tuple[str, str]]]:
    """Return tenant and id of runs whose parent is over, and which nobody has told to stop.

    But for those that were `seen`: one that cannot be stopped stays what it is.
    """
    found = yield _ORPHANS(limit=limit, seen=rows_of_ids(seen))
    return [(tenant, run_id) for tenant, run_id in found]


def lock_below(tenant: str, run_ids: Sequence[str]) -> Work[list[Descendant]]:
    """Lock the runs below these with their sessions, and return them, the uppermost first.

    A session in which a client went on by himself is his: it is left out, with all that is below.
    """
    found: list[Descendant] = []
    above = [*run_ids]
    while above:  # Runs start others only so deep.
        sessions = yield _LOCK_SESSIONS(above=rows_of_ids(above), tenant=tenant)
        locked = yield _LOCK_RUNS(
            entered=rows_of_ids([each for (each,) in sessions]), tenant=tenant
        )
        started = set(above)
        his = {session_id for _, session_id, parent_id, _ in locked if parent_id not in started}
        level = [
            Descendant(run_id, session_id, bool(is_over))
            for run_id, session_id, _, is_over in locked
            if session_id not in his
        ]
        found += level
        above = [each.run_id for each in level]
    return found


def tell(child: RunRow, now_ms: int) -> Work[Told | None]:
    """Put into the parent's inbox what became of its child; None if that was done already."""
    assert child.parent_run_id is not None, "only a child has somebody to tell"
    # All children of a parent may wait for it, each on a connection of its own.
    named = {"run_id": child.id, "tenant": child.tenant}
    _, _, is_first = yield (
        hurrying(),
        _LOCK_BOTH(**named, parent_run_id=child.parent_run_id),
        _TELL(**named, now_ms=now_ms),
    )
    if not is_first:
        return None
    said = {
        "call_id": child.parent_call_id,
        "run_id": child.id,
        "status": child.status,
        "outcome": orjson.loads(child.outcome or "{}"),
    }
    letter = Letter(CHILD_LETTER, orjson.dumps(said).decode(), CHILD_LETTER, now_ms)
    status = yield from runs.deliver(child.tenant, child.parent_run_id, letter)
    return Told(child.parent_run_id, status)
