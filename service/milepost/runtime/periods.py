"""Periods of budgets: hours, days and months of the calendar, in UTC."""

from datetime import UTC, datetime, timedelta
from typing import Literal

from milepost.store.budgets import BudgetPeriod


def period_of(kind: BudgetPeriod, now_ms: int) -> tuple[int, int | None]:
    """Return when the present period began and when the next one does, in Unix milliseconds.

    There is but one period `total`: it began at 0, and no other follows.
    """
    if kind == "total":
        return 0, None
    start = _start(kind, datetime.fromtimestamp(now_ms // 1000, UTC))
    return _ms(start), _ms(_start(kind, start + _BEYOND[kind]))


_BEYOND = {"hour": timedelta(hours=1), "day": timedelta(days=1), "month": timedelta(days=32)}


def _start(kind: Literal["hour", "day", "month"], moment: datetime) -> datetime:
    hour = moment.replace(minute=0, second=0)
    match kind:
        case "hour":
            return hour
        case "day":
            return hour.replace(hour=0)
        case "month":
            return hour.replace(day=1, hour=0)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
