"""What calls under way may take of budgets: reserved before a call, settled after it.

A reservation belongs to a claim, a run and its epoch: it counts as long as that worker has the run.
So a dead worker's reservations are given back with its run, and no clock is asked.

Whoever locks both locks reservations first, then counters.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from sqlalchemy import ColumnElement, delete, exists, insert, select, tuple_

from milepost.store import budget_counters, schema
from milepost.store.amounts import MEASURES, NOTHING, Amounts
from milepost.store.budget_counters import CounterKey, Place
from milepost.store.dialect import rows, rows_of, text, word
from milepost.store.hurry import hurrying
from milepost.store.work import Call, Row, Statement, Work

FREE_MAX = 100

_H = schema.budget_reservations.c
_R = schema.runs.c


@dataclass(frozen=True, slots=True)
class Holder:
    """For whom is reserved: a call of a run, called `subject`, under one claim."""

    tenant: str
    run_id: str
    epoch: int
    subject: str


@dataclass(frozen=True, slots=True)
class Reserved:
    """What a call has reserved in one counter."""

    holder: Holder
    key: CounterKey
    amounts: Amounts


_HOLDER = ("tenant", "run_id", "epoch", "subject")
_KEY = ("budget_id", "scope_value", "period_start_ms")
_ROW = tuple(_H[name] for name in (*_HOLDER, *_KEY, *MEASURES))
_KEYS = tuple(_H[name] for name in _HOLDER)
_holders = rows("holders", "tenant", "run_id", "subject", numbers=("epoch",))
_theirs = tuple_(*_KEYS).in_(select(*(_holders.c[name] for name in _HOLDER)))
_FIND = Statement(select(*_ROW).where(_theirs))
_TAKE = Statement(delete(schema.budget_reservations).where(_theirs).returning(*_ROW))
_held = rows(
    "held",
    "tenant", "run_id", "subject", "budget_id", "scope_value",
    numbers=("epoch", "period_start_ms", *MEASURES),
)  # fmt: skip
_HOLD = Statement(
    insert(schema.budget_reservations).from_select(
        [column.name for column in _held.c], select(*_held.c)
    )
)
_dropped = rows("dropped", "tenant", "run_id", "subject", "budget_id", numbers=("epoch",))
_DROP = Statement(
    delete(schema.budget_reservations).where(
        tuple_(*_KEYS, _H.budget_id).in_(
            select(*(_dropped.c[name] for name in (*_HOLDER, "budget_id")))
        )
    )
)
_claim_stands = exists().where(
    _R.id == _H.run_id, _R.tenant == _H.tenant, _R.status == word("running"), _R.epoch == _H.epoch
)


def _left_behind(*which: ColumnElement[bool]) -> Statement:
    """Return the reservations whose worker has their run no longer.

    One that is being settled just now belongs to whoever settles it.
    """
    return Statement(
        select(*_ROW)
        .where(~_claim_stands, *which)
        .limit(FREE_MAX)
        .with_for_update(skip_locked=True, of=schema.budget_reservations)
    )


_LEFT_BEHIND = _left_behind()
_LEFT_BEHIND_IN = _left_behind(_H.tenant == text("tenant"))


def finding(holders: Iterable[Holder]) -> Call:
    """Return the statement that looks what these have reserved; `read` reads what it answers."""
    return _FIND(holders=rows_of(map(asdict, holders)))


def taking(holders: Iterable[Holder]) -> Call:
    """Return the statement that takes away what these have reserved, and answers what that was."""
    return _TAKE(holders=rows_of(map(asdict, holders)))


def holding(reserved: Iterable[Reserved]) -> Call:
    """Return the statement that keeps what was reserved."""
    return _HOLD(held=rows_of(map(_row_of, reserved)))


def read(answer: Iterable[Row]) -> list[Reserved]:
    """Return the reservations of an answer."""
    return [Reserved(Holder(*row[:4]), CounterKey(*row[4:7]), Amounts(*row[7:])) for row in answer]


def free(tenant: str | None = None) -> Work[int]:
    """Give back what calls had reserved whose worker has their run no longer.

    So many at a time; returns how many that were. Nobody knows whether such a call was made.
    """
    found = yield _LEFT_BEHIND() if tenant is None else _LEFT_BEHIND_IN(tenant=tenant)
    if not found:
        return 0
    reserved = read(found)
    given_back: dict[CounterKey, Amounts] = {}
    for each in reserved:
        given_back[each.key] = given_back.get(each.key, NOTHING).plus(each.amounts)
    places = {(each.holder.tenant, Place(each.key)) for each in reserved}
    *_, locked = yield (
        hurrying(),
        _DROP(dropped=rows_of(map(_row_of, reserved))),
        budget_counters.locking(places),
    )
    yield budget_counters.keeping(
        counter.moved(reserved=given_back[counter.key].negated())
        for counter in budget_counters.read(locked)
    )
    return len(found)


def _row_of(reserved: Reserved) -> Mapping[str, str | int]:
    return {
        **asdict(reserved.holder),
        **reserved.key._asdict(),
        **reserved.amounts._asdict(),
    }
