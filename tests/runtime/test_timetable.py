"""Timetables: when a schedule comes, on a clock that may be set forward and back."""

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.runtime.timetable import Timetable, require_cron, zone_of

BERLIN = "Europe/Berlin"
MINUTE_MS = 60_000
YEAR_MS = 366 * 86_400_000
NOW_MS = round(datetime(2099, 5, 4, 12, 30, tzinfo=UTC).timestamp()) * 1000


def ms(text: str, zone: str = "UTC") -> int:
    """Return the Unix milliseconds of a time on the clock of a place."""
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def shown(times: list[int], zone: str) -> list[str]:
    found = (datetime.fromtimestamp(each / 1000, ZoneInfo(zone)) for each in times)
    return [each.strftime("%m-%d %H:%M %z") for each in found]


def test_it_comes_on_the_clock_of_its_place_in_summer_and_in_winter() -> None:
    nine = Timetable.of("0 9 * * *", BERLIN)

    assert nine.after(ms("2099-07-01T06:59:59.999")) == ms("2099-07-01T07:00")
    assert nine.after(ms("2099-01-01T07:59:59.999")) == ms("2099-01-01T08:00")


def test_a_time_is_not_behind_itself() -> None:
    nine = Timetable.of("0 9 * * *", "UTC")

    assert nine.after(ms("2099-07-01T09:00")) == ms("2099-07-02T09:00")
    assert nine.after(ms("2099-07-01T09:00:00.001")) == ms("2099-07-02T09:00")


def test_upcoming_times_follow_one_another() -> None:
    workdays = Timetable.of("30 8 * * MON-FRI", "UTC")

    found = workdays.upcoming(ms("2099-05-08T12:00"), 3)  # a Friday

    assert shown(found, "UTC") == ["05-11 08:30 +0000", "05-12 08:30 +0000", "05-13 08:30 +0000"]


def test_a_time_that_a_clock_set_forward_leaves_out_comes_right_behind_it() -> None:
    daily = Timetable.of("30 2 * * *", BERLIN)

    found = daily.upcoming(ms("2026-03-28T12:00"), 2)

    assert shown(found, BERLIN) == ["03-29 03:00 +0200", "03-30 02:30 +0200"]


def test_a_time_that_a_clock_set_back_repeats_comes_once() -> None:
    daily = Timetable.of("30 2 * * *", BERLIN)

    found = daily.upcoming(ms("2026-10-24T12:00"), 2)

    assert shown(found, BERLIN) == ["10-25 02:30 +0200", "10-26 02:30 +0100"]


@pytest.mark.parametrize(
    ("day", "cron", "times"),
    [
        ("2026-04-05", "0 */6 * * *", ["00:00 +1100", "06:00 +1030", "12:00 +1030", "18:00 +1030"]),
        ("2026-10-04", "0 */6 * * *", ["00:00 +1030", "06:00 +1100", "12:00 +1100", "18:00 +1100"]),
        ("2026-04-05", "*/20 2 * * *", ["02:00 +1030", "02:20 +1030", "02:40 +1030"]),
        ("2026-10-04", "*/20 2 * * *", ["02:40 +1100"]),
        (
            "2026-04-05",
            "*/20 1 * * *",
            ["01:00 +1100", "01:20 +1100", "01:40 +1100", "01:40 +1030"],
        ),
        ("2026-04-05", "0 */24 * * *", ["00:00 +1100"]),
    ],
)
def test_where_a_clock_is_set_by_half_an_hour_no_time_is_left_out(
    day: str, cron: str, times: list[str]
) -> None:
    howe = Timetable.of(cron, "Australia/Lord_Howe")
    midnight, end = ms(day, "Australia/Lord_Howe"), ms(f"{day}T23:59", "Australia/Lord_Howe")

    found = [each for each in howe.upcoming(midnight - 1, 5) if each < end]

    assert shown(found, "Australia/Lord_Howe") == [f"{day[5:]} {each}" for each in times]
    assert [howe.latest(midnight - 1, each) for each in found] == found
    assert howe.latest(midnight, end) == found[-1]


