"""The log's partitions on Postgres: one for the runs of each week, made before the week begins.

Run ids begin with the time, so all of a run's events are in one partition, and a statement that
names its run opens no other. What falls into no week lands in `events_default`, which is there lest
anything is refused; it stays empty as long as weeks are made ahead. SQLite has one table.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy import select

from milepost.core.ids import format_id
from milepost.store import schema
from milepost.store.dialect import number, text
from milepost.store.store import Store
from milepost.store.work import Call, Statement, Work

WEEKS_AHEAD = 6
RUNS_SHOWN = 20
MOVED_MAX = 10_000
# Who waits for a lock holds up all that come later: whoever makes partitions tries again instead.
LOCK_TIMEOUT = "200ms"
_LOCK = 0x6D702D6576656E74  # "mp-event": the key of the advisory lock that lets one make them

_DAY_MS = 86_400_000
_WEEK_MS = 7 * _DAY_MS
_MONDAY_MS = 4 * _DAY_MS  # 1970-01-05
TIME_ENDS = len("run_") + 12
_COLUMNS = ", ".join(column.name for column in schema.events.columns)
_BOUNDS = re.compile(r"FOR VALUES FROM \((?:'(?P<first>[^']*)'|MINVALUE)\) TO \('(?P<until>[^']*)'")

_PRESENT = Statement(
    sa.text(
        "SELECT part.relname, pg_get_expr(part.relpartbound, part.oid) FROM pg_inherits"
        " JOIN pg_class AS part ON part.oid = inhrelid"
        " WHERE inhparent = CAST(to_regclass('events') AS oid)"
    )
)
_ALONE = Statement(sa.select(sa.func.pg_try_advisory_xact_lock(number("key"))))
_IMPATIENTLY = Statement(sa.select(sa.func.set_config("lock_timeout", text("patience"), sa.true())))

_R = schema.runs.c
_within = (_R.id >= text("first"), _R.id < text("until"))
_THERE = Statement(select(_R.id).where(*_within).order_by(_R.id).limit(RUNS_SHOWN))
_NOT_DUE = Statement(
    select(_R.id)
    .where(*_within, _R.ended_ms.is_(None) | (_R.ended_ms >= number("before_ms")))
    .limit(1)
)

_LOCK_DEFAULT = Statement(sa.text("LOCK TABLE events_default IN ACCESS EXCLUSIVE MODE"))
_STRAYS = Statement(
    sa.text(
        "SELECT 1 FROM events_default WHERE run_id >= :first AND run_id < :until LIMIT :limit"
    ).bindparams(text("first"), text("until"), number("limit"))
)
_MAKE = (
    "CREATE TABLE {name} (LIKE events INCLUDING ALL)",
    f"""WITH moved AS (
        DELETE FROM events_default WHERE run_id >= {{first}} AND run_id < {{until}}
        RETURNING {_COLUMNS}
    )
    INSERT INTO {{name}} ({_COLUMNS}) SELECT {_COLUMNS} FROM moved""",  # noqa: S608
    "ALTER TABLE events ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({until})",
)


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of the log: of runs from the id `first` on, and before the id `until`."""

    name: str
    first: str
    until: str

    def has(self, run_id: str) -> bool:
        """Say whether the run's log is in it."""
        return self.first <= run_id < self.until


@dataclass(frozen=True, slots=True)
class Dropped:
    """Which partitions are gone, and which are not, by the runs in them that are still there."""

    gone: tuple[str, ...]
    kept: dict[str, tuple[str, ...]]


async def make_ahead(store: Store, now_ms: int) -> list[str]:
    """Make the partitions of this week and the next ones that are not there; return their names.

    Every process may do so at any time: one makes them, and the others go on.
    """
    if store.engine.dialect == "sqlite":
        return []
    if not missing(await store.read(present()), now_ms):
        return []
    return [week.name for week in await store.write(_make_missing(now_ms))]


