"""How rough it is: what becomes of requests, how long things take, what is lost on the way.

A simulation begins in rough weather and ends in fair: then everything must come to its end.
"""

from collections import Counter
from enum import Enum
from random import Random


class Fate(Enum):
    """What becomes of a request to the database."""

    DONE = "done"
    LOST = "lost before it came there"
    CUT = "cut in its middle"
    UNANSWERED = "its answer was lost"
    LATE = "given up for lost, and done later"


_MISFORTUNES = (Fate.LOST, Fate.CUT, Fate.UNANSWERED, Fate.UNANSWERED, Fate.LATE, Fate.LATE)


class Weather:
    """The seed's word on everything that is not up to the code; `befell` counts what was bad."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.befell: Counter[str] = Counter()
        self.is_rough = True
        self.database_away_until_s = 0.0
        self._loss = random.choice((0.0, 0.01, 0.03, 0.1, 0.2))
        self._slowness = random.choice((0.0, 0.02, 0.1))
        self._dullness = random.choice((0.0, 0.2, 1.0))

    def clear(self) -> None:
        """From now on nothing is lost, and nothing takes long."""
        self.is_rough = False
        self.database_away_until_s = 0.0

    # --- The database ---

    def fate_of_write(self) -> Fate:
        """Say what becomes of a transaction."""
        if not self.is_rough or self.random.random() >= self._loss:
            return Fate.DONE
        return self._told(self.random.choice(_MISFORTUNES))

    def fate_of_read(self) -> Fate:
        """Say what becomes of a look; one that is cut goes on, when other things have changed."""
        chance = self.random.random()
        if not self.is_rough or chance >= self._loss + self._slowness:
            return Fate.DONE
        return self._told(Fate.LOST) if chance < self._loss else Fate.CUT

    def _told(self, fate: Fate) -> Fate:
        self.befell[f"a request {fate.value}"] += 1
        return fate

    def way_s(self) -> float:
        """Return how long a request is on its way."""
        chance = self.random.random()
        if not self.is_rough or chance >= self._slowness:
            return 0.0005 + 0.002 * chance
        return 2 * self.random.random() ** 4

    def back_s(self) -> float:
        """Return how long its answer is on its way."""
        chance = self.random.random()
        if not self.is_rough or chance >= self._slowness:
            return 0.0
        return self.random.random()

    def late_s(self) -> float:
        """Return how much later something comes that was given up for lost."""
        return 0.001 + self.random.random() ** 2 * 3

    def gap_s(self) -> float:
        """Return how long it is to the next statement of a slow look."""
        return self.random.random() ** 3 * 0.3

    def statements(self) -> int:
        """Return after how many statements a transaction is cut."""
        return self.random.randrange(4)

    def forgets(self) -> bool:
        """Say whether a request whose sender is gone never left it."""
        return self.random.random() < 0.5

    def rest_s(self) -> float:
        """Return how long a sweeper rests between two turns."""
        chance = self.random.random()
        return 0.5 + 0.7 * chance if not self.is_rough or chance < 0.9 else 3 * chance

    # --- What tells others of something ---

    def hint_s(self) -> float | None:
        """Return when a hint arrives elsewhere; None if it never does."""
        if not self.is_rough:
            return 0.001
        chance = self.random.random()
        if chance < self._dullness:
            self.befell["a lost wake-up"] += 1
            return None
        return 0.001 if chance < 0.8 else 1.5 * self.random.random()

    def repeats(self) -> bool:
        """Say whether a hint arrives twice."""
        return self.is_rough and self.random.random() < 0.1

    # --- Models and tools ---

    def thought_s(self) -> float:
        """Return how long a model takes."""
        return self._work_s(0.06, 3.0)

    def work_s(self) -> float:
        """Return how long a tool takes for half of what it does."""
        return self._work_s(0.03, 4.0)

    def _work_s(self, usual_s: float, most_s: float) -> float:
        chance = self.random.random()
        if not self.is_rough or chance < 0.7:
            return usual_s * (0.5 + chance)
        return most_s * (chance - 0.7) ** 2 * 10

    def thought_fails(self) -> bool:
        """Say whether a model has no answer."""
        failed = self.is_rough and self.random.random() < 0.05
        self.befell["a failed model"] += failed
        return failed
