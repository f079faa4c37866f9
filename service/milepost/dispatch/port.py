"""The port: a dispatcher says which run a worker may try to claim, and when.

It never says whether: that is said by the claim alone, so that what is delivered twice, late or to
two workers loses there, and what is never delivered only waits.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Offer:
    """What a worker may try to claim: the runs named or, if none is, any that is ready so long."""

    run_ids: tuple[str, ...] = ()
    ready_for_ms: int = 0


class Dispatcher(Protocol):
    """A worker's side of it. Nothing here waits: `bell` is rung when `next` may have more."""

    @property
    def bell(self) -> str:
        """The bell of the hub to listen to."""

    def next(self, most: int) -> Offer | None:
        """Return what to claim next, `most` runs at most; None if there is nothing to look for."""

    def let_go(self, run_id: str) -> None:
        """Say that this process is not at the run: it lost the claim, or has done its part."""

    def drain(self) -> None:
        """Be delivered nothing more: this process ends."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A run that is ready to be claimed; a higher lane goes first."""

    run_id: str
    lane: int


Announce = Callable[[Sequence[Ready]], Awaitable[Collection[str]]]
"""The other side: tells a dispatcher of runs that are ready; returns those that it took note of."""


@dataclass(frozen=True, slots=True)
class Slice:
    """How a run stands when nobody here is at it: over, or to be looked at again after so long."""

    over: bool
    again_s: float


Look = Callable[[str], Awaitable[Slice]]
"""Tells how the run of this id stands."""
