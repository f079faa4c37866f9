"""A world by chance around the pure loop: models, tools, people, crashes, and the clock.

The shell here is the runtime's own `Settling`; what it decides is performed with random outcomes,
and a crash loses whatever was in hand, as it does for a worker that dies.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

from milepost.core import ids
from milepost.core.agents import Agent, Compression, Limits, LoopDetection
from milepost.core.canonical import call_digest
from milepost.core.context import NOTHING_EARLIER
from milepost.core.effects import (
    CallModel,
    CallTool,
    CheckCall,
    CompressResult,
    CountCall,
    ScreenCall,
    ScreenInput,
    SummarizeHistory,
)
from milepost.core.events import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalWithdrawn,
    Event,
    Failure,
    Found,
    InputMessage,
    InputScreened,
    MemorySummarized,
    MemoryTrimmed,
    MessageAborted,
    MessageCompleted,
    RunCancelled,
    RunCancelling,
    RunExpired,
    RunQueued,
    RunResumed,
    RunRetried,
    RunRetrying,
    RunStarted,
    RunWaiting,
    SessionLoaded,
    SteerReceived,
    Stretch,
    ToolCallChecked,
    ToolCallCompleted,
    ToolCallCounted,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallScreened,
    ToolResultCompressed,
)
from milepost.core.evolve import evolve
from milepost.core.json import Json
from milepost.core.messages import Message, ToolCall, ToolKind
from milepost.core.model import FinishReason
from milepost.core.open_call import CallStatus
from milepost.core.policy import NOBODY_COUNTED, Counted
from milepost.core.prompt import prompt
from milepost.core.repetition import ToolEffect
from milepost.core.rulings import (
    AnswerRule,
    Ask,
    Count,
    Counts,
    Fits,
    Misfits,
    Refuse,
    Reject,
    Rules,
    Ruling,
    Run,
)
from milepost.core.state import State
from milepost.core.usage import Usage
from milepost.runtime.journal import Stamped
from milepost.runtime.settle import Call, Settlement, Settling, closing
from milepost.store.records import Claim
from milepost.tools import preview

CLERK = Agent("agt_1", 1, "clerk", "openai/gpt-5-mini", instructions="Be kind.")
CLAIM = Claim("run_1", "acme", "ses_1", "agt_1", 1, None, 1, 2, 0, 0, "{}", None, None)
DEADLINE_MS = 1_000_000
MAX_STEPS = 4
TRIMMED = Stretch("sum_1", "1.0", "2.1", 4)
LOADED = SessionLoaded(3, 2, kept_from="3.0", trimmed=TRIMMED)

REASONS: Sequence[FinishReason] = ("stop", "length", "content_filter")
BUSY = Failure("provider_unavailable", "busy", retryable=True)
REFUSED = Failure("provider_refused", "no such model")
BROKEN = Failure("tool_failed", "it broke")

EFFECTS: Mapping[str, ToolEffect] = {
    "look": "read",
    "put": "idempotent",
    "pay": "once",
    "mail": "once",
    "ping": "idempotent",
    "scan": "once",
    "sign": "once",
    "close": "idempotent",
    "book": "checkable",
    "note": "transactional",
    "cap": "once",
}
GATED = frozenset({"mail", "ping", "sign"})
RATED = frozenset({"cap", "note"})
OFTEN = 2
BY_CLIENT = frozenset({"scan", "sign"})
TERMINAL = frozenset({"close"})
OPENINGS = frozenset(
    {
        "input.screening",
        "memory.summarizing",
        "tool_call.screening",
        "tool_call.counting",
        "tool_call.interrupted",
        "message.started",
        "tool_call.started",
        "tool_result.compressing",
    }
)
TOOLS = (*EFFECTS, "banned", "unknown")


def judge(call: ToolCall, counts: Counts = NOBODY_COUNTED, /) -> Ruling:
    """Rule by the tool's name, and by how often; coercion adds a default that was left out."""
    if call.name == "unknown":
        return Reject(Failure("unknown_tool", "there is no such tool"))
    if call.name == "banned":
        return Refuse("policy", "policy: deny banned")
    arguments = {"times": 1, **call.arguments}
    if call.name in RATED and call.name not in counts:
        return Count(arguments, (Counted(call.name, "tenant", 60, 1_000),))
    if call.name in GATED or counts.get(call.name, 0) > OFTEN:
        return Ask(arguments, EFFECTS[call.name], "policy: ask")
    return Run(arguments, EFFECTS[call.name])


