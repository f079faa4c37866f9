"""Erasures as clients read them."""

from typing import Any

from milepost.live.frames import rfc3339, rfc3339_or_none
from milepost.store.erasures import ErasureRow


def show_erasure(row: ErasureRow) -> dict[str, Any]:
    """Return how far an erasure has come; whose it is is told as long as it is known."""
    return {
        "id": row.id,
        "status": "running" if row.ended_ms is None else "completed",
        "user": row.user,
        "stage": row.stage,
        "erased": row.counted,
        "asked_by": row.asked_by,
        "created_at": rfc3339(row.created_ms),
        "ended_at": rfc3339_or_none(row.ended_ms),
    }
