"""What a run's log and its inbox say of its tool calls, read so that nobody changes either."""

from sqlalchemy import select

from milepost.store import log, schema
from milepost.store.dialect import number, text, words
from milepost.store.missing import run_not_found
from milepost.store.records import InboxMessage, LogEntry
from milepost.store.work import Statement, Work

# All that begins, answers or gives up a call.
TYPES = (
    "run.forked",
    "tool_call.requested",
    "tool_call.started",
    "tool_call.completed",
    "tool_call.failed",
    "tool_call.denied",
)

_E = schema.events.c
_R = schema.runs.c
# Whoever puts something into the inbox takes this lock; who only appends does not.
_LOCK = Statement(
    select(_R.id).where(_R.id == text("run_id"), _R.tenant == text("tenant")).with_for_update()
)
_READ = Statement(
    select(_E.seq, _E.type, _E.time_ms, _E.data)
    .where(_E.run_id == text("run_id"), _E.tenant == text("tenant"), _E.type.in_(words(TYPES)))
    .order_by(_E.seq)
)


# Besides, all that says how a call stands, whoever has it in hand.
LEDGER_TYPES = (
    *TYPES,
    "tool_call.screened",
    "tool_call.interrupted",
    "tool_call.checked",
    "child_run.started",
    "approval.requested",
    "approval.decided",
    "approval.expired",
    "approval.withdrawn",
    "run.forked",
    "run.resumed",
    "run.completed",
    "run.incomplete",
    "run.failed",
    "run.cancelled",
    "run.expired",
)
_LEDGER = Statement(
    select(_E.seq, _E.type, _E.time_ms, _E.data)
    .where(
        _E.run_id == text("run_id"),
        _E.tenant == text("tenant"),
        _E.type.in_(words(LEDGER_TYPES)),
        _E.seq > number("after"),
    )
    .order_by(_E.seq)
    .limit(number("limit"))
)


def of_run(tenant: str, run_id: str, *, after: int, limit: int) -> Work[list[LogEntry]]:
    """Return up to `limit` events behind `after` that say how the run's calls stand."""
    found = yield _LEDGER(tenant=tenant, run_id=run_id, after=after, limit=limit)
    return [LogEntry(*row) for row in found]


def locked(tenant: str, run_id: str) -> Work[tuple[list[LogEntry], list[InboxMessage]]]:
    """Return the run's events of tool calls and what its worker has not read yet.

    Nobody else can bring it anything before the end of the transaction. What its worker reads just
    now goes from the inbox into the log: so the inbox comes first, or it could be in neither.
    Raises `NotFoundError` if the tenant has no such run.
    """
    if not (yield _LOCK(tenant=tenant, run_id=run_id)):
        raise run_not_found(run_id)
    _, letters = yield from log.inbox(tenant, run_id, 0)
    found = yield _READ(tenant=tenant, run_id=run_id)
    return [LogEntry(*row) for row in found], letters
