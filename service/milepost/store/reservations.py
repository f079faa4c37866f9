"""What calls under way may take of budgets: reserved before a call, settled after it.

A reservation belongs to a claim, a run and its epoch: it counts as long as that worker has the run.
So a dead worker's reservations are given back with its run, and no clock is asked.

Whoever locks both locks reservations first, then counters.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, delete, exists, insert, select

from milepost.store import budget_counters, schema
from milepost.store.amounts import MEASURES, NOTHING, Amounts, Bounds, tightest
from milepost.store.budget_counters import Counter, CounterKey, Move, Place
from milepost.store.dialect import number, rows, rows_of, text, word
from milepost.store.work import Statement, Work

FREE_MAX = 100

_H = schema.budget_reservations.c
_R = schema.runs.c

Fit = Callable[[Bounds], Amounts]
"""Returns what a call takes where so much is unspent: pure, for a transaction waits for it."""


@dataclass(frozen=True, slots=True)
class Holder:
    """For whom is reserved: a call of a run, called `subject`, under one claim."""

    tenant: str
    run_id: str
    epoch: int
    subject: str


@dataclass(frozen=True, slots=True)
class Shortage:
    """The counter that has too little left of `measure`, where `wanted` was asked for."""

    counter: Counter
    measure: str
    wanted: int

    @property
    def spent(self) -> int:
        """How much is spent of it."""
        return int(getattr(self.counter.spent, self.measure))

    @property
    def reserved(self) -> int:
        """How much is reserved of it."""
        return int(getattr(self.counter.reserved, self.measure))

    @property
    def bound(self) -> int:
        """How much there may be."""
        return int(getattr(self.counter.bounds, self.measure))

    @property
    def may_pass(self) -> bool:
        """Say whether there would be enough if calls under way took nothing."""
        return self.spent + self.wanted <= self.bound


@dataclass(frozen=True, slots=True)
class Crossing:
    """The first time in a period that so much of a bound is spent that it is worth a warning."""

    budget_id: str
    measure: str
    spent: int
    bound: int


_names = ["tenant", "run_id", "epoch", "subject", "budget_id", "scope_value", "period_start_ms"]
_held_by = (
    (_H.tenant == text("tenant"))
    & (_H.run_id == text("run_id"))
    & (_H.epoch == number("epoch"))
    & (_H.subject == text("subject"))
)
_AMOUNTS = tuple(_H[name] for name in MEASURES)
_KEY = (_H.budget_id, _H.scope_value, _H.period_start_ms)
_FIND = Statement(select(*_AMOUNTS).where(_held_by).limit(1))
_held = rows("held", "budget_id", "scope_value", numbers=("period_start_ms",))
_HOLD = Statement(
    insert(schema.budget_reservations).from_select(
        [*_names, *MEASURES],
        select(
            text("tenant"),
            text("run_id"),
            number("epoch"),
            text("subject"),
            *_held.c,
            *(number(name) for name in MEASURES),
        ),
    )
)
_TAKE = Statement(delete(schema.budget_reservations).where(_held_by).returning(*_KEY, *_AMOUNTS))
_DROP = Statement(
    delete(schema.budget_reservations).where(_held_by, _H.budget_id == text("budget_id"))
)
_claim_stands = exists().where(
    _R.id == _H.run_id, _R.tenant == _H.tenant, _R.status == word("running"), _R.epoch == _H.epoch
)


def _left_behind(*which: ColumnElement[bool]) -> Statement:
    """Return the reservations whose worker has their run no longer.

    One that is being settled just now belongs to whoever settles it.
    """
    return Statement(
        select(*(_H[name] for name in _names), *_AMOUNTS)
        .where(~_claim_stands, *which)
        .limit(FREE_MAX)
        .with_for_update(skip_locked=True, of=schema.budget_reservations)
    )


_LEFT_BEHIND = _left_behind()
_LEFT_BEHIND_IN = _left_behind(_H.tenant == text("tenant"))


def reserve(holder: Holder, places: Sequence[Place], fit: Fit) -> Work[Amounts | Shortage]:
    """Reserve what the call takes in all of these counters, or in none.

    What others have reserved makes the call no smaller, since they may well take less: there is
    enough left for it, or not. The counters stay locked until the commit, so that no two calls
    count on the same rest. A holder that has reserved already, in a transaction whose answer was
    lost, is told so.
    """
    found, _, locked = yield (
        _FIND(**_bound(holder)),
        budget_counters.opening(holder.tenant, places),
        budget_counters.locking((holder.tenant, place) for place in places),
    )
    if found:
        return Amounts(*found[0])
    counters = budget_counters.read(locked)
    granted = fit(tightest(counter.unspent for counter in counters))
    if short := _shortage(counters, granted):
        return short
    held = rows_of(counter.key._asdict() for counter in counters)
    yield (
        budget_counters.moving(Move(counter, reserved=granted) for counter in counters),
        _HOLD(**_bound(holder), held=held, **granted._asdict()),
    )
    return granted


def settle(holder: Holder, places: Sequence[Place], billed: Amounts) -> Work[tuple[Crossing, ...]]:
    """Put what was billed in the place of what was reserved; return what is worth a warning.

    Nothing happens where nothing is reserved any more: the call was settled before, or given back
    since its run was taken over, and then what it came to is not in the log either.
    """
    taken, locked = yield (
        _TAKE(**_bound(holder)),
        budget_counters.locking((holder.tenant, place) for place in places),
    )
    reserved = {CounterKey(*row[:3]): Amounts(*row[3:]) for row in taken}
    counters = [each for each in budget_counters.read(locked) if each.key in reserved]
    if not counters:
        return ()
    crossed = {counter.key: _crossed(counter, billed) for counter in counters}
    moves = [
        Move(_warned(counter, crossed[counter.key]), billed, reserved[counter.key].negated())
        for counter in counters
    ]
    yield budget_counters.moving(moves)
    return tuple(crossing for each in crossed.values() for crossing in each)


def charge(tenant: str, places: Sequence[Place], billed: Amounts) -> Work[None]:
    """Count what was taken without having been reserved: who asks next finds so much less.

    Nobody is warned of it before that one is.
    """
    _, locked = yield (
        budget_counters.opening(tenant, places),
        budget_counters.locking((tenant, place) for place in places),
    )
    if counters := budget_counters.read(locked):
        yield budget_counters.moving(Move(counter, billed) for counter in counters)


def free(tenant: str | None = None) -> Work[int]:
    """Give back what calls had reserved whose worker has their run no longer.

    So many at a time; returns how many that were. Nobody knows whether such a call was made.
    """
    found = yield _LEFT_BEHIND() if tenant is None else _LEFT_BEHIND_IN(tenant=tenant)
    if not found:
        return 0
    given_back: dict[CounterKey, Amounts] = {}
    places, drops = set(), []
    for owner, run_id, epoch, subject, *rest in found:
        key = CounterKey(*rest[:3])
        given_back[key] = given_back.get(key, NOTHING).plus(Amounts(*rest[3:]))
        places.add((owner, Place(key)))
        holder = Holder(owner, run_id, epoch, subject)
        drops.append(_DROP(**_bound(holder), budget_id=key.budget_id))
    *_, locked = yield *drops, budget_counters.locking(places)
    counters = budget_counters.read(locked)
    yield budget_counters.moving(
        Move(counter, reserved=given_back[counter.key].negated()) for counter in counters
    )
    return len(found)


def _shortage(counters: Iterable[Counter], wanted: Amounts) -> Shortage | None:
    """Return what there is too little of. What a call takes nothing of may be overspent."""
    for counter in counters:
        for measure, left, much in zip(MEASURES, counter.left, wanted, strict=True):
            if left is not None and much > 0 and much > left:
                return Shortage(counter, measure, much)
    return None


def _crossed(counter: Counter, billed: Amounts) -> list[Crossing]:
    """Return the bounds that nearly are reached with this, and were not warned of yet."""
    spent = counter.spent.plus(billed)
    return [
        Crossing(counter.key.budget_id, measure, much, bound)
        for measure, much, bound in zip(MEASURES, spent, counter.bounds, strict=True)
        if bound and much >= counter.warn_at * bound and not counter.warned & _bit(measure)
    ]


def _warned(counter: Counter, crossed: Iterable[Crossing]) -> Counter:
    bits = sum(_bit(crossing.measure) for crossing in crossed)
    return replace(counter, warned=counter.warned | bits)


def _bit(measure: str) -> int:
    return 1 << MEASURES.index(measure)


def _bound(holder: Holder) -> dict[str, str | int]:
    return {
        "tenant": holder.tenant,
        "run_id": holder.run_id,
        "epoch": holder.epoch,
        "subject": holder.subject,
    }
