"""An approval as clients read it."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from milepost.live.frames import rfc3339
from milepost.store import keys
from milepost.store.approvals import ApprovalRow
from milepost.store.store import Store


async def names_of(store: Store, rows: Sequence[ApprovalRow]) -> dict[str, str]:
    """Return the names of the keys that decided these approvals, which are of one tenant."""
    deciders = {row.decided_by for row in rows if row.decided_by}
    return await store.read(keys.names(rows[0].tenant, deciders)) if deciders else {}


def show_approval(row: ApprovalRow, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the question and, once there is one, its answer; `names` are those of keys."""
    return {
        "id": row.id,
        "status": row.status,
        "run_id": row.run_id,
        "session_id": row.session_id,
        "agent": row.agent,
        "user": row.user,
        "call_id": row.call_id,
        "tool": row.tool,
        "arguments": orjson.loads(row.arguments),
        "digest": row.digest,
        "preview": row.preview,
        "reason": row.reason,
        "required": row.required,
        "created_at": rfc3339(row.created_ms),
        "expires_at": rfc3339(row.expires_ms),
        "decision": row.decision,
        "decided_by": row.decided_by,
        "decided_by_name": row.decided_by and names.get(row.decided_by, row.decided_by),
        "decided_at": None if row.decided_ms is None else rfc3339(row.decided_ms),
        "comment": row.comment,
    }
