"""The facts a run is made of: every event that may stand in its log, and nothing else.

A class's fields are the event's `data` as clients see it; `type` is its name on the wire. The set
grows, but a field never changes its meaning: logs are kept as long as their runs.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar, Literal

from milepost.core.agents import Bounds, LoopAction, StructuredOutput
from milepost.core.frozen import dataclass
from milepost.core.guardrails import Place
from milepost.core.json import Json
from milepost.core.loops import Pattern
from milepost.core.messages import Image, Message, Role, Sealed, ToolCall, ToolKind
from milepost.core.model import FinishReason
from milepost.core.policy import OnTimeout
from milepost.core.repetition import ToolEffect
from milepost.core.usage import Usage

WaitCause = Literal["approval", "client_tool", "child_run", "operator"]
ResumeWhy = Literal[
    "approval", "client_tool", "child_run", "crash", "outage", "drain", "cancel", "retry", "steer"
]
ApprovalAnswer = Literal["approve", "deny", "happened", "not_happened", "stop"]
ApprovalKind = Literal["call", "outcome"]
Found = Literal["found", "absent", "unknown"]
Stopping = Literal["closed", "cancelled", "killed", "left"]


@dataclass(frozen=True, slots=True)
class InputMessage:
    """One message that the client gave."""

    role: Role
    content: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something failed: `code` is stable, `retryable` says whether trying again may help."""

    code: str
    message: str
    retryable: bool = False
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """What a run answered; `parsed` is the structured form where one was asked for."""

    text: str
    parsed: Json = None


@dataclass(frozen=True, slots=True)
class Parent:
    """The call of another run that started this one; `depth` counts the runs above.

    `session_id` is where the uppermost of them was asked; logs of earlier versions don't say.
    """

    run_id: str
    call_id: str
    depth: int
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a run was forked off another one: behind that one's event `at_seq`."""

    run_id: str
    at_seq: int


@dataclass(frozen=True, slots=True)
class Channel:
    """The chat that a run was asked for in: its channel's name, and which conversation there."""

    name: str
    conversation: str


@dataclass(frozen=True, slots=True)
class RunQueued:
    """A client asked for this. `deadline_ms` is Unix time.

    `response_format` takes the place of the agent's own; without `cache` no reply is looked up.
    `parent` is the call that started the run, `bounds` what that call's run leaves it.
    `forked_from` is set for a run that goes on from the middle of another one.
    `channel` is the chat that its user can be asked in. `if_active` is what it did about the runs
    of its session that were not over, and `replaces` are those that it told to stop. `speakers` are
    the keys that had told something to the runs above it.
    """

    type: ClassVar = "run.queued"
    agent: str
    agent_id: str
    agent_version: int
    session_id: str
    input: tuple[InputMessage, ...]
    reason: str = "ready"
    user: str | None = None
    deadline_ms: int | None = None
    response_format: StructuredOutput | None = None
    cache: bool = True
    parent: Parent | None = None
    bounds: Bounds | None = None
    forked_from: ForkPoint | None = None
    channel: Channel | None = None
    if_active: str | None = None
    replaces: tuple[str, ...] = ()
    speakers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ForkedCall:
    """A call of the step in which a run was forked, and how far it had come there.

    `requested` has not begun, and is decided on anew; `unknown` had begun without a result;
    `by` may be who had approved it. `denied` was refused by `by`, with `content` as the reason;
    `done` brought `content`, of which `long` characters may still be made shorter.
    """

    call: ToolCall
    status: Literal["requested", "unknown", "denied", "done"]
    content: str = ""
    by: str = ""
    terminal: bool = False
    long: int = 0


@dataclass(frozen=True, slots=True)
class RunForked:
    """What the run goes on from: all that was said before `at_seq`, as the model saw it there.

    `calls` are those of the last message, if the step is still open. `guarded` are digests of calls
    that the other run has made since, each with the words for whoever is asked before this run
    makes the same call too. `trace_parent` is the span of the other run in which it was.
    """

    type: ClassVar = "run.forked"
    run_id: str
    at_seq: int
    conversation: tuple[Message, ...] = ()
    step: int = 0
    step_open: bool = False
    replied: bool = False
    finish_reason: FinishReason = "stop"
    calls: tuple[ForkedCall, ...] = ()
    guarded: Mapping[str, str] = field(default_factory=dict)
    trace_parent: str | None = None


