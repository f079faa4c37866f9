"""A run as clients read it."""

from typing import Any

import orjson

from milepost.live.frames import rfc3339, rfc3339_or_none
from milepost.store.records import LogEntry
from milepost.store.runs import RunRow

STATUSES = (
    "queued", "running", "waiting", "completed", "incomplete", "failed", "cancelled", "expired",
)  # fmt: skip
_QUEUED = {"queued": "ready", "scheduled": "scheduled", "blocked": "blocked"}


def show_run(row: RunRow) -> dict[str, Any]:
    """Return the run; what its end brought is null until then."""
    outcome = orjson.loads(row.outcome) if row.outcome else {}
    return {
        "id": row.id,
        "status": shown_status(row.status),
        "queued_reason": _QUEUED.get(row.status),
        "queue_position": row.ahead,
        "agent": row.agent,
        "agent_id": row.agent_id,
        "agent_version": row.agent_version,
        "session_id": row.session_id,
        "parent_run_id": row.parent_run_id,
        "rolled_back_by": row.rolled_back_by,
        "forked_from": None
        if row.forked_from is None
        else {"run_id": row.forked_from, "at_seq": row.forked_seq},
        "user": row.user,
        "made_by": row.made_by,
        "priority": row.lane,
        "created_at": rfc3339(row.created_ms),
        "ended_at": rfc3339_or_none(row.ended_ms),
        "deadline_at": rfc3339_or_none(row.deadline_ms),
        "scheduled_for": rfc3339_or_none(row.run_at_ms) if row.status == "scheduled" else None,
        "output": outcome.get("output"),
        "usage": outcome.get("usage"),
        "finish_reason": outcome.get("finish_reason"),
        "error": outcome.get("error"),
        "waiting_for": orjson.loads(row.waiting_for) if row.waiting_for else None,
        "metadata": orjson.loads(row.metadata),
    }


def shown_status(status: str) -> str:
    """Return the status as clients know it: why a run is queued is told apart."""
    return "queued" if status in _QUEUED else status


def show_log_entry(run_id: str, entry: LogEntry) -> dict[str, Any]:
    """Return an event of the log, in the shape that streams carry."""
    return {
        "type": entry.type,
        "seq": entry.seq,
        "time": rfc3339(entry.time_ms),
        "run_id": run_id,
        "data": orjson.loads(entry.data),
    }
