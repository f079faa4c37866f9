"""Erasing runs that are over, a handful at a time, and the sessions that are empty then.

What hangs together goes together: a run is not erased before the runs that it started, nor a
session before those that were forked off it. Nothing is waited for: what another transaction holds
is left for the next time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import exists, select

from milepost.store import belongings, conversations, leftovers, schema
from milepost.store.dialect import among, number, rows, rows_of_ids, text
from milepost.store.leftovers import TIME, Cause
from milepost.store.partitions import Partition
from milepost.store.untelling import untell
from milepost.store.work import Statement, Work

GATHERED_MAX = 500

_R = schema.runs.c
_S = schema.sessions.c
_above = rows("above", "id")
_above_ids = select(_above.c.id).scalar_subquery()
_started = _R.parent_run_id.is_not(None) & among(_R.parent_run_id, _above_ids)
_forked = _R.forked_from.is_not(None) & among(_R.forked_from, _above_ids)
_STARTED = Statement(
    select(_R.id, _R.parent_run_id)
    .where(_started, _R.tenant == text("tenant"))
    .order_by(_R.id)
    .limit(number("limit"))
)
_FORKED = Statement(
    select(_R.id, _R.forked_from)
    .where(_forked, _R.tenant == text("tenant"))
    .order_by(_R.id)
    .limit(number("limit"))
)
_LOCK = Statement(
    select(
        _R.id,
        _R.session_id,
        _R.ended_ms.is_not(None),
        _R.parent_run_id.is_not(None) & _R.told_ms.is_(None),
    )
    .where(among(_R.id, _above_ids), _R.tenant == text("tenant"))
    .order_by(_R.id)
    .with_for_update(skip_locked=True)
)
_LOCK_SESSIONS = Statement(
    select(_S.id)
    .where(among(_S.id, _above_ids), _S.tenant == text("tenant"))
    .order_by(_S.id)
    .with_for_update()
)
_fork = schema.sessions.alias("fork")
_EMPTY = Statement(
    select(_S.id).where(
        among(_S.id, _above_ids),
        _S.tenant == text("tenant"),
        ~exists().where(_R.session_id == _S.id),
        ~exists().where(_fork.c.forked_from == _S.id, _fork.c.forked_from.is_not(None)),
    )
)


@dataclass(frozen=True, slots=True)
class Removed:
    """Which runs are gone, which are not over yet, and what is in the way of which others."""

    gone: tuple[str, ...]
    busy: tuple[str, ...]


@dataclass(slots=True)
class _Gathered:
    """Runs, and by each those that it cannot go before: that it started, or that came of it."""

    sources: dict[str, set[str]] = field(default_factory=dict)

    def add(self, found: Iterable[tuple[str, str]]) -> list[str]:
        """Take in runs with what they came of; return those that are new."""
        new = []
        for run_id, source in found:
            if run_id not in self.sources:
                new.append(run_id)
            self.sources.setdefault(run_id, set()).add(source)
        return new


def remove_runs(
    tenant: str,
    run_ids: Sequence[str],
    cause: Cause = TIME,
    *,
    forks: bool = False,
    past: Sequence[Partition] = (),
) -> Work[Removed]:
    """Erase these runs with those below them, as far as they are over.

    With `forks`, the runs that were forked off them go along: they have what was said before. The
    logs in `past` partitions are left for these to be dropped.
    """
    gathered = yield from _gather(tenant, run_ids, forks=forks)
    locked = yield _LOCK(above=rows_of_ids(gathered), tenant=tenant)
    over = {run_id for run_id, _, ended, awaited in locked if ended and not awaited}
    free = _free(gathered, over)
    busy = tuple(run_id for run_id, _, ended, _ in locked if not ended)
    if free:
        yield from untell(tenant, free)
        yield belongings.erasing_runs(tenant, free, cause, past)
        left = {session_id for run_id, session_id, *_ in locked if run_id in free}
        yield leftovers.emptied(tenant, left, cause)
    return Removed(tuple(sorted(free)), busy)


def close_sessions(tenant: str, session_ids: Sequence[str], cause: Cause = TIME) -> Work[list[str]]:
    """Erase those of the sessions that have neither runs nor forks; return which these were."""
    for session_id in sorted(session_ids):
        yield from conversations.lock_of_session(tenant, session_id)
    above = rows_of_ids(session_ids)
    yield _LOCK_SESSIONS(above=above, tenant=tenant)
    empty = [each for (each,) in (yield _EMPTY(above=above, tenant=tenant))]
    if empty:
        yield from belongings.erase_sessions(tenant, empty, cause)
    return empty


def _gather(tenant: str, run_ids: Sequence[str], *, forks: bool) -> Work[Mapping[str, set[str]]]:
    """Return the runs and all below them, by what each came of, the uppermost first.

    Where they are too many, those further down come alone: they have to go before.
    """
    gathered = _Gathered({run_id: set() for run_id in run_ids})
    above: Sequence[str] = run_ids
    while above:
        named = {"above": rows_of_ids(above), "tenant": tenant, "limit": GATHERED_MAX}
        found = list((yield _STARTED(**named)))
        if forks:
            found += yield _FORKED(**named)
        if len(found) >= GATHERED_MAX:
            return (yield from _gather(tenant, [run_id for run_id, _ in found], forks=forks))
        above = gathered.add(found)
    return gathered.sources


def _free(gathered: Mapping[str, set[str]], over: set[str]) -> set[str]:
    """Return the runs that are over and have nothing below them that is not."""
    held = [run_id for run_id in gathered if run_id not in over]
    stuck: set[str] = set()
    while held:
        run_id = held.pop()
        if run_id not in stuck:
            stuck.add(run_id)
            held += gathered[run_id]
    return set(gathered) - stuck