@dataclass(frozen=True, slots=True)
class RunImported:
    """The run was done elsewhere, and what was said in it was brought here; nothing of it was done.

    There it was known as `run_id`, and ended as `status` at `ended_at`.
    """

    type: ClassVar = "run.imported"
    run_id: str
    status: str
    ended_at: str
    conversation: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A worker took the run for the first time."""

    type: ClassVar = "run.started"
    attempt: int
    worker: str


@dataclass(frozen=True, slots=True)
class RunResumed:
    """A worker took the run again: what its predecessor had in hand is lost."""

    type: ClassVar = "run.resumed"
    attempt: int
    worker: str
    why: ResumeWhy


@dataclass(frozen=True, slots=True)
class RunRetrying:
    """The worker handed the run back, for another to go on."""

    type: ClassVar = "run.retrying"
    why: str


@dataclass(frozen=True, slots=True)
class RunWaiting:
    """Nothing in the run can go on without `cause`; `pending` names what is awaited."""

    type: ClassVar = "run.waiting"
    cause: WaitCause
    pending: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunCancelling:
    """Somebody asked for the end; what is in hand is being stopped."""

    type: ClassVar = "run.cancelling"
    by: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RunFailing:
    """The run can't go on; what is in hand is being stopped."""

    type: ClassVar = "run.failing"
    error: Failure


@dataclass(frozen=True, slots=True)
class RunRetried:
    """An operator sent a run on that had crashed its workers."""

    type: ClassVar = "run.retried"
    by: str


@dataclass(frozen=True, slots=True)
class RunCompleted:
    """The run answered: as its model stopped, or with a tool's result that is `terminal`.

    `routed`: the agent only chooses, and the calls that it asked for are the answer.
    """

    type: ClassVar = "run.completed"
    output: Output
    usage: Usage
    finish_reason: FinishReason | Literal["terminal", "routed"] = "stop"


@dataclass(frozen=True, slots=True)
class RunIncomplete:
    """The run stopped at a limit, with what it had."""

    type: ClassVar = "run.incomplete"
    reason: str
    output: Output
    usage: Usage


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run can't go on."""

    type: ClassVar = "run.failed"
    error: Failure
    usage: Usage


@dataclass(frozen=True, slots=True)
class StoppedWork:
    """What a run had in hand when it was cancelled, and how it was stopped, at Unix time `at_ms`.

    A message is `closed`: its stream is; so is a summary of what falls out of sight. Calls are
    `cancelled`, or `killed` with their process, and so are the runs that they started. What is
    `left` could not be stopped: `why` says it.
    """

    kind: Literal["message", "summary", "tool_call", "child_run"]
    id: str
    name: str
    how: Stopping
    why: str | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class RunCancelled:
    """The run was stopped on request; `stopped` names what was in hand and may have acted.

    `work` says what became of each; logs of earlier versions don't.
    """

    type: ClassVar = "run.cancelled"
    by: str
    reason: str | None
    stopped: tuple[str, ...]
    usage: Usage
    work: tuple[StoppedWork, ...] = ()


@dataclass(frozen=True, slots=True)
class RunExpired:
    """The run's time was up."""

    type: ClassVar = "run.expired"
    limit: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages of a session that fall out of sight: from `first` through `last`, both `turn.index`.

    `id` is what is told of them, once it is.
    """

    id: str
    first: str
    last: str
    messages: int


@dataclass(frozen=True, slots=True)
class SessionLoaded:
    """What the run sees of its session, whose first `turns` runs had ended: `messages` messages.

    They begin with the one at `kept_from`; None in logs of earlier versions, which showed the last
    hundred runs. Before them stand `summaries` and the messages pinned at `pins`, behind them
    `context`, which is what was remembered for this run. `trimmed` falls out of sight with it.
    """

    type: ClassVar = "session.loaded"
    turns: int
    messages: int
    context: str = ""
    kept_from: str | None = None
    summaries: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    trimmed: Stretch | None = None


@dataclass(frozen=True, slots=True)
class MemorySummarizing:
    """A model is about to be asked what is to be told of messages that fall out of sight."""

    type: ClassVar = "memory.summarizing"
    id: str
    first: str
    last: str
    messages: int
    model: str


@dataclass(frozen=True, slots=True)
class MemorySummarized:
    """What runs are told from now on of the session's messages from `first` through `last`."""

    type: ClassVar = "memory.summarized"
    id: str
    first: str
    last: str
    messages: int
    model: str
    content: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class MemoryTrimmed:
    """Messages of the session fell out of sight, and nothing is told of them.

    `error` says why `model` told nothing, where it was to.
    """

    type: ClassVar = "memory.trimmed"
    id: str
    first: str
    last: str
    messages: int
    model: str | None = None
    error: Failure | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class MemoryExtracted:
    """What the run `of_run` teaches has become memories: how much of each, log's lines as facts.

    `pruned` is how much older was forgotten for it; `reason` says why nothing was kept.
    """

    type: ClassVar = "memory.extracted"
    of_run: str
    entities: int = 0
    relations: int = 0
    facts: int = 0
    pruned: int = 0
    reason: Literal["no_user", "run_gone", "rolled_back"] | None = None


