"""Runs of a world by chance with their times, from their request or from where they forked off."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from milepost.core.codec import decode, encode
from milepost.core.events import Event, InputMessage, RunQueued, RunStarted
from milepost.core.rulings import Rules
from milepost.runtime.forking import Forking
from milepost.runtime.logged import Logged
from milepost.runtime.settle import Settling
from milepost.tools import preview
from tests.core.world import CLAIM, CLERK, DEADLINE_MS, VARIANTS, World

TURNS_MAX = 300


@dataclass
class History(World):
    """A world that remembers when its events happened. `forked` is what it goes on from."""

    times: list[int] = field(default_factory=list)
    forked: Forking | None = None

    def __post_init__(self) -> None:
        if self.forked is None:
            super().__post_init__()
            return
        self._settling = Settling(CLAIM, CLERK, self.rules, self._new_id, preview)
        self._ids = 0
        queued = RunQueued("clerk", "agt_1", 1, "ses_2", self.forked.input)
        self.write(stored([queued, self.forked.forked, RunStarted(1, "w1")]))
        self.go_on([])

    def write(self, events: Sequence[Event]) -> None:
        """Append to the log, as of now."""
        super().write(events)
        self.times += [self.now_ms] * len(events)

    def _check_park(self) -> None:
        # Rules that make calls one by one may find one lost behind one that is asked about.
        if self.forked is None or self.rules.parallel_tools:
            super()._check_park()

    @property
    def logged(self) -> list[Logged]:
        """The log as a store would give it back."""
        return [
            Logged(seq, time_ms, event)
            for seq, (time_ms, event) in enumerate(
                zip(self.times, stored(self.log), strict=True), start=1
            )
        ]

    def live(self, *, faults: int, chance: Random) -> None:
        """Let happen what may, and after so many turns only what brings the run to its end."""
        for turn in range(TURNS_MAX):
            self.kind = turn >= faults
            if not (moves := self.moves()):
                return
            self.happen(chance.choice(moves))
        raise AssertionError(f"the run goes on after {TURNS_MAX} turns: {self.log[-5:]}")


def stored(events: Sequence[Event]) -> list[Event]:
    """Return the events as they come back from a log."""
    decoded = (decode(event.type, encode(event)) for event in events)
    return [event for event in decoded if event]


def history(chance: Random, *, faults: int, rules: Rules | None = None) -> History:
    """Return a run that has ended, one way or another."""
    deadline_ms = chance.choice((None, DEADLINE_MS))
    lived = History(chance, rules or chance.choice(VARIANTS), deadline_ms)
    lived.live(faults=faults, chance=chance)
    return lived


def said(text: str) -> tuple[InputMessage, ...]:
    """Return what a user says."""
    return (InputMessage("user", text),)
