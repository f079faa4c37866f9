"""Knowledge: facts that stay, and the log of the last days."""

from milepost.core.memories import Finding
from milepost.memory import knowledge

NOON_MS = 1_700_000_000_000 - 1_700_000_000_000 % knowledge.DAY_MS + 12 * 3_600_000


def test_what_lasts_is_a_fact_and_the_rest_is_the_day_s() -> None:
    assert knowledge.fact({"text": "a", "lasting": True}) == Finding("fact", "a")
    assert knowledge.fact({"text": "a", "lasting": "yes"}) == Finding("log", "a")
    assert knowledge.fact({"text": " "}) is None


def test_recent_days_are_today_and_those_before_it() -> None:
    midnight = NOON_MS - 12 * 3_600_000

    assert knowledge.since_ms(NOON_MS, 1) == midnight
    assert knowledge.since_ms(NOON_MS, 2) == midnight - knowledge.DAY_MS


def test_the_log_is_shown_with_its_day() -> None:
    assert knowledge.shown(Finding("log", "a cold"), NOON_MS) == "2023-11-14: a cold"
    assert knowledge.shown(Finding("fact", "a"), NOON_MS) == "a"
