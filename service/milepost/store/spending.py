"""Calls that reserve of budgets, settle what they took, or are charged: many in one transaction.

All runs of a tenant may count in one counter, which is locked until the commit. So a process does
what gathered meanwhile in the next transaction: it takes each lock once for all of them, and one
connection, however many wait.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from milepost.store import budget_counters, reservations
from milepost.store.amounts import MEASURES, Amounts, Bounds, tightest
from milepost.store.budget_counters import Counter, CounterKey, Place
from milepost.store.reservations import Holder, Reserved
from milepost.store.work import Call, Work

Fit = Callable[[Bounds], Amounts]
"""Returns what a call takes where so much is unspent: pure, for a transaction waits for it."""


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


@dataclass(frozen=True, slots=True)
class Reserve:
    """Asks for what the call takes in all of these counters, or in none.

    What others have reserved makes the call no smaller, since they may well take less: there is
    enough left for it, or not. A holder that has reserved already, in a transaction whose answer
    was lost, is told so.
    """

    holder: Holder
    places: Sequence[Place]
    fit: Fit

    @property
    def tenant(self) -> str:
        """Whose budgets these are."""
        return self.holder.tenant


@dataclass(frozen=True, slots=True)
class Settle:
    """Puts what was billed in the place of what was reserved; answers what is worth a warning.

    Nothing happens where nothing is reserved any more: the call was settled before, or given back
    since its run was taken over, and then what it came to is not in the log either.
    """

    holder: Holder
    places: Sequence[Place]
    billed: Amounts

    @property
    def tenant(self) -> str:
        """Whose budgets these are."""
        return self.holder.tenant


@dataclass(frozen=True, slots=True)
class Charge:
    """Counts what was taken without having been reserved: who asks next finds so much less.

    Nobody is warned of it before that one is.
    """

    tenant: str
    places: Sequence[Place]
    billed: Amounts


Spending = Reserve | Settle | Charge
Outcome = Amounts | Shortage | tuple[Crossing, ...] | None
"""Of a `Reserve` what was granted or is short, of a `Settle` what to warn of, of a `Charge` none.
"""


def spend(items: Sequence[Spending]) -> Work[list[Outcome]]:
    """Do each of these in their order; return what came of each. No two have one holder.

    The counters stay locked until the commit, so that no two calls count on the same rest.
    """
    calls = _calls(items)
    answers = dict(zip(calls, (yield tuple(calls.values())), strict=True))
    books = _Books(
        {(each.tenant, each.key): each for each in budget_counters.read(answers["lock"])},
        _by_holder(reservations.read(answers.get("find", ()))),
        _by_holder(reservations.read(answers.get("take", ()))),
    )
    outcomes = [books.enter(item) for item in items]
    if changes := books.changes():
        yield changes
    return outcomes


def _calls(items: Sequence[Spending]) -> dict[str, Call]:
    """Return the statements by name. Whoever locks both locks reservations first, then counters."""
    calls: dict[str, Call] = {}
    if new := {
        (item.tenant, place)
        for item in items
        if not isinstance(item, Settle)
        for place in item.places
    }:
        calls["open"] = budget_counters.opening(new)
    if asking := [item.holder for item in items if isinstance(item, Reserve)]:
        calls["find"] = reservations.finding(asking)
    if settling := [item.holder for item in items if isinstance(item, Settle)]:
        calls["take"] = reservations.taking(settling)
    places = {(item.tenant, place) for item in items for place in item.places}
    return {**calls, "lock": budget_counters.locking(places)}


@dataclass(slots=True)
class _Books:
    """The counters as they stand after each, what was found reserved, and what was taken of it."""

    counters: dict[tuple[str, CounterKey], Counter]
    found: Mapping[Holder, Sequence[Reserved]]
    taken: Mapping[Holder, Sequence[Reserved]]
    moved: set[tuple[str, CounterKey]] = field(default_factory=set)
    held: list[Reserved] = field(default_factory=list)

    def enter(self, item: Spending) -> Outcome:
        """Count one more; return what comes of it."""
        match item:
            case Reserve():
                return self._reserve(item)
            case Settle():
                return self._settle(item)
            case Charge():
                for counter in map(_unwarned, self._of(item)):
                    self._move(counter.moved(spent=item.billed))
                return None

    def changes(self) -> tuple[Call, ...]:
        """Return the statements that write down what has changed."""
        calls = []
        if self.moved:
            calls.append(budget_counters.keeping(self.counters[key] for key in self.moved))
        if self.held:
            calls.append(reservations.holding(self.held))
        return tuple(calls)

    def _reserve(self, item: Reserve) -> Amounts | Shortage:
        if found := self.found.get(item.holder):
            return found[0].amounts
        counters = self._of(item)
        granted = item.fit(tightest(counter.unspent for counter in counters))
        if short := _shortage(counters, granted):
            return short
        for counter in counters:
            self._move(counter.moved(reserved=granted))
            self.held.append(Reserved(item.holder, counter.key, granted))
        return granted

    def _settle(self, item: Settle) -> tuple[Crossing, ...]:
        reserved = {each.key: each.amounts for each in self.taken.get(item.holder, ())}
        crossed: list[Crossing] = []
        for counter in map(_unwarned, self._of(item)):
            if counter.key not in reserved:
                continue
            crossings = _crossed(counter, item.billed)
            given_back = reserved[counter.key].negated()
            self._move(_warned(counter.moved(spent=item.billed, reserved=given_back), crossings))
            crossed += crossings
        return tuple(crossed)

    def _of(self, item: Spending) -> list[Counter]:
        """Return its counters, but for those whose budgets are gone, in the order of their keys."""
        wanted = sorted({(item.tenant, place.key) for place in item.places})
        return [self.counters[key] for key in wanted if key in self.counters]

    def _move(self, counter: Counter) -> None:
        key = counter.tenant, counter.key
        self.counters[key] = counter
        self.moved.add(key)


def _by_holder(reserved: Iterable[Reserved]) -> dict[Holder, list[Reserved]]:
    found: dict[Holder, list[Reserved]] = {}
    for each in reserved:
        found.setdefault(each.holder, []).append(each)
    return found


def _shortage(counters: Iterable[Counter], wanted: Amounts) -> Shortage | None:
    """Return what there is too little of. What a call takes nothing of may be overspent."""
    for counter in counters:
        for measure, left, much in zip(MEASURES, counter.left, wanted, strict=True):
            if left is not None and much > 0 and much > left:
                return Shortage(counter, measure, much)
    return None


def _unwarned(counter: Counter) -> Counter:
    """Return it as warned only of what is that much spent: a bound may have been raised since."""
    bits = sum(
        _bit(measure)
        for measure, much, bound in zip(MEASURES, counter.spent, counter.bounds, strict=True)
        if bound and much < counter.warn_at * bound
    )
    return replace(counter, warned=counter.warned & ~bits)


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
