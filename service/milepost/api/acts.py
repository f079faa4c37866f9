"""Acts: what somebody did, as the audit trail keeps it."""

from collections.abc import Mapping
from typing import Any

import orjson

from milepost.api.access import Principal
from milepost.runtime.journal import Ports
from milepost.store.audit import AuditRow


def act_of(
    ports: Ports, principal: Principal, action: str, target: str, details: Mapping[str, Any]
) -> AuditRow:
    """Return that this caller did `action` to `target`, just now."""
    return AuditRow(
        id=ports.new_id("aud"),
        tenant=principal.tenant,
        actor=principal.id,
        action=action,
        target=target,
        details=orjson.dumps(details).decode(),
        time_ms=ports.clock(),
    )
