"""A schedule as clients read it."""

from functools import lru_cache
from typing import Any

import orjson

from milepost.live.frames import rfc3339, rfc3339_or_none
from milepost.runtime.timetable import Timetable
from milepost.store.schedules import ScheduleRow

UPCOMING = 5
REMEMBERED_MAX = 4_096


def show_schedule(row: ScheduleRow) -> dict[str, Any]:
    """Return the schedule, with the next times at which it comes as things stand."""
    late_ms = row.late_max_ms
    return {
        "id": row.id,
        "name": row.name,
        "cron": row.cron,
        "timezone": row.timezone,
        "run": orjson.loads(row.run),
        "overlap": row.overlap,
        "late_max_s": None if late_ms is None else late_ms / 1000,
        "enabled": bool(row.enabled),
        "version": row.version,
        "created_at": rfc3339(row.created_ms),
        "updated_at": rfc3339(row.updated_ms),
        "next_at": rfc3339_or_none(row.next_ms),
        "upcoming": [rfc3339(each) for each in _upcoming(row)],
        "last": None if row.last is None else _show_last(orjson.loads(row.last)),
        "metadata": orjson.loads(row.metadata),
    }


def _upcoming(row: ScheduleRow) -> tuple[int, ...]:
    if row.next_ms is None:
        return ()
    try:
        return (row.next_ms, *_behind(row.cron, row.timezone, row.next_ms))
    except ValueError:  # A zone that another machine knew.
        return (row.next_ms,)


# To find days that come every 28 years takes milliseconds, and a page may have a hundred of them.
@lru_cache(REMEMBERED_MAX)
def _behind(cron: str, timezone: str, next_ms: int) -> tuple[int, ...]:
    return tuple(Timetable.of(cron, timezone).upcoming(next_ms, UPCOMING - 1))


def _show_last(told: dict[str, Any]) -> dict[str, Any]:
    return {
        "scheduled_for": rfc3339(told["for_ms"]),
        "at": rfc3339(told["at_ms"]),
        "result": told["result"],
        "run_id": told["run_id"],
        "code": told["code"],
        "detail": told["detail"],
    }