RULES = Rules(
    judge,
    Limits(max_steps=MAX_STEPS, model_retries=1),
    Compression("openai/gpt-5-nano", threshold_chars=len('{"did":"pay"}')),
)


def _fits_at_even_messages(text: str) -> Fits | Misfits:
    """Read an answer as structured by the parity of its length, which is as good as any."""
    return Fits({"text": text}) if len(text) % 2 else Misfits("it is too even")


VARIANTS = (
    RULES,
    replace(RULES, parallel_tools=False),
    replace(RULES, routing_only=True),
    replace(RULES, routing_only=True, screens_calls=True),
    replace(RULES, answer=AnswerRule(_fits_at_even_messages, 2)),
    replace(RULES, loop_detection=LoopDetection(repeat=2, stall=2, ping_pong=2)),
    replace(RULES, loop_detection=LoopDetection(repeat=2, action="stop")),
    replace(RULES, screens_input=True, screens_calls=True),
    replace(RULES, summarizer="openai/gpt-5-nano"),
    replace(RULES, summarizer="openai/gpt-5-nano", screens_input=True),
    replace(RULES, on_unknown=lambda _: "ask"),
    replace(RULES, on_unknown=lambda _: "fail", screens_calls=True),
    replace(RULES, limits=replace(RULES.limits, max_tool_calls=2)),
    replace(RULES, limits=replace(RULES.limits, max_model_calls=2, warn_at=0.5)),
    replace(
        RULES,
        parallel_tools=False,
        screens_input=True,
        screens_calls=True,
        active_deadline_ms=DEADLINE_MS // 2,
        limits=replace(RULES.limits, max_tool_calls=3),
    ),
)


