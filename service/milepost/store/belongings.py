"""What belongs to runs and to sessions, and goes with them: not the usage, which is the bill."""

from collections.abc import Iterable, Sequence

from sqlalchemy import Column, delete, select, tuple_

from milepost.store import leftovers, memories, schema
from milepost.store.dialect import among, in_reach, reach, rows, rows_of_ids, text
from milepost.store.leftovers import TIME, Cause
from milepost.store.partitions import Partition
from milepost.store.work import Call, Statement, Work

_R = schema.runs.c
_gone = rows("gone", "id")
_gone_ids = select(_gone.c.id).scalar_subquery()
_closed = rows("closed", "id")


def _of_runs(column: Column[str]) -> Statement:
    """Return the deletion of what belongs to runs, in the tenant that they belong to."""
    of_tenant = column.table.c.tenant == text("tenant")
    return Statement(delete(column.table).where(among(column, _gone_ids), of_tenant))


_DELETE_VOTES = Statement(
    delete(schema.votes).where(
        schema.votes.c.tenant == text("tenant"),
        schema.votes.c.approval_id.in_(
            select(schema.approvals.c.id).where(
                schema.approvals.c.run_id.in_(select(_gone.c.id)),
                schema.approvals.c.tenant == text("tenant"),
            )
        ),
    )
)
_DELETE_PINS = Statement(
    delete(schema.pins).where(
        schema.pins.c.tenant == text("tenant"),
        tuple_(schema.pins.c.session_id, schema.pins.c.turn).in_(
            select(_R.session_id, _R.turn).where(among(_R.id, _gone_ids), _R.turn.is_not(None))
        ),
    )
)
_DELETE_EVENTS = Statement(
    delete(schema.events).where(
        among(schema.events.c.run_id, _gone_ids),
        in_reach(schema.events.c.run_id),
        schema.events.c.tenant == text("tenant"),
    )
)
_DELETIONS_OF_RUNS = (
    _DELETE_VOTES,
    _DELETE_PINS,
    *(
        _of_runs(column)
        for column in (
            schema.approvals.c.run_id,
            schema.artifacts.c.run_id,
            schema.channel_messages.c.run_id,
            schema.inbox.c.run_id,
            schema.outbox.c.run_id,
            schema.pending_actions.c.run_id,
            schema.recollections.c.run_id,
            schema.spans.c.run_id,
            schema.summaries.c.run_id,
            schema.webhook_deliveries.c.run_id,
            schema.runs.c.id,
        )
    ),
)
_DELETIONS_OF_SESSIONS = tuple(
    Statement(
        delete(column.table).where(
            column.table.c.tenant == text("tenant"),
            among(column, select(_closed.c.id).scalar_subquery()),
        )
    )
    for column in (
        schema.artifact_contents.c.session_id,
        schema.conversations.c.session_id,
        schema.grants.c.session_id,
        schema.pins.c.session_id,
        schema.policies.c.scope,
        schema.summaries.c.session_id,
        schema.sessions.c.id,
    )
)


def erasing_runs(
    tenant: str, run_ids: Iterable[str], cause: Cause = TIME, past: Sequence[Partition] = ()
) -> tuple[Call, ...]:
    """Return the statements that erase runs, which are over, with all that belongs to them.

    What tools left behind outside the database is written down, for whoever removes it. The logs
    in `past` partitions are left for these to be dropped.
    """
    known = list(run_ids)
    gone = rows_of_ids(known)
    logged = [run_id for run_id in known if not any(part.has(run_id) for part in past)]
    events = rows_of_ids(logged)
    return (
        leftovers.of_runs(tenant, gone, cause),
        _DELETE_EVENTS(gone=events, tenant=tenant, **reach(logged)),
        *(statement(gone=gone, tenant=tenant) for statement in _DELETIONS_OF_RUNS),
    )


def erase_sessions(tenant: str, session_ids: Iterable[str], cause: Cause = TIME) -> Work[None]:
    """Erase sessions, which have no runs any more, with all that belongs to them."""
    known = list(session_ids)
    closed = rows_of_ids(known)
    yield (
        leftovers.of_sessions(tenant, closed, cause),
        leftovers.origins_of(tenant, closed),
        *(statement(closed=closed, tenant=tenant) for statement in _DELETIONS_OF_SESSIONS),
    )
    yield from memories.delete_of_sessions(tenant, known)
