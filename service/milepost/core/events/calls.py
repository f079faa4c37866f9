"""The calls of tools, from a model's request to what the model is told of the result."""

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar, Literal

from milepost.core.events.failure import Failure
from milepost.core.frozen import dataclass
from milepost.core.guardrails import Place
from milepost.core.json import Json
from milepost.core.messages import ToolKind
from milepost.core.repetition import ToolEffect
from milepost.core.usage import Usage

Found = Literal["found", "absent", "unknown"]


@dataclass(frozen=True, slots=True)
class ToolCallRequested:
    """The model asks for a call. `malformed` is its text where the arguments are no JSON object."""

    type: ClassVar = "tool_call.requested"
    call_id: str
    name: str
    arguments: Mapping[str, Json]
    kind: ToolKind
    idempotency_key: str
    message_id: str
    provider_call_id: str = ""
    malformed: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyDecided:
    """A call was judged by something other than a plain allow."""

    type: ClassVar = "policy.decided"
    call_id: str
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True)
class ToolCallScreening:
    """The agent's guardrails are about to look at a call; `model` is to judge it, where one is."""

    type: ClassVar = "tool_call.screening"
    call_id: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCallScreened:
    """What the guardrails made of a call: `blocked` says why it may not be made.

    `arguments` takes the place of the model's where they changed them.
    """

    type: ClassVar = "tool_call.screened"
    call_id: str
    blocked: str | None = None
    arguments: Mapping[str, Json] | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class ToolCallCounting:
    """A rule wants to know how often such calls were made lately."""

    type: ClassVar = "tool_call.counting"
    call_id: str


@dataclass(frozen=True, slots=True)
class ToolCallCounted:
    """How often such calls were made lately, this one among them, by what the rules count."""

    type: ClassVar = "tool_call.counted"
    call_id: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """The tool is about to run, or the client may run it.

    `arguments` is what it gets where that is not what the model wrote: with defaults, edited or
    coerced; `coerced` says what was.
    """

    type: ClassVar = "tool_call.started"
    call_id: str
    attempt: int
    effect: ToolEffect
    arguments: Mapping[str, Json] | None = None
    coerced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallCompleted:
    """The tool answered. `terminal`: its result is the run's; `cached`: it did not run again.

    `chunks` is how many pieces of text it showed while it ran.
    """

    type: ClassVar = "tool_call.completed"
    call_id: str
    result: Json
    duration_ms: int
    terminal: bool = False
    cached: bool = False
    chunks: int = 0


@dataclass(frozen=True, slots=True)
class ToolResultCompressing:
    """A model is about to be asked for a shorter form of a long result."""

    type: ClassVar = "tool_result.compressing"
    call_id: str
    model: str
    chars: int


@dataclass(frozen=True, slots=True)
class ToolResultCompressed:
    """What the model reads instead of a long result. `fallback` says why it was only cut."""

    type: ClassVar = "tool_result.compressed"
    call_id: str
    content: str
    chars: int
    model: str
    usage: Usage
    fallback: str | None = None
    cached: bool = False


@dataclass(frozen=True, slots=True)
class ArtifactCreated:
    """A tool left a file behind. `url` is set where it lies elsewhere; `size` is in bytes."""

    type: ClassVar = "artifact.created"
    artifact_id: str
    call_id: str
    filename: str | None
    mime_type: str
    size: int | None
    sha256: str | None
    url: str | None = None
    role: str | None = None
    retention: str | None = None


@dataclass(frozen=True, slots=True)
class GuardrailTriggered:
    """A guardrail stepped in. `action` says what it did, `reason` what it saw."""

    type: ClassVar = "guardrail.triggered"
    guardrail: str
    action: str
    reason: str
    call_id: str | None = None
    place: Place = "tool_results"


@dataclass(frozen=True, slots=True)
class Custom:
    """Something of its own that a tool tells whoever follows the run."""

    type: ClassVar = "custom"
    call_id: str
    name: str
    value: Json


@dataclass(frozen=True, slots=True)
class ToolCallFailed:
    """The call came to nothing; the model is told why."""

    type: ClassVar = "tool_call.failed"
    call_id: str
    error: Failure
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class ChildRunStarted:
    """A call of an agent has become a run of its own."""

    type: ClassVar = "child_run.started"
    call_id: str
    run_id: str
    agent: str


@dataclass(frozen=True, slots=True)
class ChildRunEnded:
    """The run that a call had started is over. What it used counts within the bounds of this one.

    `usage` is the child's own, `below` that of the runs that it started, and of theirs;
    `tool_calls` are those of all of them. Nothing of it is in this run's usage.
    """

    type: ClassVar = "child_run.ended"
    call_id: str
    run_id: str
    status: str
    usage: Usage
    below: Usage = field(default_factory=Usage)
    tool_calls: int = 0


@dataclass(frozen=True, slots=True)
class ToolCallDenied:
    """The call may not be made; the model is told by whom and why."""

    type: ClassVar = "tool_call.denied"
    call_id: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class ToolCallInterrupted:
    """The worker died while the tool ran: it may have acted. `then` says what follows.

    With `check` the tool is asked whether it has acted.
    """

    type: ClassVar = "tool_call.interrupted"
    call_id: str
    then: Literal["repeat", "tell_model", "ask", "check", "fail"]


@dataclass(frozen=True, slots=True)
class ToolCallChecked:
    """What the tool itself knows of a call that was cut off: whether its effect is there."""

    type: ClassVar = "tool_call.checked"
    call_id: str
    found: Found
