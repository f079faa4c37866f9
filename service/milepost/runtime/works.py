"""What a driver has in hand of a run: calls of models and tools, each a task, and how they end."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from milepost.core.effects import CallModel, CallTool, CheckCall
from milepost.core.events import ChildRunStarted, Event, StoppedWork, ToolCallFailed
from milepost.core.open_call import CallStatus
from milepost.core.repetition import may_repeat
from milepost.core.state import State
from milepost.core.usage import Usage
from milepost.runtime.acts import Acts
from milepost.runtime.announcements import Announcements
from milepost.runtime.cutoff import cut_off
from milepost.runtime.journal import Journal, Stamped
from milepost.runtime.means import Means
from milepost.runtime.settle import Call
from milepost.runtime.stopping import stopped
from milepost.runtime.stops import Stops

Work = asyncio.Task[list[Event]]


@dataclass(frozen=True, slots=True)
class LetGo:
    """Work that was let go of, and when it was over: at `over_ms`, or not yet."""

    work: Work
    effect: Call
    over_ms: int | None


class Works:
    """What was begun and has not been collected.

    `wake` is called as something ends. `broken` is the first error that came of any of it, and
    `stopped` says what became of what was cancelled with its run, by its id.
    """

    def __init__(
        self,
        journal: Journal,
        means: Means,
        acts: Acts,
        announcements: Announcements,
        stops: Stops,
        wake: Callable[[object], None],
    ) -> None:
        self._journal = journal
        self._means = means
        self._acts = acts
        self._announcements = announcements
        self._stops = stops
        self._wake = wake
        self._works: dict[Work, Call] = {}
        self.broken: BaseException | None = None
        self.stopped: dict[str, StoppedWork] = {}

    def __bool__(self) -> bool:
        """Say whether anything is in hand."""
        return bool(self._works)

    def begin(self, effect: Call, seq: int) -> None:
        """Start a call in the world, which is written down already: only if we still may."""
        self._means.lease.check()
        work = asyncio.create_task(self._acts.perform(effect, seq))
        work.add_done_callback(self._wake)
        self._works[work] = effect

    async def announced(self) -> list[Stamped]:
        """Take what tools told of, past the rails of what they bring.

        Until nothing waits: whoever collects a call's end right after this has all that it told.
        """
        happened: list[Stamped] = []
        while told := self._announcements.take():
            for stamped in told:
                events = await self._acts.announced(stamped.event, self._journal.state)
                happened += [Stamped(event, stamped.time_ms) for event in events]
        return happened

    def collect(self) -> list[Stamped]:
        """Take what has ended. A call that raised breaks the drive, and loses no other's result."""
        happened: list[Stamped] = []
        for work in [work for work in self._works if work.done()]:
            effect = self._works.pop(work)
            if work.cancelled():
                usage = Usage()
                if isinstance(effect, CallModel):
                    usage = self._acts.cut_off(effect.message_id)
                happened += self._untold(effect)
                happened += self._journal.stamp(cut_off(effect, usage))
            elif error := work.exception():
                self.broken = self.broken or error
                happened += self._untold(effect)
            else:
                happened += self._news(effect, work.result(), self._journal.state)
        return happened

    async def finish(self) -> list[Stamped]:
        """Let what cannot be repeated finish, and stop the rest; return what came of it."""
        for work, effect in self._works.items():
            if not isinstance(effect, CallTool) or may_repeat(effect.effect):
                work.cancel()
        if self._works:
            await asyncio.wait(self._works, timeout=self._means.drain_s)
        told = await self.announced()
        for work, effect in [*self._works.items()]:
            if work.cancelled() or not work.done():
                told += self._untold(effect)
            if work.cancelled():
                del self._works[work]  # It was stopped by this, maybe only now: it has not failed.
        return [*told, *self.collect()]

    async def stop(self) -> list[LetGo]:
        """Cancel what is in hand. What will not be cancelled is let go of, too: the run goes on."""
        works, clock = dict(self._works), self._means.ports.clock
        self._works.clear()
        over_ms: dict[Work, int] = {}
        for work in works:
            work.add_done_callback(lambda done: over_ms.setdefault(done, clock()))
            work.cancel()
        if works:
            await asyncio.wait(works, timeout=self._means.stop_s)
        return [
            LetGo(work, effect, over_ms.get(work, clock()) if work.done() else None)
            for work, effect in works.items()
        ]

    async def came_of(self, let_go: Sequence[LetGo], state: State) -> list[Stamped]:
        """Return what came of work that was let go of as its run ends; see `state` for children.

        By that a child may be over whose call was in hand still.
        """
        happened = await self.announced()
        for each in let_go:
            if (brought := self._brought(each, state)) is None:
                left = await self._acts.left_behind(each.effect)
                brought = [*self._untold(each.effect), *self._journal.stamp(*left)]
            happened += brought
        return happened

    def note(self, let_go: Sequence[LetGo]) -> None:
        """Keep what became of work that was stopped since its run is cancelled."""
        for each in let_go:
            if self._ended_by_itself(each):
                continue
            if told := self._told_of(each):
                self.stopped[told.id] = told

    def note_children(self, over: Collection[str], state: State) -> None:
        """Keep that these children, whose runs were told to stop, are over."""
        at_ms = self._means.ports.clock()
        for call in state.calls.values():
            run_id, name = call.child_run_id, call.call.name
            if run_id is not None and run_id in over:
                told = StoppedWork("child_run", run_id, name, "cancelled", None, at_ms)
                self.stopped[run_id] = told

    def _ended_by_itself(self, let_go: LetGo) -> bool:
        work = let_go.work
        return work.done() and not work.cancelled() and work.exception() is None

    def _brought(self, let_go: LetGo, state: State) -> list[Stamped] | None:
        """Return what came of work that was to be stopped, None if it was or is still at it."""
        if not self._ended_by_itself(let_go):
            return None
        return self._news(let_go.effect, let_go.work.result(), state)

    def _news(self, effect: Call, events: list[Event], state: State) -> list[Stamped]:
        self._acts.told(effect)
        return self._journal.stamp(*self._stops.stopped(_unheard(effect, events, state), state))

    def _untold(self, effect: Call) -> list[Stamped]:
        """Return what tells of a model that was asked for a call which comes to nothing."""
        return self._journal.stamp(*self._acts.untold(effect))

    def _told_of(self, let_go: LetGo) -> StoppedWork | None:
        effect, why_left, tool = let_go.effect, None, None
        if isinstance(effect, CallTool | CheckCall):
            why_left = self._acts.left.get(effect.call.id)
            tool = self._means.tools.get(effect.call.name)
        at_ms = let_go.over_ms
        if at_ms is None:
            why_left = f"it went on for {self._means.stop_s:g} s after it was cancelled"
            at_ms = self._means.ports.clock()
        return stopped(effect, self._journal.agent.model, tool, why_left, at_ms)


def _unheard(effect: Call, events: list[Event], state: State) -> list[Event]:
    """Return the events without what became of a child that is over: its letter has said that."""
    if not isinstance(effect, CallTool) or effect.call.kind != "agent":
        return events
    call = state.calls.get(effect.call.id)
    if call is not None and call.status is CallStatus.STARTED:
        return events
    return [event for event in events if not isinstance(event, ChildRunStarted | ToolCallFailed)]
