"""A run as its worker would see it, for those who only look."""

from milepost.store.records import Claim
from milepost.store.runs import RunRow


def claim_of(row: RunRow) -> Claim:
    """Return the run as if it were held; nobody appends by this."""
    return Claim(
        run_id=row.id,
        tenant=row.tenant,
        session_id=row.session_id,
        agent_id=row.agent_id,
        agent_version=row.agent_version,
        user=row.user,
        epoch=row.epoch,
        head=0,
        inbox_seq=0,
        turns=0,
        metadata=row.metadata,
        trace_parent=row.trace_parent,
        entries=None,
        scopes=row.scopes,
        lane=row.lane,
    )
