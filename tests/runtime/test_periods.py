"""Periods: whole hours, days and months of the calendar, in UTC."""

from datetime import UTC, datetime

import pytest

from milepost.runtime.periods import period_of
from milepost.store.budgets import BudgetPeriod


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("kind", "now", "start", "following"),
    [
        ("hour", "2026-11-21T10:59:59.999", "2026-11-21T10:00", "2026-11-21T11:00"),
        ("hour", "2026-12-31T23:00", "2026-12-31T23:00", "2027-01-01T00:00"),
        ("day", "2026-11-21T00:00", "2026-11-21T00:00", "2026-11-22T00:00"),
        ("day", "2028-02-28T12:30", "2028-02-28T00:00", "2028-02-29T00:00"),
        ("month", "2026-01-31T12:30", "2026-01-01T00:00", "2026-02-01T00:00"),
        ("month", "2026-12-01T00:00", "2026-12-01T00:00", "2027-01-01T00:00"),
    ],
)
def test_a_period_is_that_of_the_calendar(
    kind: BudgetPeriod, now: str, start: str, following: str
) -> None:
    assert period_of(kind, ms(now)) == (ms(start), ms(following))


def test_the_total_never_begins_anew() -> None:
    assert period_of("total", ms("2026-11-21T10:59")) == (0, None)
