"""Spans as a pure function of a run's log, computed event by event.

A span begins when the thing began, and ends when it ended:

- `invoke_agent` is one stretch of a worker's work on the run: from the claim until the run waits,
  is handed over or ends. A run that waits for days has a short span before and one after, linked.
- `chat` is one attempt at a message, without the wait before a retry, at making a tool's result
  shorter, or at telling of messages that fall out of sight.
- `execute_tool` is one attempt at running a tool. What the client runs, and what is a run of its
  own, ends when its answer is read, however often this run waits and changes hands meanwhile.
- `guardrail` is one look of the agent's guardrails at the input or at a call.
- The other kinds are moments, which `telemetry/moments.py` knows. Nothing of them costs anything
  in a run where they don't happen.

What a dead worker had in hand ends with its last sign of life: nobody knows more.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

from milepost.core.copying import replace
from milepost.core.events import (
    ApprovalDecided,
    CacheHit,
    ChildRunEnded,
    ChildRunStarted,
    Event,
    InputMessage,
    InputScreened,
    InputScreening,
    MemorySummarized,
    MemorySummarizing,
    MemoryTrimmed,
    MessageCompleted,
    MessageStarted,
    ModelRetried,
    RunCancelled,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunForked,
    RunIncomplete,
    RunQueued,
    RunResumed,
    RunRetrying,
    RunStarted,
    RunWaiting,
    SideCallAborted,
    StepStarted,
    Terminal,
    ToolCallRequested,
    ToolCallScreened,
    ToolCallScreening,
    ToolCallStarted,
    ToolResultCompressed,
    ToolResultCompressing,
)
from milepost.core.frozen import dataclass
from milepost.core.json import Json
from milepost.core.messages import ToolKind
from milepost.core.spans import CACHE_HIT, CALL_ID, Span, SpanKind
from milepost.core.usage import Usage
from milepost.telemetry.attributes import (
    INPUT,
    LINKED_SPAN_ID,
    LINKED_TRACE,
    Attributes,
    agent_attributes,
    arguments_content,
    chat_attributes,
    child_attributes,
    input_content,
    metadata_attributes,
    screening_attributes,
    tool_attributes,
    usage_attributes,
)
from milepost.telemetry.begun import Begun, cut
from milepost.telemetry.context import TraceContext, span_id_of, trace_id_of
from milepost.telemetry.endings import (
    CANCELLED,
    HANDED_OVER,
    WORKER_LOST,
    Ending,
    ended_by,
    stretch_ending,
)
from milepost.telemetry.keys import HISTORY_SUMMARY, INPUT_SCREENING, screening_of, summary_of
from milepost.telemetry.moments import Moment, moment_of

_CLAIMS = frozenset({RunStarted, RunResumed})
_LEAVING = frozenset(
    {
        RunResumed, RunWaiting, RunRetrying, RunCompleted, RunIncomplete, RunFailed, RunCancelled,
        RunExpired,
    }
)  # fmt: skip
_Leaving = RunResumed | RunWaiting | RunRetrying | Terminal


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call as it will be made, if it is."""

    name: str
    arguments: Mapping[str, Json]
    kind: ToolKind


