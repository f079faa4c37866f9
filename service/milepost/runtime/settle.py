"""What follows from a state: the events to write now, and what to do once they are durable."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from types import MappingProxyType

import orjson

from milepost.core.agents import Agent
from milepost.core.decide import decide
from milepost.core.effects import (
    AskApproval,
    CallModel,
    CallTool,
    Cancel,
    CheckCall,
    CompressResult,
    CountCall,
    Effect,
    End,
    Park,
    Record,
    ScreenCall,
    ScreenInput,
    SummarizeHistory,
)
from milepost.core.events import (
    ApprovalRequested,
    ApprovalWithdrawn,
    Event,
    Failure,
    InputScreening,
    MessageAborted,
    MessageStarted,
    PolicyDecided,
    RunCancelled,
    RunFailed,
    RunWaiting,
    Terminal,
    ToolCallCounting,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallScreening,
    ToolCallStarted,
)
from milepost.core.evolve import evolve
from milepost.core.guardrails import looks_at
from milepost.core.json import Json
from milepost.core.open_call import CallStatus
from milepost.core.rulings import Rules
from milepost.core.state import State
from milepost.core.usage import UNKNOWN, Usage
from milepost.runtime.clock import NewId
from milepost.runtime.journal import Stamped, ending
from milepost.runtime.stopping import Stops, is_in_hand, work_of
from milepost.store.records import Change, Claim, NewApproval

ROUNDS_MAX = 1_000

NONE_STOPPED: Stops = MappingProxyType({})
RUN_ENDED = "the run was ended"
GIVEN_UP = Failure("cancelled", "the run was ended while this tool ran; it may have acted")

Call = (
    ScreenInput
    | SummarizeHistory
    | ScreenCall
    | CountCall
    | CallModel
    | CallTool
    | CheckCall
    | CompressResult
)
"""What is done in the world, once the log says that it is begun."""


@dataclass(slots=True)
class Settlement:
    """An iteration: what happened and what it decided. `calls` begin when it is durable.

    A call comes with the seq offset, counted from the iteration's first event, of its own start.
    `stops` is what was in hand and is not any more.
    """

    state: State
    happened: list[Stamped]
    calls: list[tuple[Call, int]] = field(default_factory=list)
    approvals: list[NewApproval] = field(default_factory=list)
    change: Change | None = None
    stops: Stops = field(default_factory=dict)

    @property
    def leaves(self) -> bool:
        """Say whether the worker lets go of the run with this."""
        return self.change is not None


class Settling:
    """Decides for one run under one claim until there is nothing left to decide."""

    def __init__(
        self, claim: Claim, agent: Agent, rules: Rules, new_id: NewId,
        preview: Callable[[str, Mapping[str, Json]], str],
        cut_off: Callable[[str], Usage] = lambda _: UNKNOWN,
    ) -> None:  # fmt: skip
        self._claim = claim
        self._agent = agent
        self._rules = rules
        self._new_id = new_id
        self._preview = preview
        self._cut_off = cut_off

    def settle(
        self, state: State, happened: Sequence[Stamped], now_ms: int, stops: Stops = NONE_STOPPED
    ) -> Settlement:
        """Return what follows from `state` and what `happened`, up to where the world acts."""
        settlement = Settlement(state, [], stops=stops)
        for stamped in happened:
            self._happen(settlement, stamped.event, stamped.time_ms)
        for _ in range(ROUNDS_MAX):
            effects = decide(settlement.state, self._rules, now_ms)
            if not effects:
                return settlement
            for effect in effects:
                self._take(settlement, effect, now_ms)
            if settlement.leaves:
                return settlement
        raise AssertionError(f"run {self._claim.run_id} decides without end")

    def _take(self, settlement: Settlement, effect: Effect, now_ms: int) -> None:
        match effect:
            case Record(events):
                self._happen_all(settlement, events, now_ms)
            case (
                ScreenInput()
                | SummarizeHistory()
                | ScreenCall()
                | CountCall()
                | CallModel()
                | CallTool()
                | CheckCall()
                | CompressResult()
            ):
                self._happen_all(settlement, self._opening(effect), now_ms)
                settlement.calls.append((effect, len(settlement.happened)))
            case AskApproval():
                self._ask(settlement, effect, now_ms)
            case Park(cause, pending):
                self._happen(settlement, RunWaiting(cause, pending), now_ms)
                waiting_for = orjson.dumps({"for": cause, "pending": pending}).decode()
                # An operator has it begin anew; whoever else answers has achieved nothing for it.
                crashes = 0 if cause == "operator" else settlement.state.crashes
                settlement.change = Change("waiting", waiting_for=waiting_for, crashes=crashes)
            case Cancel():
                self._cancel(settlement, now_ms)
            case End(event, events):
                self._happen_all(settlement, events, now_ms)
                self._close(settlement, event, now_ms)

    def _opening(self, effect: Call) -> tuple[Event, ...]:
        """Return what says that the call is begun."""
        match effect:
            case ScreenInput():
                return (InputScreening(),)
            case ScreenCall(call):
                return (ToolCallScreening(call.id, self._judge_of(call.name)),)
            case CountCall(call):
                return (ToolCallCounting(call.id),)
            case CheckCall(call):
                return (ToolCallInterrupted(call.id, "check"),)
            case CallModel(message_id, opening):
                return (*opening, MessageStarted(message_id, self._agent.model))
            case CallTool():
                return (_started(effect),)
            case CompressResult(opening=opening) | SummarizeHistory(opening):
                return (opening,)

    def _judge_of(self, tool: str) -> str | None:
        """Return the model that the agent has judge calls of a tool."""
        rails = self._agent.guardrails
        judge = rails.coherence if rails else None
        return judge.model if judge and looks_at(judge.tools, tool) else None

    def _happen(self, settlement: Settlement, event: Event, time_ms: int) -> None:
        settlement.happened.append(Stamped(event, time_ms))
        settlement.state = evolve(settlement.state, event)

    def _happen_all(self, settlement: Settlement, events: Sequence[Event], time_ms: int) -> None:
        for event in events:
            self._happen(settlement, event, time_ms)

    def _cancel(self, settlement: Settlement, now_ms: int) -> None:
        state = settlement.state
        if state.cancelling is None:
            assert state.failing is not None, "a run is stopped on request, or because it must be"
            self._close(settlement, RunFailed(state.failing, state.usage), now_ms)
            return
        by, reason = state.cancelling.by, state.cancelling.reason
        stopped = tuple(name for name, _ in in_hand(state))
        work = work_of(state, self._agent.model, settlement.stops, now_ms)
        event = RunCancelled(by, reason, stopped, state.usage, work)
        self._close(settlement, event, now_ms)

    def _close(self, settlement: Settlement, event: Terminal, now_ms: int) -> None:
        open_message = settlement.state.open_message
        usage = self._cut_off(open_message) if open_message else UNKNOWN
        before, last = closing(settlement.state, event, usage)
        self._happen_all(settlement, (*before, last), now_ms)
        settlement.change = ending(last, settlement.state, now_ms)

    def _ask(self, settlement: Settlement, effect: AskApproval, now_ms: int) -> None:
        call, terms = effect.call, effect.terms
        ttl_s = self._agent.limits.approval_ttl_s if terms.ttl_s is None else terms.ttl_s
        asked = ApprovalRequested(
            approval_id=self._new_id("apr"),
            call_id=call.id,
            tool=call.name,
            arguments=effect.arguments,
            digest=effect.digest,
            preview=self._preview(call.name, effect.arguments),
            policy=effect.reason,
            expires_at_ms=now_ms + round(ttl_s * 1000),
            required=terms.required,
            kind=effect.kind,
            approvers=terms.approvers,
            on_timeout=terms.on_timeout,
        )
        judged = PolicyDecided(call.id, "ask", effect.reason)
        before = effect.opening if effect.kind == "outcome" else (judged,)
        self._happen_all(settlement, (*before, asked), now_ms)
        settlement.approvals.append(
            NewApproval(
                id=asked.approval_id,
                run_id=self._claim.run_id,
                session_id=self._claim.session_id,
                agent=self._agent.name,
                user=self._claim.user,
                call_id=call.id,
                tool=call.name,
                arguments=orjson.dumps(effect.arguments).decode(),
                digest=effect.digest,
                preview=asked.preview,
                reason=effect.reason,
                created_ms=now_ms,
                expires_ms=asked.expires_at_ms,
                kind=effect.kind,
                terms=terms,
                requester=self._claim.user,
                made_by=self._claim.made_by,
                speakers=tuple(sorted(settlement.state.speakers)),
            )
        )


def in_hand(state: State, open_usage: Usage = UNKNOWN) -> list[tuple[str, Event]]:
    """Return what is being done just now: what it is called, and the event that gives it up.

    `open_usage` is what the call for an open message took.
    """
    work: list[tuple[str, Event]] = [
        (f"{call_id} {call.call.name}", ToolCallFailed(call_id, GIVEN_UP))
        for call_id, call in state.calls.items()
        if is_in_hand(call)
    ]
    if state.open_message:
        aborted = MessageAborted(state.open_message, RUN_ENDED, usage=open_usage)
        work.insert(0, (state.open_message, aborted))
    return work


def closing(
    state: State, event: Terminal, open_usage: Usage = UNKNOWN
) -> tuple[list[Event], Terminal]:
    """Return what goes before a terminal event, lest anything is left open, and the event itself.

    What is given up counts too, an open message with `open_usage`: the event's usage is that of
    the whole log.
    """
    given_up = [event for _, event in in_hand(state, open_usage)]
    withdrawn = (
        ApprovalWithdrawn(call.approval_id, call_id)
        for call_id, call in state.calls.items()
        if call.status is CallStatus.ASKED and call.approval_id
    )
    usage = reduce(evolve, given_up, state).usage
    last = event if usage is event.usage else replace(event, usage=usage)
    return [*given_up, *withdrawn], last


def _started(effect: CallTool) -> ToolCallStarted:
    changed = dict(effect.arguments) != dict(effect.call.arguments)
    return ToolCallStarted(
        effect.call.id,
        effect.attempt,
        effect.effect,
        effect.arguments if changed else None,
        effect.coerced,
    )