@pytest.mark.parametrize(
    ("since", "times"),
    [
        ("2026-04-04T14:00", ["04-05 01:50 +1100", "04-05 01:50 +1030", "04-05 02:50 +1030"]),
        ("2026-10-03T15:00", ["10-04 01:50 +1030", "10-04 02:50 +1100", "10-04 03:50 +1100"]),
    ],
)
def test_where_a_clock_is_set_by_half_an_hour_what_comes_every_hour_comes_in_each(
    since: str, times: list[str]
) -> None:
    howe = Timetable.of("50 * * * *", "Australia/Lord_Howe")

    found = howe.upcoming(ms(since), 3)

    assert shown(found, "Australia/Lord_Howe") == times
    assert [howe.latest(found[0], each) for each in found] == found


def test_what_comes_every_hour_comes_in_both_hours_of_a_clock_set_back() -> None:
    hourly = Timetable.of("0 * * * *", BERLIN)

    found = hourly.upcoming(ms("2026-10-24T23:30"), 3)

    assert shown(found, BERLIN) == ["10-25 02:00 +0200", "10-25 02:00 +0100", "10-25 03:00 +0100"]


@pytest.mark.parametrize(
    ("cron", "first"), [("*/20 2 * * *", "03-30 02:00 +0200"), ("0 */2 * * *", "03-29 04:00 +0200")]
)
def test_what_comes_whenever_the_clock_shows_it_does_not_come_where_an_hour_is_left_out(
    cron: str, first: str
) -> None:
    often = Timetable.of(cron, BERLIN)

    assert shown(often.upcoming(ms("2026-03-29T00:30"), 1), BERLIN) == [first]


def test_the_latest_time_is_the_last_of_those_that_were_missed() -> None:
    hourly = Timetable.of("0 * * * *", "UTC")
    due = ms("2099-05-04T03:00")

    assert hourly.latest(due, ms("2099-05-04T07:59:59.999")) == ms("2099-05-04T07:00")
    assert hourly.latest(due, ms("2099-05-04T08:00")) == ms("2099-05-04T08:00")


@pytest.mark.parametrize("cron", ["30 2 * * *", "15,30 2 * * *", "30 1-3 * * *"])
def test_in_an_hour_that_is_repeated_the_latest_time_is_that_of_the_first_one(cron: str) -> None:
    """A clock set back shows a time that came already, and yet that time is the last."""
    daily = Timetable.of(cron, BERLIN)
    since = ms("2026-10-22T00:30")

    assert daily.latest(since, ms("2026-10-25T01:10")) == ms("2026-10-25T00:30")


def test_the_latest_time_is_the_one_that_is_due_if_no_other_came_since() -> None:
    hourly = Timetable.of("0 * * * *", "UTC")
    due = ms("2099-05-04T03:00")

    assert hourly.latest(due, due) == due
    assert hourly.latest(due, due - 5_000) == due, "by a clock that is behind"


@pytest.mark.parametrize(
    ("cron", "first"),
    [
        ("0 0 L * *", "2099-05-31T00:00"),
        ("0 0 LW * *", "2099-05-29T00:00"),
        ("0 0 * * MON#2", "2099-05-11T00:00"),
        ("0 0 * * 5L", "2099-05-29T00:00"),
        ("0 0 13 * FRI", "2099-05-08T00:00"),
        ("*/20 1-2,5 * * *", "2099-05-05T01:00"),
        ("0  0   1 JAN *", "2100-01-01T00:00"),
    ],
)
def test_fields_say_what_crontab_says_of_them(cron: str, first: str) -> None:
    assert Timetable.of(cron, "UTC").after(NOW_MS) == ms(first)


