"""An approval as clients read it."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from milepost.core.changes import changes
from milepost.live.frames import rfc3339, rfc3339_or_none
from milepost.store import keys, votes
from milepost.store.approval_rows import ApprovalRow
from milepost.store.store import Store
from milepost.store.votes import VoteRow
from milepost.store.work import Work


async def shown(store: Store, row: ApprovalRow) -> dict[str, Any]:
    """Return one approval with the votes on it so far."""
    (approval,) = await store.read(showing([row]))
    return approval


def showing(rows: Sequence[ApprovalRow]) -> Work[list[dict[str, Any]]]:
    """Return approvals of one tenant, with the votes so far and the names of keys."""
    if not rows:
        return []
    tenant = rows[0].tenant
    cast = yield from votes.of_many(tenant, (row.id for row in rows))
    actors = {vote.actor for vote in cast} | {row.decided_by for row in rows if row.decided_by}
    names = (yield from keys.names(tenant, actors)) if actors else {}
    given: dict[str, list[VoteRow]] = {row.id: [] for row in rows}
    for vote in cast:
        given[vote.approval_id].append(vote)
    return [show_approval(row, given[row.id], names) for row in rows]


def show_approval(
    row: ApprovalRow, given: Sequence[VoteRow], names: Mapping[str, str]
) -> dict[str, Any]:
    """Return the question and, once there is one, its answer; `names` are those of keys."""
    return {
        "id": row.id,
        "kind": row.kind,
        "status": row.status,
        "run_id": row.run_id,
        "session_id": row.session_id,
        "agent": row.agent,
        "user": row.user,
        "call_id": row.call_id,
        "tool": row.tool,
        "arguments": orjson.loads(row.arguments),
        "diff": _diff(row),
        "digest": row.digest,
        "preview": row.preview,
        "reason": row.reason,
        "required": row.required,
        "terms": _terms(row),
        "escalated": bool(row.escalated),
        "remind_at": rfc3339_or_none(row.remind_ms),
        "requester": {
            "key": row.made_by,
            "user": row.requester,
            "speakers": row.terms_shown().get("speakers", []),
        },
        "votes": [_vote(row, vote, names) for vote in given],
        "created_at": rfc3339(row.created_ms),
        "expires_at": rfc3339(row.expires_ms),
        "decision": row.decision,
        "decided_by": row.decided_by,
        "decided_by_name": row.decided_by and names.get(row.decided_by, row.decided_by),
        "decided_at": rfc3339_or_none(row.decided_ms),
        "comment": row.comment,
        "version": row.version,
        "changed_at": rfc3339(row.changed_ms),
    }


def _diff(row: ApprovalRow) -> list[dict[str, Any]] | None:
    """Return what an edit has changed, place by place; None if nobody has edited the call."""
    if row.original is None:
        return None
    found = changes(orjson.loads(row.original), orjson.loads(row.arguments))
    return [{"path": each.path, "from": each.before, "to": each.after} for each in found]


def _terms(row: ApprovalRow) -> dict[str, Any]:
    said = row.terms_shown()
    return {
        "approvers": said.get("approvers", []),
        "self_approval": said.get("self_approval", True),
        "ttl_s": said.get("ttl_s"),
        "on_timeout": said.get("on_timeout", "deny"),
        "escalate_to": said.get("escalate_to", []),
        "remind_s": said.get("remind_s"),
    }


def _vote(row: ApprovalRow, vote: VoteRow, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "by": vote.actor,
        "by_name": names.get(vote.actor, vote.actor),
        "person": vote.voter,
        "decision": vote.decision,
        "comment": vote.comment,
        "at": rfc3339(vote.created_ms),
        "counts": vote.digest == row.digest and not row.has_lost(vote),
    }