@dataclass(frozen=True, slots=True)
class InputScreening:
    """The agent's guardrails are about to look at the input."""

    type: ClassVar = "input.screening"


@dataclass(frozen=True, slots=True)
class InputScreened:
    """What the guardrails made of the input: `blocked` says why the run may not go on with it.

    `input` is what the model reads in its place where they changed it.
    """

    type: ClassVar = "input.screened"
    blocked: str | None = None
    input: tuple[InputMessage, ...] | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class SteerReceived:
    """Somebody said something while the run was under way; the model reads it at its next step.

    `by` is what the key that said it is called, `key` its id: logs of earlier versions don't say.
    `screened`: the agent's guardrails have looked at it, and `blocked` says why nobody reads it.
    """

    type: ClassVar = "steer.received"
    message_id: str
    content: str
    images: tuple[Image, ...] = ()
    by: str = ""
    screened: bool = False
    blocked: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class SteerApplied:
    """What was said meanwhile stands in the conversation from here on, in this order."""

    type: ClassVar = "steer.applied"
    message_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepStarted:
    """One model call, and the tool calls that it asks for, begin."""

    type: ClassVar = "step.started"
    index: int


@dataclass(frozen=True, slots=True)
class StepCompleted:
    """Every call of the step has a result."""

    type: ClassVar = "step.completed"
    index: int


@dataclass(frozen=True, slots=True)
class MessageStarted:
    """A model is about to be called; written before the call, so that none is forgotten."""

    type: ClassVar = "message.started"
    message_id: str
    model: str


@dataclass(frozen=True, slots=True)
class MessageCompleted:
    """The model's full text, and what it took; `sealed` goes back to its vendor as it is.

    `answered_by` is a fallback's `provider/model`, None where the model that was asked answered.
    """

    type: ClassVar = "message.completed"
    message_id: str
    content: str
    finish_reason: FinishReason
    usage: Usage
    model: str = ""
    response_id: str = ""
    first_delta_ms: int | None = None
    sealed: tuple[Sealed, ...] = ()
    answered_by: str | None = None


@dataclass(frozen=True, slots=True)
class MessageAborted:
    """The message will not be completed: what was shown of it is void, but may cost something."""

    type: ClassVar = "message.aborted"
    message_id: str
    reason: str
    error: Failure | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class ReasoningCompleted:
    """The model's thinking beside a message, where the vendor shows it."""

    type: ClassVar = "reasoning.completed"
    message_id: str
    content: str


@dataclass(frozen=True, slots=True)
class ModelRetried:
    """The model is called again after a failure."""

    type: ClassVar = "model.retried"
    message_id: str
    attempt: int
    wait_ms: int
    error: Failure


@dataclass(frozen=True, slots=True)
class ModelFellBack:
    """A model gave no reply, and another one was asked; both are `provider/model`."""

    type: ClassVar = "model.fell_back"
    message_id: str
    failed: str
    chosen: str
    error: Failure


@dataclass(frozen=True, slots=True)
class StructuredRetried:
    """The answer did not fit the schema; the model is told `notice` and asked once more."""

    type: ClassVar = "structured.retried"
    message_id: str
    attempt: int
    error: Failure
    notice: str


@dataclass(frozen=True, slots=True)
class LoopDetected:
    """The run turns in a circle; with `warn` the model is told `notice`, with `stop` it ends."""

    type: ClassVar = "loop.detected"
    pattern: Pattern
    tools: tuple[str, ...]
    count: int
    action: LoopAction
    notice: str