@dataclass
class World:
    """One run and all that happens to it. `prompts` holds what the model was shown."""

    chance: Random
    rules: Rules = RULES
    deadline_ms: int | None = None
    now_ms: int = 0
    log: list[Event] = field(default_factory=list)
    state: State = field(default_factory=State)
    in_hand: list[Call] = field(default_factory=list)
    prompts: list[tuple[Message, ...]] = field(default_factory=list)
    executed: list[CallTool] = field(default_factory=list)
    parks: int = 0
    held: bool = True
    attempt: int = 1
    script: Callable[[State], Sequence[str] | None] | None = None
    kind: bool = False  # No more faults: whoever is asked answers, and the model comes to an end.

    def __post_init__(self) -> None:
        self._settling = Settling(CLAIM, CLERK, self.rules, self._new_id, preview)
        self._ids = 0
        said = (InputMessage("user", "Do what must be done."),)
        queued = RunQueued("clerk", "agt_1", 1, "ses_1", said, deadline_ms=self.deadline_ms)
        self.write([queued, RunStarted(1, "w1")])
        self.go_on([LOADED] if self.rules.summarizer else [])

    def _new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}_{self._ids}"

    # --- The shell ---

    def go_on(self, happened: Sequence[Event]) -> None:
        """Settle what happened, write it down, and take what follows in hand."""
        stamped = [Stamped(event, self.now_ms) for event in happened]
        settlement = self._settling.settle(self.state, stamped, self.now_ms)
        self.write([each.event for each in settlement.happened])
        assert self.state == settlement.state
        if settlement.leaves:
            self._let_go(settlement)
        else:
            base = len(self.log) - len(settlement.happened)
            for effect, offset in settlement.calls:
                self._begin(effect, self.log[base + offset - 1])

    def write(self, events: Sequence[Event]) -> None:
        """Append to the log; nothing may come behind its end."""
        assert not self.state.ended or not events
        self.log += events
        for event in events:
            self.state = evolve(self.state, event)

    def _let_go(self, settlement: Settlement) -> None:
        assert settlement.change is not None
        self.held = False
        self.in_hand.clear()
        if settlement.change.status == "waiting":
            self.parks += 1
            self._check_park()

    def _check_park(self) -> None:
        parked = self.log[-1]
        assert isinstance(parked, RunWaiting)
        assert parked.cause == self.waiting_for
        assert self.state.open_message is None
        if parked.cause != "operator":
            assert parked.pending == (*self.pending, *self.awaited) != ()
            over = {CallStatus.ASKED, CallStatus.AWAITED, CallStatus.DONE}
            over |= set() if self.rules.parallel_tools else {CallStatus.REQUESTED}
            assert {call.status for call in self.state.calls.values()} <= over

    def _begin(self, effect: Call, opening: Event) -> None:
        assert opening.type in OPENINGS
        self.in_hand.append(effect)
        match effect:
            case CallModel():
                self.prompts.append(prompt(CLERK, NOTHING_EARLIER, self.state))
            case CallTool():
                assert effect.call.kind == "server"
                self.executed.append(effect)
            case CompressResult():
                assert len(effect.content) == effect.opening.chars
            case CheckCall():
                assert EFFECTS[effect.call.name] == "checkable"
            case CountCall():
                assert [each.key for each in effect.wanted] == [effect.call.name]
            case SummarizeHistory(opening=asked):
                assert asked.id == TRIMMED.id
                assert not self.state.messages_started
            case ScreenInput() | ScreenCall():
                assert not self.state.messages_started or isinstance(effect, ScreenCall)

    # --- What the log says ---

    @property
    def ended(self) -> bool:
        """Say whether the run is over."""
        return self.state.ended

    @property
    def waiting_for(self) -> str:
        """What a waiting run waits for."""
        if self.state.crashes >= 3:
            return "operator"
        return "approval" if self.pending else "client_tool"

    @property
    def pending(self) -> tuple[str, ...]:
        """The approvals that are open."""
        calls = self.state.calls.values()
        return tuple(str(call.approval_id) for call in calls if call.status is CallStatus.ASKED)

    @property
    def awaited(self) -> tuple[str, ...]:
        """The calls that the client has in hand."""
        calls = self.state.calls.values()
        return tuple(call.call.id for call in calls if call.status is CallStatus.AWAITED)

    # --- What happens ---

    def moves(self) -> list[str]:
        """Return what may happen next."""
        if self.ended:
            return []
        if self.held:
            moves = ["finish"] * len(self.in_hand)
            moves += [] if self.kind else ["crash", "hand_back", "cancel", "wait", "steer"]
            moves += ["answer"] if self.pending else []
            return moves + (["bring"] if self.awaited else [])
        come = [] if self.kind else ["steer_parked"]
        come += ["answer_parked"] if self.pending else []
        come += ["bring_parked"] if self.awaited else []
        if self.waiting_for == "operator":
            return ["retry"] if self.kind else ["retry", "end_outside", *come]
        return come if self.kind else [*come, "end_outside"]

    def happen(self, move: str) -> None:
        """Let it happen."""
        getattr(self, move)()

    def finish(self) -> None:
        """A call in hand comes back; several may come back in any order."""
        effect = self.in_hand.pop(self.chance.randrange(len(self.in_hand)))
        match effect:
            case CallModel():
                self.go_on(self._replied(effect))
            case CallTool():
                self.go_on(self._ran(effect))
            case CompressResult(call, _, opening):
                used = Usage(model_calls=1)
                told = ToolResultCompressed(call.id, "short", opening.chars, opening.model, used)
                self.go_on([told])
            case CountCall(call):
                often = self.chance.randrange(1, 2 * OFTEN)
                self.go_on([ToolCallCounted(call.id, {call.name: often})])
            case CheckCall(call):
                self.go_on(self._checked(call))
            case SummarizeHistory():
                self.go_on([self._trimmed()])
            case ScreenInput():
                self.go_on([self._screened()])
            case ScreenCall():
                self.go_on([self._screened_call(effect)])

    def crash(self) -> None:
        """The worker dies, and another takes the run."""
        self._lose("crash")

    def hand_back(self) -> None:
        """The worker stops: what is in hand is cut off, and another takes the run."""
        self.write([RunRetrying("drain")])
        self._lose("drain")

    def cancel(self) -> None:
        """Somebody asks for the end while a worker holds the run."""
        self.go_on([RunCancelling("ann", None)])

    def wait(self) -> None:
        """Time passes."""
        self.now_ms += self.chance.randrange(DEADLINE_MS // 2)
        self.go_on([])

    def answer(self) -> None:
        """A person answers while a worker holds the run."""
        self.go_on(self._answered())

    def answer_parked(self) -> None:
        """A person answers and so queues the run again; or nobody did, in time."""
        self.bring_answers(self._answered())

    def bring_answers(self, answers: Iterable[Event]) -> None:
        """People's answers queue the run again, and a worker reads them all at once."""
        self._take("approval")
        self.go_on([*answers])

    def bring(self) -> None:
        """The client brings a result while a worker holds the run."""
        self.go_on(self._brought())

    def bring_parked(self) -> None:
        """The client brings a result and so queues the run again."""
        self._take("client_tool")
        self.go_on(self._brought())

    def steer(self) -> None:
        """Somebody says something while a worker holds the run."""
        self.go_on([self._said()])

    def steer_parked(self) -> None:
        """Somebody says something to a run that waits, and so queues it again."""
        self._take("steer")
        self.go_on([self._said()])

    def retry(self) -> None:
        """An operator sends the run on."""
        self._take("retry")
        self.go_on([RunRetried("ann")])

    def end_outside(self) -> None:
        """The run is cancelled, or expires, while nobody holds it."""
        cancelled = RunCancelled("ann", None, (), self.state.usage)
        expired = RunExpired("deadline", self.state.usage)
        before, last = closing(self.state, self.chance.choice((cancelled, expired)))
        self.write([*before, last])

    def _said(self) -> SteerReceived:
        message_id = self._new_id("ste")
        refused = "too rude" if self.chance.randrange(4) == 0 else None
        return SteerReceived(message_id, f"and {message_id}", by="ann", blocked=refused)

    def _trimmed(self) -> Event:
        """A model tells of what fell out of sight, or it does not."""
        what = (TRIMMED.id, TRIMMED.first, TRIMMED.last, TRIMMED.messages)
        if self.chance.randrange(2):
            return MemorySummarized(*what, "openai/gpt-5-nano", "They met.", Usage(model_calls=1))
        return MemoryTrimmed(*what, "openai/gpt-5-nano", BUSY)

    def _lose(self, why: str) -> None:
        self.in_hand.clear()
        self._take(why)
        self.go_on([])

    def _take(self, why: str) -> None:
        self.attempt += 1
        self.held = True
        self.write([RunResumed(self.attempt, f"w{self.attempt}", why)])  # type: ignore[arg-type]

    def _replied(self, effect: CallModel) -> list[Event]:
        if self.script:
            return self._played(effect, self.script(self.state) or ())
        luck = self.chance.random()
        if not self.kind and luck < 0.15:
            return [MessageAborted(effect.message_id, "busy", BUSY)]
        if not self.kind and luck < 0.2:
            return [MessageAborted(effect.message_id, "refused", REFUSED)]
        calls = self.chance.randrange(4)
        reason = self.chance.choice(REASONS)
        reply = MessageCompleted(
            effect.message_id, f"text {effect.message_id}", reason, Usage(model_calls=1)
        )
        names = [self.chance.choice(TOOLS) for _ in range(calls)]
        return [reply, *(self._requested(effect, *each) for each in enumerate(names))]

    def _played(self, effect: CallModel, names: Sequence[str]) -> list[Event]:
        text = f"step {self.state.step}"
        reply = MessageCompleted(effect.message_id, text, "stop", Usage(model_calls=1))
        return [reply, *(self._requested(effect, *each) for each in enumerate(names))]

    def _requested(self, effect: CallModel, index: int, name: str) -> ToolCallRequested:
        arguments: dict[str, Json] = {"to": self.chance.randrange(2)}
        call_id = ids.call_id(self.state.step, index)
        kind: ToolKind = "client" if name in BY_CLIENT else "server"
        return ToolCallRequested(call_id, name, arguments, kind, "key", effect.message_id)

    def _ran(self, effect: CallTool) -> list[Event]:
        if not self.script and self.chance.random() < 0.3:
            return [ToolCallFailed(effect.call.id, BROKEN)]
        name = effect.call.name
        return [ToolCallCompleted(effect.call.id, {"did": name}, 1, terminal=name in TERMINAL)]

    def _screened(self) -> InputScreened:
        used = Usage(model_calls=1)
        match self.chance.randrange(4):
            case 0:
                return InputScreened(blocked="too rude", usage=used)
            case 1:
                return InputScreened(input=(InputMessage("user", "Do what [what]."),), usage=used)
            case _:
                return InputScreened(usage=used)

    def _screened_call(self, effect: ScreenCall) -> ToolCallScreened:
        call_id = effect.call.id
        match self.chance.randrange(4):
            case 0:
                return ToolCallScreened(call_id, blocked="too much")
            case 1:
                return ToolCallScreened(call_id, arguments={**effect.arguments, "to": 7})
            case _:
                return ToolCallScreened(call_id, usage=Usage(model_calls=1))

    def _checked(self, call: ToolCall) -> list[Event]:
        found: Found = self.chance.choice(("found", "absent", "unknown"))
        checked = ToolCallChecked(call.id, found)
        done = ToolCallCompleted(call.id, {"did": call.name}, 1)
        return [checked, done] if found == "found" else [checked]

    def _brought(self) -> list[Event]:
        return [ToolCallCompleted(self.chance.choice(self.awaited), "brought", 1)]

    def _answered(self) -> list[Event]:
        asked = [call for call in self.state.calls.values() if call.status is CallStatus.ASKED]
        call = self.chance.choice(asked)
        approval_id, call_id = str(call.approval_id), call.call.id
        if call.asking == "outcome":
            return self._told_outcome(approval_id, call_id)
        match 3 if self.script else self.chance.randrange(4):
            case 0:
                then: Literal["deny", "fail"] = self.chance.choice(("deny", "fail"))
                return [ApprovalExpired(approval_id, call_id, then)]
            case 1:
                return [ApprovalDecided(approval_id, call_id, "deny", "ann", "no")]
            case 2:
                edited = {"times": 1, "to": 9}
                digest = call_digest(call.call.name, edited)
                return [
                    ApprovalDecided(
                        approval_id, call_id, "approve", "ann", arguments=edited, digest=digest
                    )
                ]
            case _:
                return [ApprovalDecided(approval_id, call_id, "approve", "ann")]

    def _told_outcome(self, approval_id: str, call_id: str) -> list[Event]:
        match 0 if self.script else self.chance.randrange(5):
            case 0:
                return [ApprovalExpired(approval_id, call_id)]
            case 1:
                return [ApprovalWithdrawn(approval_id, call_id, "ann", "never mind")]
            case 2:
                said = ApprovalDecided(approval_id, call_id, "happened", "ann", result="it did")
                ends = self.chance.choice((True, False))
                brought = ToolCallCompleted(call_id, "it did", 0, terminal=ends)
                is_told_alone = self.chance.choice((True, False))  # As by older workers.
                return [said] if is_told_alone else [said, brought]
            case 3:
                return [ApprovalDecided(approval_id, call_id, "not_happened", "ann")]
            case _:
                return [ApprovalDecided(approval_id, call_id, "stop", "ann")]
