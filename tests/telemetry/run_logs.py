"""Logs of runs, made by hand and by chance, for whatever reads logs."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import strategies as st

from milepost.core.events import (
    CacheHit,
    ChildRunEnded,
    ChildRunStarted,
    Event,
    Failure,
    GuardrailTriggered,
    InputMessage,
    InputScreened,
    InputScreening,
    LoopDetected,
    MessageAborted,
    MessageCompleted,
    MessageStarted,
    ModelRetried,
    Output,
    PolicyDecided,
    ResumeWhy,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunQueued,
    RunResumed,
    RunRetrying,
    RunStarted,
    RunWaiting,
    StepStarted,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallRequested,
    ToolCallScreened,
    ToolCallScreening,
    ToolCallStarted,
)
from milepost.core.guardrails import Place
from milepost.core.messages import ToolKind
from milepost.core.usage import Usage

RUN_ID = "run_0190"
MODEL = "openai/gpt-5-mini"
BROKEN = Failure("provider_unavailable", "the vendor is out of office", retryable=True)
CIRCLE = LoopDetected("repeat", ("add",), 3, "warn", "You turn in a circle.")
ELSEWHERE = {"ask_user", "agent:scribe"}
QUEUED = RunQueued("clerk", "agt_1", 3, "ses_1", (InputMessage("user", "Refund order 7"),))

Logged = tuple[int, int, Event]
"""An event with its seq and its time."""


@dataclass
class LogWriter:
    """Writes a log, event by event, at times that only go forward."""

    entries: list[Logged] = field(default_factory=list)
    now_ms: int = 1_000

    def write(self, *events: Event, after_ms: int = 0) -> "LogWriter":
        """Append the events, `after_ms` later than the last one."""
        self.now_ms += after_ms
        for event in events:
            self.entries.append((len(self.entries) + 1, self.now_ms, event))
        return self


def requested(
    call_id: str = "call_1_0", name: str = "add", kind: ToolKind = "server"
) -> ToolCallRequested:
    """Return a request for `add(17, 25)`, or for another tool."""
    return ToolCallRequested(call_id, name, {"a": 17, "b": 25}, kind, "key", "msg_1")


def replied(message_id: str = "msg_1", text: str = "On it.") -> MessageCompleted:
    """Return a reply of 50 tokens in and 20 out."""
    usage = Usage(input_tokens=50, output_tokens=20, cache_read_tokens=8, model_calls=1)
    return MessageCompleted(
        message_id, text, "stop", usage, "gpt-5-mini-2026", "resp_1", first_delta_ms=120
    )


def begun() -> LogWriter:
    """Return the log of a run that waited two seconds in the queue and was then claimed."""
    return LogWriter().write(QUEUED).write(RunStarted(1, "w1"), after_ms=2_000)


def asking() -> LogWriter:
    """Return the log of a run whose model has just asked for a call, after 300 ms."""
    log = begun().write(StepStarted(1), MessageStarted("msg_1", MODEL), after_ms=5)
    return log.write(replied(), requested(), after_ms=300)


def ended(log: LogWriter) -> LogWriter:
    """Let the run answer."""
    return log.write(RunCompleted(Output("42"), Usage()), after_ms=1)


def _place(call_id: str | None) -> Place:
    return "input" if call_id is None else "tool_arguments"


class _Walk:
    """A run at random: what may happen next depends on what is in hand, as in a worker."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._log = LogWriter()
        self._messages = 0
        self._calls = 0
        self._attempt = 1
        self._message: str | None = None
        self._running: list[str] = []
        self._elsewhere: list[str] = []
        self._children: set[str] = set()

    def walk(self) -> list[Logged]:
        self._write(QUEUED)
        self._write(RunStarted(1, "w1"))
        if self._flip():
            self._screen(InputScreening(), InputScreened())
        self._write(StepStarted(1))
        moves = (self._talk, self._use_tool, self._send_off, self._leave, self._crash)
        for move in self._draw(st.lists(st.sampled_from(moves), max_size=12)):
            move()
        self._end()
        return self._log.entries

    def _write(self, *events: Event) -> None:
        self._log.write(*events, after_ms=self._draw(st.integers(0, 10_000)))

    def _flip(self) -> bool:
        flipped: bool = self._draw(st.booleans())
        return flipped

    def _one_of(self, *events: Event) -> Event:
        chosen: Event = self._draw(st.sampled_from(events))
        return chosen

    def _talk(self) -> None:
        if self._message is None:
            self._messages += 1
            self._message = f"msg_{self._messages}"
            started = MessageStarted(self._message, MODEL)
            if self._flip():
                self._write(ModelRetried(self._message, 2, 5_000, BROKEN), started)
            else:
                self._write(started)
            return
        if self._flip():
            self._write(self._one_of(CacheHit(self._message, 1.0), CIRCLE))
        ends = (
            replied(self._message),
            MessageAborted(self._message, "broken", BROKEN),
            MessageAborted(self._message, "stopped"),
        )
        self._write(self._one_of(*ends))
        self._message = None

    def _use_tool(self) -> None:
        if self._running and self._flip():
            call_id = self._running.pop()
            ends = (ToolCallCompleted(call_id, 42, 5), ToolCallFailed(call_id, BROKEN, 5))
            self._write(self._one_of(*ends))
            return
        call_id = f"call_1_{self._calls}"
        self._calls += 1
        self._write(requested(call_id))
        if self._flip():
            self._screen(ToolCallScreening(call_id), ToolCallScreened(call_id), call_id)
        if self._flip():
            self._write(ToolCallStarted(call_id, 1, "read"))
            self._running.append(call_id)
        else:
            self._write(PolicyDecided(call_id, "deny", "deny *"))
            self._write(ToolCallDenied(call_id, "policy", "no"))

    def _screen(self, begin: Event, end: Event, call_id: str | None = None) -> None:
        """Have the guardrails look at something, again if the first worker dies over it."""
        self._write(begin)
        if self._flip():
            self._crash()
            self._write(begin)
        if self._flip():
            self._write(GuardrailTriggered("pii", "warned", "an email", call_id, _place(call_id)))
        self._write(end)

    def _send_off(self) -> None:
        """Have the client run something, or another run, and read what came of it later."""
        if self._elsewhere and self._flip():
            call_id = self._elsewhere.pop()
            if call_id in self._children:
                self._write(ChildRunEnded(call_id, "run_2", "completed", Usage()))
            self._write(ToolCallCompleted(call_id, 42, 0))
            return
        call_id = f"call_1_{self._calls}"
        self._calls += 1
        self._elsewhere.append(call_id)
        if self._flip():
            self._write(requested(call_id, "ask_user", "client"))
            self._write(ToolCallStarted(call_id, 1, "once"))
            return
        self._children.add(call_id)
        self._write(requested(call_id, "agent:scribe", "agent"))
        self._write(ToolCallStarted(call_id, 1, "idempotent"))
        self._write(ChildRunStarted(call_id, "run_2", "scribe"))

    def _leave(self) -> None:
        """Wait or be handed over, with nothing in hand, and be claimed again."""
        if self._message is None and not self._running:
            leaving = RunWaiting("approval", ()), RunRetrying("drain")
            self._write(self._one_of(*leaving))
            self._resume("approval")

    def _crash(self) -> None:
        """Be claimed again out of the blue; a second worker may die before it writes anything."""
        for _ in range(self._draw(st.integers(1, 2))):
            self._resume("crash")
        if self._message:
            self._write(MessageAborted(self._message, "its worker died"))
            self._message = None
        for call_id in self._running:
            self._write(ToolCallInterrupted(call_id, "repeat"), ToolCallStarted(call_id, 2, "read"))

    def _resume(self, why: ResumeWhy) -> None:
        self._attempt += 1
        self._write(RunResumed(self._attempt, f"w{self._attempt}", why))

    def _end(self) -> None:
        ends = (
            RunCompleted(Output("42"), Usage()),
            RunFailed(BROKEN, Usage()),
            RunCancelled("user", None, (), Usage()),
        )
        self._write(self._one_of(*ends))


@st.composite
def random_logs(draw: st.DrawFn) -> list[Logged]:
    """Draw the log of a run that has ended."""
    return _Walk(draw).walk()


def claims_in(log: Iterable[Logged]) -> list[int]:
    """Return the seqs at which workers took the run."""
    return [seq for seq, _, event in log if isinstance(event, RunStarted | RunResumed)]
