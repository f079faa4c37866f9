"""A run's log played again: what an agent's rules would have done with what happened.

Pure. What came from the world is taken from the log: messages, results, answers, ids and times.
What the loop itself decides is decided anew, and compared with what the log says, in its order. No
model is called and no tool.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, repeat

from milepost.core.agents import Agent
from milepost.core.events import ApprovalRequested, Event, ToolCallRequested
from milepost.core.evolve import evolve
from milepost.core.json import Json
from milepost.core.rulings import Rules
from milepost.core.state import State
from milepost.runtime.loading import adapted
from milepost.runtime.logged import Logged
from milepost.runtime.origins import ASIDES, HANDOVERS, Origin, origin_of
from milepost.runtime.resemblance import differences, is_same, shown
from milepost.runtime.settle import Settling
from milepost.runtime.worked_time import WorkedTime
from milepost.store.records import Claim
from milepost.tools import preview

NOTES_MAX = 20
_UNCOMPARED = frozenset({"id", "version", "name", "metadata"})


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first event that is not as the rules would have it; None: there would be none."""

    seq: int
    expected: dict[str, Json] | None
    found: dict[str, Json] | None
    why: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """How far a log was played again, and where it first differs from it, if it does."""

    events: int
    steps: int
    divergence: Divergence | None
    notes: tuple[str, ...]


def never() -> bool:
    """Let a replay take as long as it takes."""
    return False


def replay(
    log: Sequence[Logged],
    claim: Claim,
    agent: Agent,
    rules: Rules,
    *,
    whole: bool = True,
    stop: Callable[[], bool] = never,
) -> Replayed:
    """Play the log again under the rules of `agent`, which is `fitted` to it.

    `whole` says that the log's present end is among what is given; `stop` is asked now and then
    whether to leave off.
    """
    return _Replay(log, claim, agent, rules).run(whole=whole, stop=stop)


def fitted(agent: Agent, log: Sequence[Logged]) -> Agent:
    """Return the agent as the log's run wants it."""
    assert log, "a log begins with the request"
    return adapted(agent, evolve(State(), log[0].event))


def definition_changes(before: Agent, after: Agent) -> list[str]:
    """Return what of an agent differs that its model is shown or its runs are bound by."""
    return [
        field.name
        for field in fields(Agent)
        if field.name not in _UNCOMPARED
        and getattr(before, field.name) != getattr(after, field.name)
    ]


def tools_called(log: Iterable[Logged]) -> set[str]:
    """Return the tools that the log's model has asked for."""
    return {each.event.name for each in log if isinstance(each.event, ToolCallRequested)}


class _Replay:
    def __init__(self, log: Sequence[Logged], claim: Claim, agent: Agent, rules: Rules) -> None:
        self._log = log
        self._claim = claim
        self._agent = agent
        self._rules = rules
        self._worked = WorkedTime()
        self._state = State()
        self._place = 0
        self._ids: Iterator[str] = iter(())
        self._settling = self._settle_by(rules)
        self._expected: list[Event] = []
        self._notes: list[str] = []

    def run(self, *, whole: bool, stop: Callable[[], bool]) -> Replayed:
        for place, each in enumerate(self._log):
            if stop():
                note = f"the time was up behind event {each.seq - 1}; what comes later is not told"
                return self._told(place, None, note)
            self._place = place
            if divergence := self._take(each):
                return self._told(place, divergence)
        divergence = self._beyond() if whole else None
        return self._told(len(self._log), divergence)

    def _told(self, events: int, divergence: Divergence | None, *more: str) -> Replayed:
        notes = self._notes[:NOTES_MAX]
        if left := len(self._notes) - len(notes):
            notes.append(f"and {left} more of this kind")
        return Replayed(events, self._state.step, divergence, (*notes, *more))

    def _take(self, each: Logged) -> Divergence | None:
        """Take the next event in; return how it differs from what follows from those before it."""
        event = each.event
        is_decided = bool(self._expected) and not isinstance(event, ASIDES)
        origin: Origin = "loop" if is_decided else origin_of(event, self._state)
        if origin == "world":
            self._go_on(each)
            return None
        if not self._expected:
            self._expected = self._decided(each.time_ms)
        if self._expected and is_same(self._expected[0], event):
            self._remark(self._expected.pop(0), each)
            self._go_on(each)
            return None
        if origin == "either":
            self._expected = []
            self._go_on(each)
            return None
        return _diverging(each.seq, self._expected[0] if self._expected else None, event)

    def _beyond(self) -> Divergence | None:
        """Return what would follow on the end of a log whose run is in nobody's way."""
        last = self._log[-1]
        if self._state.ended or isinstance(last.event, HANDOVERS):
            return None
        expected = self._expected or self._decided(last.time_ms)
        return _diverging(last.seq + 1, expected[0], None) if expected else None

    def _go_on(self, each: Logged) -> None:
        self._state = evolve(self._state, each.event)
        self._worked.feed(each.event, each.time_ms)
        if isinstance(each.event, HANDOVERS) and self._agent.limits.active_s is not None:
            until_ms = self._worked.until_ms(self._agent.limits.active_s)
            self._settling = self._settle_by(replace(self._rules, active_deadline_ms=until_ms))

    def _settle_by(self, rules: Rules) -> Settling:
        return Settling(self._claim, self._agent, rules, lambda _: next(self._ids), preview)

    def _decided(self, now_ms: int) -> list[Event]:
        """Return what follows from the state, as the log's ids have it."""
        self._ids = self._ids_ahead()
        settlement = self._settling.settle(self._state, (), now_ms)
        return [stamped.event for stamped in settlement.happened]

    def _ids_ahead(self) -> Iterator[str]:
        """Yield the ids that were given from here on; only questions are given any."""
        ahead = (self._log[place].event for place in range(self._place, len(self._log)))
        asked = (event.approval_id for event in ahead if isinstance(event, ApprovalRequested))
        return chain(asked, repeat("apr_new"))

    def _remark(self, expected: Event, found: Logged) -> None:
        """Note what would only be said otherwise."""
        if said := differences(expected, found.event):
            words = ", ".join(said)
            self._notes.append(f"event {found.seq}, {found.event.type}, would differ in {words}")


def _diverging(seq: int, expected: Event | None, found: Event | None) -> Divergence:
    told, seen = (None if event is None else shown(event) for event in (expected, found))
    return Divergence(seq, told, seen, _why(expected, found))


def _why(expected: Event | None, found: Event | None) -> str:
    if expected is None:
        assert found is not None, "where nothing is expected, something was found"
        return f"the log has {found.type} here, and the rules decide on nothing"
    if found is None:
        return f"the log ends here, and the rules decide on {expected.type}"
    if expected.type != found.type:
        return f"the log has {found.type} here, and the rules decide on {expected.type}"
    words = ", ".join(differences(expected, found, weighty=True))
    return f"the rules decide on {expected.type} too, but with another {words}"
