"""What a webhook is told: the event as clients see it, with what it is about, within a bound."""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from milepost.core.errors import MilepostError, NotFoundError
from milepost.core.webhooks import REMINDER_TYPE
from milepost.live.frames import rfc3339
from milepost.runtime.links import Links
from milepost.store import approvals, log, runs
from milepost.store.approvals import ApprovalRow
from milepost.store.runs import RunRow
from milepost.store.store import Store
from milepost.store.webhook_deliveries import DeliveryRow
from milepost.store.webhooks import WebhookRow

BODY_BYTES_MAX = 64 * 1024
FIELD_BYTES_MIN = 1024

ShowApproval = Callable[[ApprovalRow], Awaitable[dict[str, Any]]]
"""Returns an approval as clients read it."""

_ASKING = frozenset({"approval.requested", "approval.escalated", REMINDER_TYPE})


class ErasedError(MilepostError):
    """What was to be told is gone, with the session that it belonged to."""


class Messages:
    """Writes the bodies, from what is in the store at the moment.

    Nothing of a run is kept with a delivery: what is erased before it was sent is not sent.
    """

    def __init__(
        self, store: Store, links: Links, show: ShowApproval, public_url: str | None
    ) -> None:
        self._store = store
        self.links = links
        self._show = show
        self._public_url = public_url.rstrip("/") if public_url else ""

    async def body(self, row: DeliveryRow, hook: WebhookRow) -> bytes:
        """Return the message. Raises `ErasedError` where there is nothing left to be told."""
        said: dict[str, Any] = {} if row.data is None else orjson.loads(row.data)
        if row.run_id is not None:
            said = {**await self._about(row, row.run_id), **said}
        if row.type.startswith("approval."):
            said |= await self._asked(row, hook, said)
        message = {
            "type": row.type,
            "id": row.id,
            "timestamp": rfc3339(row.event_ms),
            "tenant": row.tenant,
            "data": said,
        }
        return self._within(message)

    async def _about(self, row: DeliveryRow, run_id: str) -> dict[str, Any]:
        """Return the event, and of which run it is."""
        try:
            run = await self._store.read(runs.find(row.tenant, run_id))
        except NotFoundError as error:
            raise ErasedError(f"run {run_id} was erased") from error
        event: dict[str, Any] = {}
        if row.seq is not None:
            work = log.read(row.tenant, run_id, after=row.seq - 1, through=row.seq)
            entries = await self._store.read(work)
            if not entries:
                raise ErasedError(f"run {run_id} was erased")
            event = orjson.loads(entries[0].data)
        return {**event, "run_id": run_id, "seq": row.seq, "run": _shown(run)}

    async def _asked(
        self, row: DeliveryRow, hook: WebhookRow, said: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the approval as it is now, with links to answer it while it is open."""
        try:
            found = await self._store.read(approvals.find(row.tenant, said["approval_id"]))
        except NotFoundError as error:
            raise ErasedError(f"approval {said['approval_id']} was erased") from error
        about = {"approval": await self._show(found)}
        links = self.links.of(found, hook) if row.type in _ASKING else None
        return about if links is None else {**about, "links": links}

    def _within(self, message: dict[str, Any]) -> bytes:
        """Return the message encoded; its largest parts are left out where it is too large.

        In the place of each stands where it can be read.
        """
        body = orjson.dumps(message)
        said = message["data"]
        while len(body) > BODY_BYTES_MAX:
            place, name, size = _largest(said)
            if size < FIELD_BYTES_MIN:
                break  # Many small parts: bounded by the shape of events, which have few.
            place[name] = {"left_out_bytes": size, "url": self._url(said)}
            body = orjson.dumps(message)
        return body

    def _url(self, said: dict[str, Any]) -> str:
        if "approval_id" in said:
            return f"{self._public_url}/v1/approvals/{said['approval_id']}"
        after = (said.get("seq") or 1) - 1
        return f"{self._public_url}/v1/runs/{said.get('run_id')}/events?after={after}"


def _largest(said: dict[str, Any]) -> tuple[dict[str, Any], str, int]:
    """Return the largest part, of the event or of its approval: where it is, and its size."""
    approval = said.get("approval")
    places = [said, approval] if isinstance(approval, dict) else [said]
    return max(
        (
            (place, name, len(orjson.dumps(part)))
            for place in places
            for name, part in place.items()
            if name not in {"approval", "links"} and not _is_left_out(part)
        ),
        key=lambda found: found[2],
    )


def _is_left_out(part: object) -> bool:
    return isinstance(part, dict) and "left_out_bytes" in part


def _shown(run: RunRow) -> dict[str, Any]:
    """Return by what a receiver tells runs apart."""
    return {
        "id": run.id,
        "session_id": run.session_id,
        "agent": run.agent,
        "user": run.user,
        "metadata": orjson.loads(run.metadata),
    }
