"""Spans as a pure function of a run's log, computed event by event.

A span begins when the thing began, and ends when it ended:

- `invoke_agent` is one stretch of a worker's work on the run: from the claim until the run waits,
  is handed over or ends. A run that waits for days has a short span before and one after, linked.
- `chat` is one attempt at a message, without the wait before a retry, or at making a tool's result
  shorter.
- `execute_tool` is one attempt at running a tool. A call that was denied or could not be made ran
  nothing, and is no span.

What a dead worker had in hand ends with its last sign of life: nobody knows more.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace

from milepost.core.events import (
    ApprovalDecided,
    CacheHit,
    Event,
    MessageAborted,
    MessageCompleted,
    MessageStarted,
    ModelRetried,
    RunCancelled,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunIncomplete,
    RunQueued,
    RunResumed,
    RunRetrying,
    RunStarted,
    RunWaiting,
    StepStarted,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallRequested,
    ToolCallScreened,
    ToolCallStarted,
    ToolResultCompressed,
    ToolResultCompressing,
)
from milepost.core.json import Json
from milepost.core.spans import Span, SpanKind
from milepost.core.usage import Usage
from milepost.telemetry.attributes import (
    LINKED_SPAN_ID,
    Attributes,
    agent_attributes,
    arguments_content,
    chat_attributes,
    input_content,
    tool_attributes,
    usage_attributes,
    version_attributes,
)
from milepost.telemetry.context import TraceContext, span_id_of, trace_id_of
from milepost.telemetry.endings import (
    CANCELLED,
    HANDED_OVER,
    WORKER_LOST,
    Ending,
    call_ending,
    message_ending,
    stretch_ending,
    summary_ending,
)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A span that is still open. It may start later than it was opened: a retry waits first.

    `cut_ms` is when the worker let go of it, and `lost` says that the worker died.
    """

    seq: int
    span_id: str
    kind: SpanKind
    name: str
    opened_ms: int
    start_ms: int
    parent_id: str | None
    model: str | None = None
    tool: str | None = None
    attributes: Attributes = field(default_factory=dict)
    cut_ms: int | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call as it will be made, if it is."""

    name: str
    arguments: Mapping[str, Json]


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
        agent: str,
        session_id: str,
        provider: str,
        content: bool = False,
    ) -> None:
        caller = TraceContext.parse(trace_parent)
        self.sampled = caller is None or caller.sampled
        self._run_id = run_id
        self._trace_id = caller.trace_id if caller else trace_id_of(run_id)
        self._root_id = caller.span_id if caller else None
        self._agent_name = agent
        self._provider = provider
        self._content = content
        self._agent = agent_attributes(agent, session_id, provider)
        self._input: Attributes = {}
        # All that changes is replaced, never altered: a fork shares nothing that moves.
        self._owed: tuple[Span, ...] = ()
        self._first_id: str | None = None
        self._stretch: _Begun | None = None
        self._usage = Usage()
        self._message: _Begun | None = None
        self._retry: tuple[str, int] | None = None
        self._asked: Mapping[str, _Asked] = {}
        self._calls: Mapping[str, _Begun] = {}
        self._summaries: Mapping[str, _Begun] = {}
        self._last_ms = 0

    def fork(self) -> "SpanFold":
        """Return a fold that goes its own way from here, for events that may yet be refused."""
        return copy(self)

    def feed(self, seq: int, time_ms: int, event: Event) -> tuple[Span, ...]:
        """Take the event in and return the spans that it closed."""
        closed = self._owed + self._close(time_ms, event)
        self._note(time_ms, event)
        self._open(seq, time_ms, event)
        self._last_ms = time_ms
        claimed = isinstance(event, RunStarted | RunResumed)
        self._owed = closed if claimed else ()
        return () if claimed else closed

    def _close(self, time_ms: int, event: Event) -> tuple[Span, ...]:
        match event:
            case MessageCompleted() | MessageAborted():
                return self._end_message(time_ms, message_ending(event, content=self._content))
            case ToolCallCompleted() | ToolCallFailed() | ToolCallInterrupted():
                ending = call_ending(event, content=self._content)
                return self._end_call(event.call_id, time_ms, ending)
            case ToolResultCompressing(call_id=call_id):  # Again: its first worker let go of it.
                return self._end_summary(call_id, time_ms, CANCELLED)
            case ToolResultCompressed(call_id=call_id):
                return self._end_summary(call_id, time_ms, summary_ending(event))
            case RunResumed(why=why):
                return self._end_stretch(
                    self._last_ms, WORKER_LOST if why == "crash" else HANDED_OVER
                )
            case RunWaiting() | RunRetrying():
                return self._end_stretch(time_ms, stretch_ending(event, content=self._content))
            case RunCompleted() | RunIncomplete() | RunFailed() | RunCancelled() | RunExpired():
                ending = stretch_ending(event, content=self._content)
                return self._end_work(time_ms) + self._end_stretch(time_ms, ending)
            case _:
                return ()

    def _note(self, time_ms: int, event: Event) -> None:
        match event:
            case RunQueued():
                version = version_attributes(event.agent_id, event.agent_version)
                self._agent = {**self._agent, **version}
                self._input = input_content(event.input) if self._content else {}
            case StepStarted():
                self._asked = {}
            case ModelRetried(message_id=message_id, wait_ms=wait_ms):
                self._retry = (message_id, time_ms + wait_ms)
            case MessageCompleted(usage=usage) | ToolResultCompressed(usage=usage):
                self._usage += usage
            case CacheHit():
                self._mark_cached()
            case ToolCallRequested(call_id=call_id, name=name, arguments=arguments):
                self._asked = {**self._asked, call_id: _Asked(name, arguments)}
            case (
                ApprovalDecided(call_id=call_id, arguments=edited)
                | ToolCallScreened(call_id=call_id, arguments=edited)
            ) if edited is not None:
                asked = replace(self._asked[call_id], arguments=edited)
                self._asked = {**self._asked, call_id: asked}
            case _:
                pass

    def _open(self, seq: int, time_ms: int, event: Event) -> None:
        match event:
            case RunStarted() | RunResumed():
                self._begin_stretch(seq, time_ms)
            case MessageStarted():
                self._begin_message(seq, time_ms, event)
            case ToolCallStarted():
                self._begin_call(seq, time_ms, event)
            case ToolResultCompressing():
                self._begin_summary(seq, time_ms, event)
            case _:
                pass

    def _begin_stretch(self, seq: int, time_ms: int) -> None:
        span_id = span_id_of(self._run_id, seq)
        told = {LINKED_SPAN_ID: self._first_id} if self._first_id else self._input
        self._first_id = self._first_id or span_id
        self._usage = Usage()
        self._stretch = _Begun(
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
        self._message = _Begun(
            seq=seq,
            span_id=span_id_of(self._run_id, seq),
            kind="chat",
            name=f"chat {model}",
            opened_ms=time_ms,
            start_ms=start_ms,
            parent_id=self._stretch_id(),
            model=event.model,
            attributes=chat_attributes(self._provider, model),
        )

    def _begin_call(self, seq: int, time_ms: int, event: ToolCallStarted) -> None:
        asked = self._asked[event.call_id]
        given = asked.arguments if event.arguments is None else event.arguments
        said = arguments_content(given) if self._content else {}
        begun = _Begun(
            seq=seq,
            span_id=span_id_of(self._run_id, seq),
            kind="execute_tool",
            name=f"execute_tool {asked.name}",
            opened_ms=time_ms,
            start_ms=time_ms,
            parent_id=self._stretch_id(),
            tool=asked.name,
            attributes={**tool_attributes(asked.name, event.call_id, event.attempt), **said},
        )
        self._calls = {**self._calls, event.call_id: begun}

    def _begin_summary(self, seq: int, time_ms: int, event: ToolResultCompressing) -> None:
        provider, _, model = event.model.partition("/")
        begun = _Begun(
            seq=seq,
            span_id=span_id_of(self._run_id, seq),
            kind="chat",
            name=f"chat {model}",
            opened_ms=time_ms,
            start_ms=time_ms,
            parent_id=self._stretch_id(),
            model=event.model,
            attributes={
                **chat_attributes(provider, model),
                "gen_ai.tool.call.id": event.call_id,
            },
        )
        self._summaries = {**self._summaries, event.call_id: begun}

    def _stretch_id(self) -> str | None:
        return self._stretch.span_id if self._stretch else self._root_id

    def _mark_cached(self) -> None:
        if self._message is not None:
            marked = {**self._message.attributes, "milepost.cache_hit": True}
            self._message = replace(self._message, attributes=marked)

    def _end_message(self, time_ms: int, ending: Ending) -> tuple[Span, ...]:
        message, self._message = self._message, None
        return () if message is None else (self._ended(message, time_ms, ending),)

    def _end_call(self, call_id: str, time_ms: int, ending: Ending) -> tuple[Span, ...]:
        """A call that never started has no span to end."""
        call = self._calls.get(call_id)
        if call is None:
            return ()
        self._calls = {name: begun for name, begun in self._calls.items() if name != call_id}
        return (self._ended(call, time_ms, ending),)

    def _end_summary(self, call_id: str, time_ms: int, ending: Ending) -> tuple[Span, ...]:
        begun = self._summaries.get(call_id)
        if begun is None:
            return ()
        left = {name: other for name, other in self._summaries.items() if name != call_id}
        self._summaries = left
        return (self._ended(begun, time_ms, ending),)

    def _end_work(self, time_ms: int) -> tuple[Span, ...]:
        """The run is over, and with it whatever was still in hand."""
        message = self._end_message(time_ms, CANCELLED)
        begun = (*self._calls.values(), *self._summaries.values())
        self._calls = self._summaries = {}
        return message + tuple(self._ended(each, time_ms, CANCELLED) for each in begun)

    def _end_stretch(self, time_ms: int, ending: Ending) -> tuple[Span, ...]:
        """What the worker still had in hand is cut off here, whenever that gets told."""
        stretch, self._stretch = self._stretch, None
        if stretch is None:
            return ()
        lost = ending is WORKER_LOST
        if self._message:
            self._message = _cut(self._message, time_ms, lost=lost)
        self._calls = {
            call_id: _cut(call, time_ms, lost=lost) for call_id, call in self._calls.items()
        }
        self._summaries = {
            call_id: _cut(each, time_ms, lost=lost) for call_id, each in self._summaries.items()
        }
        totals = usage_attributes(self._usage)
        told = replace(ending, attributes={**totals, **ending.attributes})
        return (self._ended(stretch, time_ms, told),)

    def _ended(self, begun: _Begun, time_ms: int, ending: Ending) -> Span:
        """Clocks may step back, and a call may be given up while it waits for its retry."""
        if begun.lost:
            ending = WORKER_LOST
        if begun.cut_ms is not None:
            time_ms = begun.cut_ms
        end_ms = max(time_ms, begun.opened_ms)
        return Span(
            run_id=self._run_id,
            seq=begun.seq,
            trace_id=self._trace_id,
            span_id=begun.span_id,
            parent_id=begun.parent_id,
            kind=begun.kind,
            name=begun.name,
            start_ms=min(begun.start_ms, end_ms),
            end_ms=end_ms,
            status=ending.status,
            error=ending.error,
            model=begun.model,
            tool=begun.tool,
            attributes={**begun.attributes, **ending.attributes},
        )


def _cut(begun: _Begun, time_ms: int, *, lost: bool) -> _Begun:
    """Only the first cut counts: a later worker never had it in hand."""
    if begun.cut_ms is not None:
        return begun
    return replace(begun, cut_ms=time_ms, lost=lost)
