"""Timetables: when a schedule comes, by a cron expression on the clock of a place.

The expression and what a clock change does to it are Debian's (crontab(5), cron(8)): a time of day
that a change leaves out comes right behind it, and one that a change repeats comes once.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

ZONES_MAX = 1_024
NO_PLACE = "Factory"
"""What the database calls a zone that was not set yet."""

CRON_CHARS_MAX = 200
ZONE_CHARS_SAID = 64
"""So much of what is no zone is repeated to whoever named it."""

_FITTING = {
    "Bad minute": "0 to 59",
    "Bad hour": "0 to 23",
    "Bad day-of-month": "1 to 31, in a month that has that day, L or LW",
    "Bad month": "1 to 12, or JAN to DEC",
    "Bad day-of-week": "0 to 7, or SUN to SAT",
}
"""What fits where, by what CronSim says of what does not; in the order of the fields."""

_CRON = re.compile(r"[0-9A-Za-z*,/#-]+(?: +[0-9A-Za-z*,/#-]+){4}")


@dataclass(frozen=True, slots=True)
class Timetable:
    """When something comes; times are Unix milliseconds, and always those of a whole minute."""

    cron: str
    zone: ZoneInfo

    @classmethod
    def of(cls, cron: str, timezone: str) -> "Timetable":
        """Return it; raise `ValueError` for what is no expression, or no zone."""
        require_cron(cron)
        return cls(cron, zone_of(timezone))

    def after(self, time_ms: int) -> int | None:
        """Return the first time behind this one, None if there is none in the next fifty years."""
        # Where a clock is set back an hour comes twice: what is behind the one is before the other.
        return next((each for each in self._from(time_ms) if each > time_ms), None)

    def upcoming(self, time_ms: int, count: int) -> list[int]:
        """Return the first times behind this one, `count` at most."""
        found: list[int] = []
        while len(found) < count:
            following = self.after(found[-1] if found else time_ms)
            if following is None:
                break
            found.append(following)
        return found

    def latest(self, since_ms: int, until_ms: int) -> int:
        """Return the last time not behind `until_ms`, which is `since_ms` if none came since."""
        backwards = _Times(self.cron, self._moment(until_ms // 1000 + 1), reverse=True)
        found = next((_ms(each) for each in backwards), since_ms)
        latest = max(found, since_ms) if found <= until_ms else since_ms
        # In the hour that a clock set back repeats, what came in the first is ahead on the clock.
        while (following := self.after(latest)) is not None and following <= until_ms:
            latest = following
        return latest

    def _from(self, time_ms: int) -> Iterator[int]:
        return map(_ms, _Times(self.cron, self._moment(time_ms // 1000)))

    def _moment(self, time_s: int) -> datetime:
        return datetime.fromtimestamp(time_s, self.zone)


class _Times(CronSim):
    """The times of an expression where an hour on the clock need not begin with one that passed.

    Lord Howe Island's clock is set by half an hour. CronSim goes from hour to hour by sixty
    minutes, and would stand in the middle of each from then on: past all that begin with one. To a
    minute that stands alone it goes at once, over one that the clock shows before.
    """

    def advance_hour(self) -> bool:
        """Go on to an hour that fits, or to a new day; return whether that is another."""
        if self.dt.hour in self.hours:
            return False
        while self.dt.hour not in self.hours:
            self.tick(3600 - 60 * self.dt.minute - self.dt.second)
            if self.dt.hour == 0:
                break
        return True

    def reverse_hour(self) -> bool:
        """Go back to an hour that fits, or to the day before; return whether that is another."""
        if self.dt.hour in self.hours:
            return False
        while self.dt.hour not in self.hours:
            self.tick(60 * self.dt.minute + self.dt.second + 1)
            if self.dt.hour == 23:
                break
        return True

    def advance_minute(self) -> bool:
        """Go on to a minute that fits, or to another hour; return whether that is another."""
        if self.dt.minute in self.minutes:
            return False
        hour = self.dt.hour
        while self.dt.minute not in self.minutes and self.dt.hour == hour:
            self.tick(60 - self.dt.second)
        return True

    def reverse_minute(self) -> bool:
        """Go back to a minute that fits, or to another hour; return whether that is another."""
        if self.dt.minute in self.minutes:
            return False
        hour = self.dt.hour
        while self.dt.minute not in self.minutes and self.dt.hour == hour:
            self.tick(self.dt.second + 1)
        return True


def require_cron(cron: str) -> str:
    """Return the expression; raise `ValueError` for what is none, or never comes."""
    if len(cron) > CRON_CHARS_MAX or not _CRON.fullmatch(cron):
        raise ValueError(
            "a cron expression has five fields, parted by spaces: minute, hour, day of the month,"
            " month and day of the week, such as 0 9 * * MON-FRI"
        )
    try:
        coming = next(CronSim(cron, datetime.now(UTC)), None)
    except CronSimError as error:
        raise ValueError(_unfitting(cron, str(error))) from error
    if coming is None:
        raise ValueError("no such day comes in the next fifty years")
    return cron


def _unfitting(cron: str, error: str) -> str:
    fields = dict(zip(_FITTING, cron.split(), strict=True))
    return (
        f"{error} {fields[error]!r}: write {_FITTING[error]},"
        " as in 0 9 * * MON-FRI for nine on workdays"
    )


@lru_cache(ZONES_MAX)
def zone_of(timezone: str) -> ZoneInfo:
    """Return the zone of this name in the IANA's database; raise `ValueError` if it has none.

    What else there is to read on a machine by a name, as its own zone or those that count leap
    seconds, is another on the next machine.
    """
    if timezone not in _names():
        raise ValueError(
            f"there is no such time zone as {timezone[:ZONE_CHARS_SAID]!r};"
            " name one as in Europe/Berlin, or UTC"
        )
    return ZoneInfo(timezone)


@lru_cache(1)
def _names() -> frozenset[str]:
    listed = files("tzdata").joinpath("zones").read_text(encoding="utf-8")
    return frozenset(listed.split()) - {NO_PLACE}


def _ms(moment: datetime) -> int:
    return round(moment.timestamp()) * 1000