class SpanFold:
    """A run's spans. Feed it the log in order, from the first event on, once and in any portions.

    `feed` owes what a claim ended and pays with the next event, since whoever writes a claim knows
    no spans: what comes while a worker reads the log has been stored, what comes while it appends
    has not.
    """

    def __init__(
        self,
        run_id: str,
        trace_parent: str | None,
        *,
        provider: str,
        content: bool = False,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        caller = TraceContext.parse(trace_parent)
        self.sampled = caller is None or caller.sampled
        self._run_id = run_id
        self._trace_id = caller.trace_id if caller else trace_id_of(run_id)
        self._root_id = caller.span_id if caller else None
        self._provider = provider
        self._content = content
        self._labels = metadata_attributes(metadata or {})
        self._agent_name = ""
        self._agent: Attributes = {}
        self._said: tuple[InputMessage, ...] = ()
        self._input: Attributes = {}
        self._origin: Attributes = {}
        # All that changes is replaced, never altered: a fork shares nothing that moves.
        self._owed: tuple[Span, ...] = ()
        self._first_id: str | None = None
        self._stretch: Begun | None = None
        self._usage = Usage()
        self._retry: tuple[str, int] | None = None
        self._asked: Mapping[str, _Asked] = {}
        self._open_spans: Mapping[str, Begun] = {}
        self._last_ms = 0

    def fork(self) -> "SpanFold":
        """Return a fold that goes its own way from here, for events that may yet be refused."""
        forked = object.__new__(SpanFold)
        forked.__dict__.update(self.__dict__)  # A tenth of what `copy` takes.
        return forked

    def feed(self, seq: int, time_ms: int, event: Event) -> tuple[Span, ...]:
        """Take the event in and return the spans that it closed."""
        kind = type(event)
        closed = self._owed
        if moment := moment_of(event, content=self._content):
            closed += (self._happened(seq, time_ms, moment),)
        if ended := ended_by(event, content=self._content):
            closed += self._end(*ended, time_ms)
        if kind in _LEAVING:
            closed += self._leave(time_ms, cast("_Leaving", event))
        if taken := self._TAKEN_IN.get(kind):
            taken(self, seq, time_ms, event)
        self._last_ms = time_ms
        claimed = kind in _CLAIMS
        self._owed = closed if claimed else ()
        return () if claimed else closed

    def _leave(self, time_ms: int, event: _Leaving) -> tuple[Span, ...]:
        """End the stretch that the run is in: its worker lets go of it, or has."""
        match event:
            case RunResumed(why=why):
                return self._end_stretch(
                    self._last_ms, WORKER_LOST if why == "crash" else HANDED_OVER
                )
            case RunWaiting() | RunRetrying():
                return self._end_stretch(time_ms, stretch_ending(event, content=self._content))
            case RunCompleted() | RunIncomplete() | RunFailed() | RunCancelled() | RunExpired():
                ending = stretch_ending(event, content=self._content)
                return self._end_work(time_ms) + self._end_stretch(time_ms, ending)

    def _queue(self, _: int, __: int, event: RunQueued) -> None:
        self._agent_name = event.agent
        self._agent = {**agent_attributes(event, self._provider), **self._labels}
        self._said = event.input
        self._show_input(event)

    def _fork_off(self, _: int, __: int, event: RunForked) -> None:
        self._origin = {LINKED_TRACE: event.trace_parent} if event.trace_parent else {}
        calls = (forked.call for forked in event.calls)
        self._asked = {call.id: _Asked(call.name, call.arguments, call.kind) for call in calls}

    def _claim(self, seq: int, time_ms: int, _: RunStarted | RunResumed) -> None:
        self._begin_stretch(seq, time_ms)

    def _begin_step(self, _: int, __: int, ___: StepStarted) -> None:
        self._asked = {}

    def _count(
        self,
        _: int,
        __: int,
        event: (
            MessageCompleted
            | ToolResultCompressed
            | MemorySummarized
            | MemoryTrimmed
            | SideCallAborted
        ),
    ) -> None:
        self._usage += event.usage

    def _retry_later(self, _: int, time_ms: int, event: ModelRetried) -> None:
        self._retry = (event.message_id, time_ms + event.wait_ms)

    def _hit(self, _: int, time_ms: int, event: CacheHit) -> None:
        self._say(event.message_id, {CACHE_HIT: True}, by_ms=time_ms)

    def _go_elsewhere(self, _: int, __: int, event: ChildRunStarted | ChildRunEnded) -> None:
        self._say(event.call_id, child_attributes(event), elsewhere=True)

    def _ask(self, _: int, __: int, event: ToolCallRequested) -> None:
        asked = _Asked(event.name, event.arguments, event.kind)
        self._asked = {**self._asked, event.call_id: asked}

    def _edit(self, _: int, __: int, event: ApprovalDecided | ToolCallScreened) -> None:
        if event.arguments is not None:
            asked = self._asked[event.call_id]
            edit = _Asked(asked.name, event.arguments, asked.kind)
            self._asked = {**self._asked, event.call_id: edit}

    def _screen_input(self, seq: int, time_ms: int, event: InputScreening) -> None:
        self._show_input(event)
        told = screening_attributes("input")
        self._begin(INPUT_SCREENING, self._below(seq, time_ms, "guardrail", "input", told))

    def _input_screened(self, _: int, __: int, event: InputScreened) -> None:
        self._usage += event.usage
        self._show_input(event)

    def _call_screened(self, seq: int, time_ms: int, event: ToolCallScreened) -> None:
        self._usage += event.usage
        self._edit(seq, time_ms, event)

    def _show_input(self, event: RunQueued | InputScreening | InputScreened) -> None:
        """Say what the run was asked, as far as its guardrails have let it pass by now."""
        if not self._content:
            return
        match event:
            case InputScreening() | InputScreened(blocked=str()):
                self._input = {}
            case RunQueued(input=said) | InputScreened(input=said):
                self._input = input_content(said or self._said)
        if self._stretch and self._stretch.span_id == self._first_id:
            others = {**self._stretch.attributes}
            others.pop(INPUT, None)
            self._stretch = replace(self._stretch, attributes={**others, **self._input})

    def _begin_stretch(self, seq: int, time_ms: int) -> None:
        span_id = span_id_of(self._run_id, seq)
        told: Attributes = {**self._origin, **self._input}
        if self._first_id:
            told = {LINKED_SPAN_ID: self._first_id}
        self._first_id = self._first_id or span_id
        self._usage = Usage()
        self._stretch = Begun(
            seq=seq,
            span_id=span_id,
            kind="invoke_agent",
            name=f"invoke_agent {self._agent_name}",
            opened_ms=time_ms,
            start_ms=time_ms,
            parent_id=self._root_id,
            attributes={**self._agent, **told},
        )

    def _begin_message(self, seq: int, time_ms: int, event: MessageStarted) -> None:
        model = event.model.removeprefix(f"{self._provider}/")
        start_ms = time_ms
        if self._retry and self._retry[0] == event.message_id:
            start_ms = max(time_ms, self._retry[1])
        named = chat_attributes(self._provider, model)
        begun = self._below(
            seq, time_ms, "chat", model, named, start_ms=start_ms, model=event.model
        )
        self._begin(event.message_id, begun)

    def _begin_call(self, seq: int, time_ms: int, event: ToolCallStarted) -> None:
        asked = self._asked[event.call_id]
        given = asked.arguments if event.arguments is None else event.arguments
        told = tool_attributes(event, asked.name, given)
        if self._content:
            told = {**told, **arguments_content(given)}
        elsewhere = asked.kind == "client"
        begun = self._below(
            seq, time_ms, "execute_tool", asked.name, told, tool=asked.name, elsewhere=elsewhere
        )
        self._begin(event.call_id, begun)

    def _begin_screening(self, seq: int, time_ms: int, event: ToolCallScreening) -> None:
        tool = self._asked[event.call_id].name
        told = screening_attributes("tool_arguments", event.call_id)
        begun = self._below(seq, time_ms, "guardrail", f"tool_arguments {tool}", told, tool=tool)
        self._begin(screening_of(event.call_id), begun)

    def _begin_summary(self, seq: int, time_ms: int, event: ToolResultCompressing) -> None:
        provider, _, model = event.model.partition("/")
        purpose = {CALL_ID: event.call_id, "milepost.purpose": "compression"}
        told = {**chat_attributes(provider, model), **purpose}
        begun = self._below(seq, time_ms, "chat", model, told, model=event.model)
        self._begin(summary_of(event.call_id), begun)

    def _begin_history(self, seq: int, time_ms: int, event: MemorySummarizing) -> None:
        provider, _, model = event.model.partition("/")
        told = {**chat_attributes(provider, model), "milepost.purpose": "summary"}
        begun = self._below(seq, time_ms, "chat", model, told, model=event.model)
        self._begin(HISTORY_SUMMARY, begun)

    def _begin(self, key: str, begun: Begun) -> None:
        self._open_spans = {**self._open_spans, key: begun}

    def _below(  # noqa: PLR0913 - a span has so many parts
        self,
        seq: int,
        time_ms: int,
        kind: SpanKind,
        subject: str,
        attributes: Attributes,
        *,
        start_ms: int | None = None,
        model: str | None = None,
        tool: str | None = None,
        elsewhere: bool = False,
    ) -> Begun:
        """Return what began within the stretch that the run is in."""
        return Begun(
            seq=seq,
            span_id=span_id_of(self._run_id, seq),
            kind=kind,
            name=f"{kind} {subject}",
            opened_ms=time_ms,
            start_ms=time_ms if start_ms is None else start_ms,
            parent_id=self._stretch.span_id if self._stretch else self._root_id,
            model=model,
            tool=tool,
            attributes=attributes,
            elsewhere=elsewhere,
        )

    def _happened(self, seq: int, time_ms: int, moment: Moment) -> Span:
        """Return the span of what happened just now, below what it happened to."""
        tool, told, call_id = None, moment.attributes, moment.call_id
        if call_id is not None:
            asked = self._asked.get(call_id)
            tool = asked.name if asked else None
            told = {CALL_ID: call_id, **told}
        subject = " ".join(filter(None, (moment.subject, tool)))
        begun = self._below(seq, time_ms, moment.kind, subject, told, model=moment.model, tool=tool)
        above = (self._open_spans.get(key) for key in moment.within)
        if within := next(filter(None, above), None):
            begun = replace(begun, parent_id=within.span_id)
        return self._ended(begun, time_ms, moment.ending)

    def _say(
        self, key: str, told: Attributes, *, elsewhere: bool = False, by_ms: int | None = None
    ) -> None:
        """Have an open span say more: that it goes on elsewhere, or that it has begun by then."""
        begun = self._open_spans.get(key)
        if begun is None:
            return
        start_ms = begun.start_ms if by_ms is None else min(begun.start_ms, by_ms)
        said = replace(
            begun.saying(told), elsewhere=begun.elsewhere or elsewhere, start_ms=start_ms
        )
        self._begin(key, said)

    def _end(self, key: str, ending: Ending, time_ms: int) -> tuple[Span, ...]:
        """End what is open by that key; a call that never started has no span to end."""
        begun = self._open_spans.get(key)
        if begun is None:
            return ()
        self._open_spans = {name: each for name, each in self._open_spans.items() if name != key}
        return (self._ended(begun, time_ms, ending),)

    def _end_work(self, time_ms: int) -> tuple[Span, ...]:
        """The run is over, and with it whatever was still in hand."""
        begun, self._open_spans = self._open_spans.values(), {}
        return tuple(self._ended(each, time_ms, CANCELLED) for each in begun)

    def _end_stretch(self, time_ms: int, ending: Ending) -> tuple[Span, ...]:
        stretch, self._stretch = self._stretch, None
        if stretch is None:
            return ()
        self._open_spans = cut(self._open_spans, time_ms, lost=ending is WORKER_LOST)
        totals = usage_attributes(self._usage)
        told = Ending(ending.status, ending.error, {**totals, **ending.attributes})
        return (self._ended(stretch, time_ms, told),)

    def _ended(self, begun: Begun, time_ms: int, ending: Ending) -> Span:
        return begun.ended(self._run_id, self._trace_id, time_ms, ending)

    # By the type, in one look: a run has an event of most of these types in every step.
    _TAKEN_IN: ClassVar[Mapping[type[Event], Callable[["SpanFold", int, int, Any], None]]] = {
        RunQueued: _queue,
        RunForked: _fork_off,
        RunStarted: _claim,
        RunResumed: _claim,
        StepStarted: _begin_step,
        MessageStarted: _begin_message,
        MessageCompleted: _count,
        ModelRetried: _retry_later,
        CacheHit: _hit,
        ToolCallRequested: _ask,
        ToolCallStarted: _begin_call,
        ChildRunStarted: _go_elsewhere,
        ChildRunEnded: _go_elsewhere,
        ApprovalDecided: _edit,
        InputScreening: _screen_input,
        InputScreened: _input_screened,
        ToolCallScreening: _begin_screening,
        ToolCallScreened: _call_screened,
        ToolResultCompressing: _begin_summary,
        ToolResultCompressed: _count,
        MemorySummarizing: _begin_history,
        MemorySummarized: _count,
        MemoryTrimmed: _count,
        SideCallAborted: _count,
    }
