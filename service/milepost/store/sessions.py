"""Sessions: conversations, whose history is the logs of their runs."""

from collections.abc import Iterable

from sqlalchemy import select

from milepost.store import log, schema
from milepost.store.dialect import number, text
from milepost.store.work import Rows, Statement, Work

_R = schema.runs.c

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


def history(tenant: str, session_id: str, through_turn: int, *, limit: int) -> Work[list[str]]:
    """Return the session's last ended runs up to and with `through_turn`, in their order."""
    found = yield _HISTORY(tenant=tenant, session_id=session_id, through=through_turn, limit=limit)
    return [run_id for (run_id,) in reversed(found)]


def logs(run_ids: Iterable[str]) -> Work[Rows]:
    """Return the runs' logs: rows of run, seq, type, time and data."""
    return (yield log.read_together(run_ids))
