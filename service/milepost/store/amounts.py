"""What budgets count: five numbers, always in this order."""

from collections.abc import Iterable
from typing import NamedTuple

COUNT_MAX = 2**63 - 1
"""The largest number that both databases keep."""


class Amounts(NamedTuple):
    """How much of each: taken, or to be taken. Tokens are those that go in and come out."""

    tokens: int = 0
    cost_nanos: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    active_ms: int = 0

    def plus(self, other: "Amounts") -> "Amounts":
        """Return both together, which stops at the largest number."""
        together = (mine + more for mine, more in zip(self, other, strict=True))
        return Amounts(*(min(each, COUNT_MAX) for each in together))

    def negated(self) -> "Amounts":
        """Return what takes these away where it is added."""
        return Amounts(*(-mine for mine in self))


class Bounds(NamedTuple):
    """How much of each there may be, or is left; None: as much as one likes."""

    tokens: int | None = None
    cost_nanos: int | None = None
    model_calls: int | None = None
    tool_calls: int | None = None
    active_ms: int | None = None

    def less(self, taken: Amounts) -> "Bounds":
        """Return what is left when so much is taken: less than nothing where it was too much."""
        return Bounds(
            *(
                None if bound is None else bound - much
                for bound, much in zip(self, taken, strict=True)
            )
        )


MEASURES = Amounts._fields
NOTHING = Amounts()


def tightest(each: Iterable[Bounds]) -> Bounds:
    """Return what holds where all of these do."""
    return Bounds(*map(_least, zip(Bounds(), *each, strict=True)))


def _least(bounds: Iterable[int | None]) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)
