"""What is done to batches, each act with its audit row."""

from typing import Any

import orjson

from milepost.api.access import Principal
from milepost.runtime.journal import Ports
from milepost.store import audit, batches
from milepost.store.audit import AuditRow
from milepost.store.batches import BatchRow, NewBatch
from milepost.store.work import Work


class BatchActs:
    """Acts of one caller, who is written down in the transaction of each."""

    def __init__(self, ports: Ports, principal: Principal) -> None:
        self._tenant = principal.tenant
        self._principal = principal
        self._now_ms = ports.clock()
        self._act_id = ports.new_id("aud")

    def create(self, batch: NewBatch, chunks: list[str]) -> Work[BatchRow]:
        """Keep a batch and its items."""
        row = yield from batches.create(batch, chunks)
        details = {"agent": row.agent, "agent_version": row.agent_version, "total": row.total}
        yield from audit.add(self._act("batch.created", row.id, details))
        return row

    def cancel(self, batch_id: str, reason: str | None) -> Work[BatchRow]:
        """Let no other item of it become a run; doing so twice changes nothing."""
        before = yield from batches.find(self._tenant, batch_id)
        row = yield from batches.cancel(
            self._tenant, batch_id, by=self._principal.name, reason=reason, now_ms=self._now_ms
        )
        if row.status == "cancelling" and before.status == "running":
            details = {"reason": reason, "begun": row.started, "total": row.total}
            yield from audit.add(self._act("batch.cancelled", batch_id, details))
        return row

    def delete(self, batch_id: str) -> Work[None]:
        """Erase one that is over."""
        act = self._act("batch.deleted", batch_id, {})
        yield from audit.written_down(batches.delete(self._tenant, batch_id), act)

    def _act(self, action: str, batch_id: str, details: dict[str, Any]) -> AuditRow:
        return AuditRow(
            id=self._act_id,
            tenant=self._tenant,
            actor=self._principal.id,
            action=action,
            target=batch_id,
            details=orjson.dumps(details).decode(),
            time_ms=self._now_ms,
        )