@dataclass(frozen=True, slots=True)
class BudgetWarning:
    """Much of a budget is spent: `spent` of `of`, in the unit that `limit` names.

    `budget` is its id, or `run` for one of the run's own limits.
    """

    type: ClassVar = "budget.warning"
    budget: str
    limit: str
    spent: int
    of: int


@dataclass(frozen=True, slots=True)
class BudgetExceeded:
    """A budget has nothing left for what comes next, so the run ends with what it has."""

    type: ClassVar = "budget.exceeded"
    budget: str
    limit: str
    spent: int
    of: int
    resets_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CacheHit:
    """The message was answered from the cache; `age_s` is how old the answer is."""

    type: ClassVar = "cache.hit"
    message_id: str
    age_s: float


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
    """The agent's guardrails are about to look at a call."""

    type: ClassVar = "tool_call.screening"
    call_id: str


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


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """A person must say yes to exactly this call. `expires_at_ms` is Unix time.

    Of kind `outcome` it asks what came of a call that was cut off. `approvers` may answer, anybody
    with the scope if there are none; `on_timeout` says what silence means.
    """

    type: ClassVar = "approval.requested"
    approval_id: str
    call_id: str
    tool: str
    arguments: Mapping[str, Json]
    digest: str
    preview: str
    policy: str
    expires_at_ms: int
    required: int = 1
    kind: ApprovalKind = "call"
    approvers: tuple[str, ...] = ()
    on_timeout: OnTimeout = "deny"


@dataclass(frozen=True, slots=True)
class ApprovalDecided:
    """A person answered. `arguments` and `digest` are there when the call was edited.

    `happened` brings the `result` of a call that was cut off; `not_happened` has it made again, and
    `stop` ends the run.
    """

    type: ClassVar = "approval.decided"
    approval_id: str
    call_id: str
    decision: ApprovalAnswer
    by: str
    comment: str | None = None
    arguments: Mapping[str, Json] | None = None
    digest: str | None = None
    result: Json = None


@dataclass(frozen=True, slots=True)
class ApprovalExpired:
    """Nobody answered in time, which means no; with `fail` it is the end of the run."""

    type: ClassVar = "approval.expired"
    approval_id: str
    call_id: str
    then: Literal["deny", "fail"] = "deny"


@dataclass(frozen=True, slots=True)
class ApprovalEscalated:
    """Nobody answered in time, so others are asked, until `expires_at_ms` (Unix time)."""

    type: ClassVar = "approval.escalated"
    approval_id: str
    call_id: str
    approvers: tuple[str, ...]
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class ApprovalWithdrawn:
    """The question fell away: with its run, or because somebody took it back."""

    type: ClassVar = "approval.withdrawn"
    approval_id: str
    call_id: str
    by: str | None = None
    reason: str | None = None


Terminal = RunCompleted | RunIncomplete | RunFailed | RunCancelled | RunExpired

Event = (
    RunQueued
    | RunForked
    | RunImported
    | RunStarted
    | RunResumed
    | RunRetrying
    | RunWaiting
    | RunCancelling
    | RunFailing
    | RunRetried
    | Terminal
    | SessionLoaded
    | MemorySummarizing
    | MemorySummarized
    | MemoryTrimmed
    | MemoryExtracted
    | InputScreening
    | InputScreened
    | SteerReceived
    | SteerApplied
    | StepStarted
    | StepCompleted
    | MessageStarted
    | MessageCompleted
    | MessageAborted
    | ReasoningCompleted
    | ModelRetried
    | ModelFellBack
    | StructuredRetried
    | LoopDetected
    | BudgetWarning
    | BudgetExceeded
    | CacheHit
    | ToolCallRequested
    | ToolCallScreening
    | ToolCallScreened
    | ToolCallCounting
    | ToolCallCounted
    | PolicyDecided
    | ToolCallStarted
    | ToolCallCompleted
    | ToolResultCompressing
    | ToolResultCompressed
    | ArtifactCreated
    | Custom
    | GuardrailTriggered
    | ToolCallFailed
    | ChildRunStarted
    | ChildRunEnded
    | ToolCallDenied
    | ToolCallInterrupted
    | ToolCallChecked
    | ApprovalRequested
    | ApprovalDecided
    | ApprovalExpired
    | ApprovalEscalated
    | ApprovalWithdrawn
)
