"""Recollections: runs that are over, and from which something is to be learned.

Each becomes a run of its own that reads it, exactly once: the row goes in the transaction in which
that run comes.
"""

from dataclasses import dataclass

from sqlalchemy import delete, exists, func, select, update

from milepost.store import new_runs, schema
from milepost.store.dialect import now_ms, number, text, word
from milepost.store.missing import run_not_found
from milepost.store.records import NewRun
from milepost.store.work import Statement, Work

_C = schema.recollections.c
_R = schema.runs.c
_W = schema.workers.c

# The schema with which runs came that read others: who knows less would take them for broken.
_SINCE = "0022"
_is_older = exists().where(
    _W.dead == 0, _W.until_ms > now_ms(), func.coalesce(_W.knows, word("")) < word(_SINCE)
)
_WAITING = Statement(
    select(_C.run_id, _C.tenant, _C.created_ms)
    .where(~_is_older)
    .order_by(_C.created_ms, _C.run_id)
    .limit(number("limit"))
)
_TAKE = Statement(
    delete(schema.recollections)
    .where(_C.run_id == text("run_id"), _C.tenant == text("tenant"))
    .returning(_C.run_id)
)
# Nobody waits for what it answers, and nobody stops it because the run above is over.
_LET_GO = Statement(
    update(schema.runs)
    .where(_R.id == text("run_id"), _R.tenant == text("tenant"))
    .values(told_ms=number("now_ms"))
)


_READ = Statement(
    select(_R.id, _R.session_id, _R.turn).where(
        _R.id == text("run_id"), _R.tenant == text("tenant")
    )
)


@dataclass(frozen=True, slots=True)
class Read:
    """The run that is read, and as which turn of its session it ended."""

    run_id: str
    session_id: str
    turn: int | None


@dataclass(frozen=True, slots=True)
class RecollectionRow:
    """A run that is to be read, and since when."""

    run_id: str
    tenant: str
    created_ms: int


def waiting(limit: int) -> Work[list[RecollectionRow]]:
    """Return runs that are to be read, those that wait longest first.

    None as long as a worker lives that may take a run which reads them, and cannot drive it.
    """
    return [RecollectionRow(*row) for row in (yield _WAITING(limit=limit))]


def begin(row: RecollectionRow, run: NewRun, *, queue_max: int | None = None) -> Work[bool]:
    """Let `run` read it; say whether it does, or a rival was faster.

    Raises what speaks against the run, and leaves the row.
    """
    if not (yield _TAKE(run_id=row.run_id, tenant=row.tenant)):
        return False
    [outcome] = yield from new_runs.create([run], queue_max=queue_max)
    if isinstance(outcome, Exception):
        raise outcome
    yield _LET_GO(run_id=run.id, tenant=run.tenant, now_ms=run.created_ms)
    return True


def read(tenant: str, run_id: str) -> Work[Read]:
    """Return the run that is read; raise `NotFoundError` if it is gone by now."""
    found = yield _READ(tenant=tenant, run_id=run_id)
    if not found:
        raise run_not_found(run_id)
    return Read(*found[0])


def drop(row: RecollectionRow) -> Work[None]:
    """Have nobody read it: there is nothing to be learned, or nobody can."""
    yield _TAKE(run_id=row.run_id, tenant=row.tenant)
