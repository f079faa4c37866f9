"""How often calls were made lately: a mark for each, counted while nobody else counts.

All runs of a tenant may count in one counter, which is locked until the commit. So a process counts
what gathered meanwhile in one transaction: one connection waits for the lock, however many calls.

A call has one mark for each thing that is counted, however often it is asked about, so that a
worker's death makes no call count twice. Marks hold nothing but ids, and stay where a session is
deleted: nobody starts counting anew by deleting what was counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from sqlalchemy import Select, delete, func, select, tuple_
from sqlalchemy.dialects import postgresql

from milepost.store import schema
from milepost.store.dialect import insert_new, now_ms, number, text
from milepost.store.work import Call, Statement, Work

PURGE_MAX = 1_000
KEPT_MS = 3_600_000
"""How long after its time nothing is purged: clocks differ."""

_C = schema.rate_counters.c
_M = schema.rate_marks.c
_own = schema.rate_marks.alias("own").c


@dataclass(frozen=True, slots=True)
class Tally:
    """What is counted, within `within_ms` and up to `most`; `name` is how whoever asks calls it."""

    name: str
    key: str
    within_ms: int
    most: int


@dataclass(frozen=True, slots=True)
class Counting:
    """A call of a run that is to be counted, in each of these tallies."""

    tenant: str
    run_id: str
    call_id: str
    tallies: Sequence[Tally]


_until = now_ms() + number("within_ms")
# Locks the counter: whoever counts the same waits, so that no two calls count as the same one.
_TICK = Statement(
    postgresql.insert(schema.rate_counters)
    .values(tenant=text("tenant"), key=text("key"), ticks=1, until_ms=_until)
    .on_conflict_do_update(
        index_elements=[_C.tenant, _C.key], set_={"ticks": _C.ticks + 1, "until_ms": _until}
    )
)
_counted = (_M.tenant == text("tenant"), _M.key == text("key"))
_LAPSE = Statement(delete(schema.rate_marks).where(*_counted, _M.until_ms <= now_ms()))
_MARK = Statement(
    insert_new(schema.rate_marks).values(
        tenant=text("tenant"),
        key=text("key"),
        run_id=text("run_id"),
        call_id=text("call_id"),
        tick=select(_C.ticks)
        .where(_C.tenant == text("tenant"), _C.key == text("key"))
        .scalar_subquery(),
        until_ms=_until,
    )
)


def _number_of(marks: Select[tuple[int]]) -> Statement:
    """Return the statement that counts marks, and reads no more of them than matter."""
    few = marks.limit(number("most")).subquery("few")
    return Statement(select(func.count()).select_from(few))


_COUNT = _number_of(
    select(_M.tick)
    .where(
        *_counted,
        _M.tick
        <= select(_own.tick)
        .where(
            _own.tenant == text("tenant"),
            _own.key == text("key"),
            _own.run_id == text("run_id"),
            _own.call_id == text("call_id"),
        )
        .scalar_subquery(),
    )
    .order_by(_M.tick.desc())
)
_FORETELL = _number_of(select(_M.tick).where(*_counted, _M.until_ms > now_ms()))
_old_marks = schema.rate_marks.alias("old_marks").c
_PURGE_MARKS = Statement(
    delete(schema.rate_marks)
    .where(
        tuple_(_M.tenant, _M.key, _M.run_id, _M.call_id).in_(
            select(_old_marks.tenant, _old_marks.key, _old_marks.run_id, _old_marks.call_id)
            .where(_old_marks.until_ms < number("before_ms"))
            .order_by(_old_marks.until_ms)
            .limit(PURGE_MAX)
            .with_for_update(skip_locked=True)  # Every process purges.
        )
    )
    .returning(_M.tick)
)
_old_counters = schema.rate_counters.alias("old_rates").c
# A counter that begins anew counts what was marked since: so its marks are gone before it is.
_PURGE_COUNTERS = Statement(
    delete(schema.rate_counters)
    .where(
        tuple_(_C.tenant, _C.key).in_(
            select(_old_counters.tenant, _old_counters.key)
            .where(_old_counters.until_ms < number("before_ms"))
            .order_by(_old_counters.until_ms)
            .limit(PURGE_MAX)
            .with_for_update(skip_locked=True)
        )
    )
    .returning(_C.ticks)
)


def count(calls: Sequence[Counting]) -> Work[list[dict[str, int]]]:
    """Mark the calls, and return by name how many there were up to each, within a tally's time.

    What is more than the tally's `most` is not told. Counters are locked in the order of their
    keys, lest two groups wait for each other.
    """
    wanted = sorted(
        ((place, call, tally) for place, call in enumerate(calls) for tally in call.tallies),
        key=lambda each: (each[1].tenant, each[2].key),
    )
    steps = (_counting(call, tally) for _, call, tally in wanted)
    answers = yield tuple(chain.from_iterable(steps))
    counts: list[dict[str, int]] = [{} for _ in calls]
    for (place, _, tally), ((counted,),) in zip(wanted, answers[_STEPS - 1 :: _STEPS], strict=True):
        counts[place][tally.name] = int(counted)
    return counts


_STEPS = 4


def _counting(call: Counting, tally: Tally) -> tuple[Call, ...]:
    """Return the statements that count a call, of which the last one answers."""
    counter = {"tenant": call.tenant, "key": tally.key}
    mark = {**counter, "run_id": call.run_id, "call_id": call.call_id}
    return (
        _TICK(**counter, within_ms=tally.within_ms),
        _LAPSE(**counter),
        _MARK(**mark, within_ms=tally.within_ms),
        _COUNT(**mark, most=tally.most),
    )


def foretell(tenant: str, tallies: Sequence[Tally]) -> Work[dict[str, int]]:
    """Return by name what another call would be counted as now."""
    counts: dict[str, int] = {}
    for tally in tallies:
        ((counted,),) = yield _FORETELL(tenant=tenant, key=tally.key, most=tally.most)
        counts[tally.name] = min(int(counted) + 1, tally.most)
    return counts


def purge(now_ms: int) -> Work[int]:
    """Forget what no rule looks back to, so much at a time; return how much that was."""
    before_ms = now_ms - KEPT_MS
    marks = yield _PURGE_MARKS(before_ms=before_ms)
    if len(marks) == PURGE_MAX:
        return len(marks)
    return len(marks) + len((yield _PURGE_COUNTERS(before_ms=before_ms)))
