"""A batch, and what became of its items, as clients read them."""

from dataclasses import asdict
from typing import Any

import orjson

from milepost.api.runs_shown import shown_status
from milepost.live.frames import rfc3339, rfc3339_or_none
from milepost.store.batches import BatchRow, ResultRow


def show_batch(row: BatchRow) -> dict[str, Any]:
    """Return the batch; its counts are those of its items, whose sum is `total`."""
    deadline_ms, ended_ms = row.deadline_after_ms, row.ended_ms
    return {
        "id": row.id,
        "status": row.status,
        "agent": row.agent,
        "agent_id": row.agent_id,
        "agent_version": row.agent_version,
        "concurrency": row.concurrency,
        "priority": row.lane,
        "deadline_s": None if deadline_ms is None else deadline_ms / 1000,
        "user": row.user,
        "made_by": row.made_by,
        "created_at": rfc3339(row.created_ms),
        "ended_at": rfc3339_or_none(ended_ms),
        **show_progress(row),
        "cancelled_by": row.cancelled_by,
        "cancel_reason": row.cancel_reason,
        "metadata": orjson.loads(row.metadata),
    }


def show_progress(row: BatchRow) -> dict[str, Any]:
    """Return how far the batch is, which its stream says with each of its events."""
    counted = row.counted
    counts = {"total": row.total, **asdict(counted)}
    counts["queued"] += row.pending
    return {
        "counts": counts,
        "done": counted.done,
        "usage": orjson.loads(row.usage),
    }


def show_result(row: ResultRow) -> dict[str, Any]:
    """Return what became of an item; one that is not over has a status and nothing else."""
    outcome = orjson.loads(row.outcome) if row.outcome else {}
    return {
        "index": row.place,
        "custom_id": row.custom_id,
        "run_id": row.run_id,
        "status": _shown(row.status),
        "output": outcome.get("output"),
        "error": outcome.get("error"),
        "finish_reason": outcome.get("finish_reason"),
        "usage": outcome.get("usage"),
    }


def _shown(status: str) -> str:
    """Return the status as clients know it; one that has no run yet is queued for one."""
    return "queued" if status == "pending" else shown_status(status)
