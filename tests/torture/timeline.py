"""What was done to whom, and when: the orchestrator's own account, in Unix seconds."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.torture.plan import FaultName


@dataclass(eq=False, slots=True)
class Span:
    """A stretch of time; `ended_s` is None while it lasts."""

    began_s: float
    ended_s: float | None = None

    def overlaps(self, began_s: float, ended_s: float) -> bool:
        """Say whether any of it lies between the two."""
        return self.began_s <= ended_s and (self.ended_s is None or self.ended_s >= began_s)


@dataclass(eq=False, slots=True)
class Life:
    """One process from its birth to its end. `killed_s` is when its end was asked for.

    `troubles` are those of its place: it was frozen, or cut off from its database.
    """

    member: str
    pid: int
    born_s: float
    skew_s: float
    ready_s: float | None = None
    killed_s: float | None = None
    ended_s: float | None = None
    troubles: list[Span] = field(default_factory=list)

    def undisturbed(self, began_s: float, ended_s: float) -> bool:
        """Say whether it worked without any trouble all the time between the two."""
        return (
            self.ready_s is not None
            and self.ready_s <= began_s
            and (self.ended_s is None or self.ended_s > ended_s)
            and (self.killed_s is None or self.killed_s > ended_s)
            and not any(trouble.overlaps(began_s, ended_s) for trouble in self.troubles)
        )


@dataclass(slots=True)
class Timeline:
    """All lives, and all faults. `outages` are of the database itself."""

    lives: list[Life] = field(default_factory=list)
    outages: list[Span] = field(default_factory=list)
    faults: Counter[FaultName] = field(default_factory=Counter)
    log: list[tuple[float, str]] = field(default_factory=list)
    began_s: float = field(default_factory=time.time)

    def note(self, said: str) -> None:
        """Write down what was done."""
        self.log.append((time.time(), said))

    def told(self, began_s: float, ended_s: float) -> list[str]:
        """Return what was written down between the two, each with its second of the campaign."""
        return [
            f"{at_s - self.began_s:9.3f} {said}"
            for at_s, said in self.log
            if began_s <= at_s <= ended_s
        ]

    def count(self, fault: FaultName, said: str) -> None:
        """Write down a fault."""
        self.faults[fault] += 1
        self.note(f"{fault}: {said}")

    @contextmanager
    def during(self, *lists: list[Span]) -> Iterator[None]:
        """Note the time that the block takes in each of the lists."""
        span = Span(time.time())
        for spans in lists:
            spans.append(span)
        try:
            yield
        finally:
            span.ended_s = time.time()

    def life_of(self, worker: str, at_s: float) -> Life | None:
        """Return the process that a worker's id names, which said itself that it was `at_s`."""
        pid = int(worker.partition("-wrk_")[0].rpartition("-")[2])
        held = [
            life
            for life in self.lives
            if life.pid == pid and life.born_s <= at_s - life.skew_s + 1.0
        ]
        return max(held, key=lambda life: life.born_s, default=None)