async def drop_before(store: Store, before_ms: int) -> Dropped:
    """Drop the partitions that hold only runs from before then, once these have been erased.

    A plain DROP, since Postgres detaches nothing CONCURRENTLY from a table with a default
    partition. It locks the whole log for some milliseconds, and raises `DatabaseUnavailableError`
    where it would have to wait for that.
    """
    if store.engine.dialect == "sqlite":
        return Dropped((), {})
    gone, kept = [], {}
    for part in await store.read(present()):
        if part.until > first_id(before_ms):
            continue
        if still_there := await store.write(_drop(part)):
            kept[part.name] = tuple(still_there)
        else:
            gone.append(part.name)
    return Dropped(tuple(gone), kept)


async def past(store: Store, before_ms: int) -> list[Partition]:
    """Return the partitions all of whose runs ended before then: their logs need no deleting."""
    if store.engine.dialect == "sqlite":
        return []
    old = [part for part in await store.read(present()) if part.until <= first_id(before_ms)]
    return [part for part in old if await store.read(_is_past(part, before_ms))]


def _is_past(part: Partition, before_ms: int) -> Work[bool]:
    return not (yield _NOT_DUE(first=part.first, until=part.until, before_ms=before_ms))


def present() -> Work[list[Partition]]:
    """Return the log's partitions in order, without the default one; none if it is one table."""
    found = yield _PRESENT()
    bounded = ((name, _BOUNDS.match(bounds)) for name, bounds in found)
    parts = (Partition(name, each["first"] or "", each["until"]) for name, each in bounded if each)
    return sorted(parts, key=lambda part: part.first)


def missing(found: Sequence[Partition], now_ms: int) -> list[Partition]:
    """Return the weeks that should be there by now and are not; none if the log is one table."""
    if not found:
        return []
    return [week for week in _weeks(now_ms) if not _is_covered(week, found)]


def _weeks(now_ms: int) -> Iterable[Partition]:
    this = (now_ms - _MONDAY_MS) // _WEEK_MS * _WEEK_MS + _MONDAY_MS
    for ahead in range(WEEKS_AHEAD + 1):
        start_ms = this + ahead * _WEEK_MS
        day = datetime.fromtimestamp(start_ms / 1000, UTC).strftime("%Y%m%d")
        yield Partition(f"events_{day}", first_id(start_ms), first_id(start_ms + _WEEK_MS))


def _is_covered(week: Partition, found: Sequence[Partition]) -> bool:
    return any(part.first < week.until and week.first < part.until for part in found)


def first_id(time_ms: int) -> str:
    """Return an id before those of all runs that were made then, or later."""
    shortest = format_id("run", time_ms, 0)
    return shortest[:TIME_ENDS].ljust(len(shortest), "0")


def _make_missing(now_ms: int) -> Work[list[Partition]]:
    """Make what is missing, unless another process is at it.

    A partition is made beside the log and then attached, which locks out neither readers nor
    writers of the others: only the default one is locked, since it must be looked through. Were
    there rows of that week in it, because no process was there to make room in time, they move.
    Where they are so many that others would wait for long, the week stays where it is.
    """
    ((alone,),) = yield _ALONE(key=_LOCK)
    weeks = missing((yield from present()), now_ms) if alone else []
    made = []
    if weeks:
        yield (_IMPATIENTLY(patience=LOCK_TIMEOUT), _LOCK_DEFAULT())
    for week in weeks:
        strays = yield _STRAYS(first=week.first, until=week.until, limit=MOVED_MAX + 1)
        if len(strays) <= MOVED_MAX:
            yield tuple(_of(week, step) for step in _MAKE)
            made.append(week)
    return made


def _drop(part: Partition) -> Work[list[str]]:
    """Drop the partition, or return runs of it that are still there.

    None can come to be in it meanwhile: a new run's id is of now, but a child's is of its parent's
    time, and then the parent is still there.
    """
    still_there = yield _THERE(first=part.first, until=part.until)
    if not still_there:
        yield _IMPATIENTLY(patience=LOCK_TIMEOUT)
        yield _of(part, "DROP TABLE {name}")
    return [run_id for (run_id,) in still_there]


def _of(part: Partition, template: str) -> Call:
    """Return a statement about a partition; what changes the schema takes no parameters."""
    filled = template.format(
        name=f'"{part.name}"', first=f"'{part.first}'", until=f"'{part.until}'"
    )
    return Statement(sa.text(filled))()
