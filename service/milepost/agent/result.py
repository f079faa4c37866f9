"""What came of a run in process: its answer, and all that its log tells."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, cast

from milepost.agent.arguments import arguments_in
from milepost.agent.reasoning import reasonings_of
from milepost.agent.trace import AgentTrace, steps_of
from milepost.core.errors import RunError
from milepost.core.events import (
    ArtifactCreated,
    Event,
    Failure,
    MessageCompleted,
    Output,
    RunCancelled,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunIncomplete,
    Terminal,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallRequested,
)
from milepost.core.evolve import fold
from milepost.core.json import Json
from milepost.core.messages import Message
from milepost.core.spans import Span
from milepost.core.state import transcript
from milepost.core.usage import Usage
from milepost.tools.artifacts import Artifact

Status = Literal["completed", "incomplete", "failed", "cancelled", "expired"]


@dataclass(frozen=True, slots=True)
class CallMade:
    """A call that the model asked for, and what came of it: a result, or `error` says why none."""

    id: str
    tool: str
    arguments: Mapping[str, Json]
    result: Json = None
    error: str | None = None
    duration_ms: int = 0
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """A run as it was kept: its events with their moments (Unix milliseconds), and the rest.

    `contents` are those of artifacts, by id; `children` the runs that its calls of agents became.
    """

    model: str
    before: tuple[Message, ...]
    events: tuple[Event, ...]
    times_ms: tuple[int, ...]
    spans: tuple[Span, ...] = ()
    contents: Mapping[str, bytes] = field(default_factory=dict)
    children: tuple["AgentResult", ...] = ()
    parent_run_id: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    observer_failures: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class AgentResult:
    """A run that is over. `status` says how, and only `completed` means that it answered.

    `content` is the answer's text, and `parsed` its value where it is structured: an object of the
    class that was asked for. `finish_reason` is why it stopped, `error` why it failed. `usage` is
    what its own model calls took, without those of the runs that it started.
    """

    run_id: str
    status: Status
    content: str
    parsed: Any
    finish_reason: str | None
    error: Failure | None
    usage: Usage
    record: Record = field(repr=False)

    @property
    def last(self) -> Terminal:
        """The event that ended it."""
        last = self.record.events[-1]
        assert isinstance(last, Terminal), "a result is that of a run which is over"
        return last

    @property
    def tool_calls(self) -> tuple[CallMade, ...]:
        """All calls that were asked for, in that order."""
        return calls_in(self.record.events)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation with this answer: hand it in, and it goes on."""
        return (*self.record.before, *transcript(fold(self.record.events)))

    @property
    def reasoning_history(self) -> tuple[str, ...]:
        """What the model thought, message by message."""
        return tuple(reasonings_of(self.record.events).values())

    @property
    def reasoning(self) -> str | None:
        """The last of it."""
        return next(reversed(self.reasoning_history), None)

    @property
    def trace(self) -> AgentTrace:
        """What was done, step by step."""
        record = self.record
        happened = zip(record.times_ms, record.events, strict=True)
        steps = steps_of(happened, reasonings_of(record.events))
        return AgentTrace(self.run_id, record.parent_run_id, record.metadata, steps)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The same as spans, as the service exports them."""
        return self.record.spans

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """What tools left behind."""
        return tuple(_artifacts(self.record.events))

    @property
    def contents(self) -> Mapping[str, bytes]:
        """The contents that came along with artifacts, by their ids."""
        return self.record.contents

    @property
    def children(self) -> tuple["AgentResult", ...]:
        """The runs that calls of agents became."""
        return self.record.children

    @property
    def total_usage(self) -> Usage:
        """What the run took, with all that it started."""
        return sum((child.total_usage for child in self.children), self.usage)

    @property
    def model_used(self) -> str:
        """Which model answered last, `provider/model`."""
        answers = (each for each in reversed(self.record.events))
        named = (each.answered_by for each in answers if isinstance(each, MessageCompleted))
        return next(named, None) or self.record.model

    @property
    def provider_used(self) -> str:
        """Whose it is."""
        return self.model_used.partition("/")[0]

    @property
    def observer_failures(self) -> int:
        """How often an observer failed, which held nothing up."""
        return self.record.observer_failures

    def raise_for_status(self) -> Self:
        """Return the result of a run that completed; raise `RunError` for any other."""
        if self.status == "completed":
            return self
        code = self.error.code if self.error else None
        why = f": {self.error.message}" if self.error else ""
        reason = f" ({self.finish_reason})" if self.finish_reason else ""
        raise RunError(
            f"run {self.run_id} is {self.status}{reason}{why}",
            code=code,
            retryable=bool(self.error and self.error.retryable),
        )

    def __str__(self) -> str:
        """Return the answer."""
        return self.content


def result_of(run_id: str, record: Record, parsed: Any = None) -> AgentResult:
    """Return the result of the run whose record this is; it must be over."""
    last = record.events[-1]
    assert isinstance(last, Terminal), "a result is that of a run which is over"
    output, finish_reason, error = _ending(last)
    return AgentResult(
        run_id=run_id,
        status=cast("Status", last.type.removeprefix("run.")),
        content=output.text,
        parsed=output.parsed if parsed is None else parsed,
        finish_reason=finish_reason,
        error=error,
        usage=last.usage,
        record=record,
    )


def _ending(event: Terminal) -> tuple[Output, str | None, Failure | None]:
    match event:
        case RunCompleted(output, _, finish_reason):
            return output, finish_reason, None
        case RunIncomplete(reason, output):
            return output, reason, None
        case RunFailed(error):
            return Output(""), None, error
        case RunCancelled():
            return Output(""), "cancelled", None
        case RunExpired(limit):
            return Output(""), limit, None


def calls_in(events: Iterable[Event]) -> tuple[CallMade, ...]:
    """Return the calls that the events tell of."""
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        match event:
            case ToolCallRequested(call_id, name, arguments):
                found[call_id] = {"id": call_id, "tool": name, "arguments": arguments}
            case ToolCallCompleted(call_id, result, duration_ms, cached=cached):
                found[call_id] |= {"result": result, "duration_ms": duration_ms, "cached": cached}
            case ToolCallFailed(call_id, error, duration_ms):
                found[call_id] |= {"error": error.message, "duration_ms": duration_ms}
            case ToolCallDenied(call_id, by, reason):
                found[call_id]["error"] = f"denied by {by}: {reason}"
            case _:
                if given := arguments_in(event):
                    found[given[0]]["arguments"] = given[1]
    return tuple(CallMade(**each) for each in found.values())


def _artifacts(events: Iterable[Event]) -> Iterable[Artifact]:
    for event in events:
        if isinstance(event, ArtifactCreated):
            yield Artifact(
                id=event.artifact_id,
                url=event.url,
                mime_type=event.mime_type,
                filename=event.filename,
                sha256=event.sha256,
                size=event.size,
                role=event.role,
                retention=event.retention,
            )
