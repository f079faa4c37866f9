"""How often calls were made lately: what rules with a rate have to know."""

from collections.abc import Mapping
from typing import Protocol

from milepost.core.effects import CountCall
from milepost.core.policy import Counted
from milepost.runtime.clock import Clock
from milepost.store.records import Claim

TALLIES_MIN = 1_000


class Rates(Protocol):
    """Counts calls, each once however often it is asked about."""

    async def count(self, claim: Claim, effect: CountCall) -> Mapping[str, int]:
        """Count the call, and return by key how many there were within the time, it included."""


class Whose(Protocol):
    """For whom a call is made."""

    @property
    def agent_id(self) -> str:
        """The agent whose model asks for it."""

    @property
    def session_id(self) -> str:
        """The session."""

    @property
    def user(self) -> str | None:
        """The user, if there is one."""

    @property
    def run_id(self) -> str:
        """The run."""


def tally_of(claim: Whose, counted: Counted) -> str:
    """Name what is counted, and for whom; runs of nobody in particular count together."""
    whose = {
        "tenant": "",
        "agent": claim.agent_id,
        "session": claim.session_id,
        "user": claim.user or "",
        "run": claim.run_id,
    }
    return f"{counted.key}:{counted.per}:{whose[counted.per]}"


class OwnRates:
    """Counts for this process alone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._marks: dict[str, dict[tuple[str, str], int]] = {}
        self._tidied_at = TALLIES_MIN

    async def count(self, claim: Whose, effect: CountCall) -> Mapping[str, int]:
        """Count the call, and return by key how many there were within the time, it included."""
        call = (claim.run_id, effect.call.id)
        return {each.key: self._count(tally_of(claim, each), each, call) for each in effect.wanted}

    def _count(self, tally: str, counted: Counted, call: tuple[str, str]) -> int:
        now = self._clock()
        self._tidy(now)
        marks = self._marks.setdefault(tally, {})
        _lapse(marks, now)
        marks.setdefault(call, now + max(1, round(counted.within_s * 1000)))
        return min(list(marks).index(call) + 1, counted.most)

    def _tidy(self, now: int) -> None:
        """Forget what is past, as often as twice as much is known as was left the last time."""
        if len(self._marks) < self._tidied_at:
            return
        for marks in self._marks.values():
            _lapse(marks, now)
        self._marks = {tally: marks for tally, marks in self._marks.items() if marks}
        self._tidied_at = max(TALLIES_MIN, 2 * len(self._marks))


def _lapse(marks: dict[tuple[str, str], int], now: int) -> None:
    for old in [call for call, until in marks.items() if until <= now]:
        del marks[old]