@pytest.mark.parametrize(
    ("cron", "why"),
    [
        ("", "five fields"),
        ("0 9 * *", "five fields"),
        ("0 0 9 * * *", "five fields"),
        ("@daily", "five fields"),
        (" 0 9 * * *", "five fields"),
        ("0\t9 * * *", "five fields"),
        ("0 9 * * *\n", "five fields"),
        ("0 ٩ * * *", "five fields"),
        ("0,0," * 60 + "0 9 * * *", "five fields"),
        ("60 9 * * *", "Bad minute"),
        ("0 9-7 * * *", "Bad hour"),
        ("0 9 * * MO", "Bad day-of-week"),
        ("*/0 * * * *", "Bad minute"),
        ("0 9 31 2 *", "Bad day-of-month"),
        ("0 0 */20 * 1L", "fifty years"),
    ],
)
def test_what_is_no_expression_or_never_comes_is_refused_in_words(cron: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        require_cron(cron)


@pytest.mark.parametrize(
    ("cron", "why"),
    [
        ("61 9 * * *", "Bad minute '61': write 0 to 59, as in"),
        ("0 24 * * *", "Bad hour '24': write 0 to 23, as in"),
        ("0 9 32 * *", "Bad day-of-month '32': write 1 to 31"),
        ("0 9  30 2 *", "Bad day-of-month '30': write 1 to 31, in a month that has that day"),
        ("0 9 * JA *", "Bad month 'JA': write 1 to 12, or JAN to DEC"),
        ("0 9 * * 5-1", "Bad day-of-week '5-1': write 0 to 7, or SUN to SAT"),
    ],
)
def test_a_field_that_does_not_fit_is_told_with_what_would(cron: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        require_cron(cron)


def test_a_zone_that_there_is_not_is_named() -> None:
    with pytest.raises(ValueError, match="no such time zone as 'Mars/Olympus'"):
        zone_of("Mars/Olympus")


def test_of_what_is_no_zone_no_more_is_repeated_than_the_longest_name() -> None:
    with pytest.raises(ValueError, match=r"no such time zone as 'A{64}'"):
        zone_of("A" * 100_000)


@pytest.mark.parametrize(
    "timezone",
    ["", "Berlin", "Europe/", "Europe", "../etc/passwd", "/etc/passwd", "Europe/Berlin/", "A" * 65,
     "Europe/../Europe/Berlin", "a\x00b", "tzdata.zi", "zone.tab", "__init__/Berlin", "Factory",
     "localtime", "posixrules", "posix/UTC", "right/UTC"],
)  # fmt: skip
def test_what_is_no_zone_is_refused_in_words(timezone: str) -> None:
    with pytest.raises(ValueError, match="no such time zone"):
        zone_of(timezone)


FIELDS = st.tuples(
    st.sampled_from(["*", "0", "7,30", "*/15", "50-59"]),
    st.sampled_from(["*", "2", "1-3", "*/6", "23"]),
    st.sampled_from(["*", "1", "29", "L", "*/10"]),
    st.sampled_from(["*", "3", "10", "JAN-JUN"]),
    st.sampled_from(["*", "SUN", "1-5", "6L"]),
)


@given(
    fields=FIELDS,
    zone=st.sampled_from(["UTC", BERLIN, "America/St_Johns", "Australia/Lord_Howe"]),
    since_ms=st.integers(NOW_MS, NOW_MS + YEAR_MS),
)
def test_each_time_is_behind_the_one_before_and_on_a_whole_minute(
    fields: tuple[str, ...], zone: str, since_ms: int
) -> None:
    timetable = Timetable.of(" ".join(fields), zone)

    found = timetable.upcoming(since_ms, 5)

    assert found == sorted({*found})
    assert not found or found[0] > since_ms
    assert all(each % MINUTE_MS == 0 for each in found)
    for due, following in pairwise(found):
        assert timetable.after(following - 1) == following
        assert due <= timetable.latest(due, following - 1) < following
