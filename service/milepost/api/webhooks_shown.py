"""Webhooks and their deliveries as clients read them."""

from typing import Any

import orjson

from milepost.live.frames import rfc3339, rfc3339_or_none
from milepost.store.webhook_deliveries import DeliveryRow
from milepost.store.webhooks import WebhookRow


def show_webhook(row: WebhookRow, now_ms: int) -> dict[str, Any]:
    """Return the webhook without its secret; its version counts the changes made to it."""
    before = row.secret_before_until_ms or 0
    return {
        "id": row.id,
        "url": row.url,
        "events": row.patterns,
        "description": row.description,
        "enabled": bool(row.enabled),
        "disabled_reason": row.disabled_reason,
        "approval_links": bool(row.approval_links),
        "approver": row.approver,
        "former_secret_until": rfc3339(before) if before > now_ms else None,
        "version": row.version,
        "created_at": rfc3339(row.created_ms),
        "updated_at": rfc3339(row.updated_ms),
        "metadata": orjson.loads(row.metadata),
    }


def show_delivery(row: DeliveryRow) -> dict[str, Any]:
    """Return the delivery with the last attempts, the latest of them last."""
    attempts = [_show_attempt(each) for each in orjson.loads(row.attempts)]
    waits = row.status == "pending" and not row.is_being_sent
    return {
        "id": row.id,
        "webhook_id": row.webhook_id,
        "type": row.type,
        "run_id": row.run_id,
        "seq": row.seq,
        "status": "sending" if row.is_being_sent else row.status,
        "failures": row.failures,
        "next_attempt_at": rfc3339(row.due_ms) if waits else None,
        "created_at": rfc3339(row.created_ms),
        "ended_at": rfc3339_or_none(row.ended_ms),
        "attempts": attempts,
    }


def _show_attempt(attempt: dict[str, Any]) -> dict[str, Any]:
    return {
        "at": rfc3339(attempt["time_ms"]),
        "latency_ms": attempt["duration_ms"],
        "response_status": attempt["status"],
        "response_excerpt": attempt["excerpt"],
        "error": attempt["error"],
    }
