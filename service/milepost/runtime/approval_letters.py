"""What a run is told of the questions that it has put to people."""

from collections.abc import Mapping
from typing import Any

from milepost.core.events import (
    ApprovalDecided,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalWithdrawn,
)

KINDS = frozenset({"approval", "approval_expired", "approval_escalated", "approval_withdrawn"})


def event_in(
    kind: str, said: Mapping[str, Any]
) -> ApprovalDecided | ApprovalExpired | ApprovalEscalated | ApprovalWithdrawn:
    """Return the event that a letter of this kind becomes."""
    approval_id, call_id = said["approval_id"], said["call_id"]
    match kind:
        case "approval_expired":
            return ApprovalExpired(approval_id, call_id, said.get("then", "deny"))
        case "approval_escalated":
            approvers = tuple(said["approvers"])
            return ApprovalEscalated(approval_id, call_id, approvers, said["expires_at_ms"])
        case "approval_withdrawn":
            return ApprovalWithdrawn(approval_id, call_id, said["by"], said["reason"])
        case _:
            return ApprovalDecided(
                approval_id=approval_id,
                call_id=call_id,
                decision=said["decision"],
                by=said["by"],
                comment=said["comment"],
                arguments=said["arguments"],
                digest=said["digest"],
                result=said.get("result"),
            )
