"""A run that is rolled back teaches nothing: neither what it has kept, nor what it would have.

So do those that it has started, and those that these have.
"""

from collections.abc import Sequence

from sqlalchemy import delete, select

from milepost.store import lines, memories, runs, schema
from milepost.store.dialect import among, rows, rows_of_ids, text
from milepost.store.runs import Letter
from milepost.store.work import Statement, Work

_R = schema.runs.c
_C = schema.recollections.c

_above = rows("above", "id")
_above_ids = select(_above.c.id).scalar_subquery()
# Who is not over and has told its parent already is one whom nobody waits for: it reads that run.
_BELOW = Statement(
    select(_R.id, _R.ended_ms.is_(None) & _R.told_ms.is_not(None))
    .where(
        _R.parent_run_id.is_not(None),
        among(_R.parent_run_id, _above_ids),
        _R.tenant == text("tenant"),
    )
    .order_by(_R.id)
)
_DROP = Statement(
    delete(schema.recollections).where(among(_C.run_id, _above_ids), _C.tenant == text("tenant"))
)
_one = (_R.id == text("run_id")) & (_R.tenant == text("tenant"))
_ABOVE = select(_R.rolled_back_by, _R.parent_run_id).where(_one)
_LOOK, _HOLD = Statement(_ABOVE), Statement(_ABOVE.with_for_update(read=True))


def unlearn(tenant: str, run_ids: Sequence[str], said: str, now_ms: int) -> Work[None]:
    """Forget what only these runs have taught, and have nobody learn of them any more.

    It is for the transaction that rolls them back; `said` is what whoever reads them is told.
    """
    gone, above = list(run_ids), list(run_ids)
    while above:
        below = yield _BELOW(above=rows_of_ids(above), tenant=tenant)
        for reader in (run_id for run_id, reads in below if reads):
            letter = Letter("cancel", said, "cancel", now_ms, lines.GRACE_MS)
            yield from runs.deliver(tenant, reader, letter)
        above = [run_id for run_id, _ in below]
        gone += above
    yield _DROP(above=rows_of_ids(gone), tenant=tenant), memories.unlearning(tenant, gone)


def is_rolled_back(tenant: str, run_id: str, *, hold: bool = False) -> Work[bool]:
    """Say whether the run was, or any that it was started for.

    With `hold` it stays so until the transaction ends: whoever rolls them back waits for that.
    """
    here: str | None = run_id
    while here is not None:
        found = yield (_HOLD if hold else _LOOK)(tenant=tenant, run_id=here)
        if not found:
            return False
        rolled_back_by, here = found[0]
        if rolled_back_by is not None:
            return True
    return False
