"""What observers are told: one record for each thing that may happen, and nothing else.

Every record names its run, those of tools their call, those of batches the batch. Durations are in
milliseconds. The names are those of the methods of `Observer`, without their `on_`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from milepost.core.agents import LoopAction
from milepost.core.events import Failure, InputMessage
from milepost.core.guardrails import Place
from milepost.core.json import Json
from milepost.core.loops import Pattern
from milepost.core.model import FinishReason
from milepost.core.usage import Usage


@dataclass(frozen=True, slots=True)
class RunStart:
    """A run begins."""

    name: ClassVar = "run_start"
    run_id: str
    agent: str
    model: str
    input: tuple[InputMessage, ...]
    parent_run_id: str | None
    batch_id: str | None
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RunEnd:
    """A run is over, however it came out."""

    name: ClassVar = "run_end"
    run_id: str
    status: str
    content: str
    finish_reason: str | None
    error: Failure | None
    usage: Usage
    duration_ms: int


@dataclass(frozen=True, slots=True)
class IterationStart:
    """A step begins: a model call, and the tool calls that it asks for."""

    name: ClassVar = "iteration_start"
    run_id: str
    index: int


@dataclass(frozen=True, slots=True)
class IterationEnd:
    """Every call of the step has a result."""

    name: ClassVar = "iteration_end"
    run_id: str
    index: int


@dataclass(frozen=True, slots=True)
class LlmStart:
    """A model is asked."""

    name: ClassVar = "llm_start"
    run_id: str
    message_id: str
    model: str


@dataclass(frozen=True, slots=True)
class LlmEnd:
    """A model has answered, or `error` says why it did not."""

    name: ClassVar = "llm_end"
    run_id: str
    message_id: str
    model: str
    content: str
    finish_reason: FinishReason | None
    usage: Usage
    duration_ms: int
    error: Failure | None


@dataclass(frozen=True, slots=True)
class LlmRetry:
    """A model is asked again after a failure, and after a wait."""

    name: ClassVar = "llm_retry"
    run_id: str
    message_id: str
    attempt: int
    wait_ms: int
    error: Failure


@dataclass(frozen=True, slots=True)
class CacheHit:
    """The answer was kept from an earlier call; `age_s` is how old it is."""

    name: ClassVar = "cache_hit"
    run_id: str
    message_id: str
    age_s: float


@dataclass(frozen=True, slots=True)
class UsageSeen:
    """What a model call took. `total` is what the run has taken so far."""

    name: ClassVar = "usage"
    run_id: str
    model: str
    usage: Usage
    total: Usage


@dataclass(frozen=True, slots=True)
class ProviderFallback:
    """A model gave no answer, and the next one was asked; both are `provider/model`."""

    name: ClassVar = "provider_fallback"
    run_id: str
    message_id: str
    failed: str
    chosen: str
    error: Failure


@dataclass(frozen=True, slots=True)
class ModelSwitch:
    """Another model answered than the one before; both are `provider/model`."""

    name: ClassVar = "model_switch"
    run_id: str
    message_id: str
    previous: str
    current: str


@dataclass(frozen=True, slots=True)
class ToolStart:
    """A tool is about to run."""

    name: ClassVar = "tool_start"
    run_id: str
    call_id: str
    tool: str
    arguments: Mapping[str, Json]
    attempt: int


@dataclass(frozen=True, slots=True)
class ToolChunk:
    """A tool said something while it runs."""

    name: ClassVar = "tool_chunk"
    run_id: str
    call_id: str
    tool: str
    chunk: str


@dataclass(frozen=True, slots=True)
class ToolEnd:
    """A tool brought a result; `cached`: it did not run again for it."""

    name: ClassVar = "tool_end"
    run_id: str
    call_id: str
    tool: str
    result: Json
    duration_ms: int
    cached: bool


@dataclass(frozen=True, slots=True)
class ToolError:
    """A call came to nothing, whether its tool ran or not; the model is told why."""

    name: ClassVar = "tool_error"
    run_id: str
    call_id: str
    tool: str
    error: Failure
    duration_ms: int


@dataclass(frozen=True, slots=True)
class ToolLoopDetected:
    """The run turns in a circle."""

    name: ClassVar = "tool_loop_detected"
    run_id: str
    pattern: Pattern
    tools: tuple[str, ...]
    count: int
    action: LoopAction


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """A call was judged by something other than a plain allow: `verdict` is `ask` or `deny`."""

    name: ClassVar = "policy_decision"
    run_id: str
    call_id: str
    tool: str
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """A call waits for a yes: `reason` is why, `preview` shows it in one line."""

    name: ClassVar = "approval_requested"
    run_id: str
    approval_id: str
    call_id: str
    tool: str
    arguments: Mapping[str, Json]
    preview: str
    reason: str


@dataclass(frozen=True, slots=True)
class ApprovalDecided:
    """There is an answer; `arguments` are those that take the place of the call's, if any do."""

    name: ClassVar = "approval_decided"
    run_id: str
    approval_id: str
    call_id: str
    tool: str
    decision: str
    by: str
    comment: str | None
    arguments: Mapping[str, Json] | None


@dataclass(frozen=True, slots=True)
class ApprovalEnded:
    """There will be no answer: the question is `expired`, or `withdrawn` with its run."""

    name: ClassVar = "approval_ended"
    run_id: str
    approval_id: str
    call_id: str
    tool: str
    how: str


@dataclass(frozen=True, slots=True)
class GuardrailTriggered:
    """A guardrail stepped in. `call_id` is there at a tool's two ends."""

    name: ClassVar = "guardrail_triggered"
    run_id: str
    guardrail: str
    place: Place
    action: str
    reason: str
    call_id: str | None


@dataclass(frozen=True, slots=True)
class StructuredValidate:
    """An answer was held against its schema; `error` says what does not fit, None that all does."""

    name: ClassVar = "structured_validate"
    run_id: str
    attempt: int
    error: str | None


@dataclass(frozen=True, slots=True)
class PromptCompressed:
    """A long result was made shorter before the model reads it; `fallback` says why only cut."""

    name: ClassVar = "prompt_compressed"
    run_id: str
    call_id: str
    chars_before: int
    chars_after: int
    fallback: str | None


@dataclass(frozen=True, slots=True)
class BudgetExceeded:
    """A bound has nothing left for what comes next: `spent` of `of`, in the unit of `limit`."""

    name: ClassVar = "budget_exceeded"
    run_id: str
    limit: str
    spent: int
    of: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The run was stopped by whoever waited for it."""

    name: ClassVar = "cancelled"
    run_id: str
    by: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class RunFailure:
    """The run could not go on."""

    name: ClassVar = "error"
    run_id: str
    error: Failure


@dataclass(frozen=True, slots=True)
class BatchStart:
    """Many runs of one agent begin."""

    name: ClassVar = "batch_start"
    batch_id: str
    agent: str
    total: int
    max_concurrency: int


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """All runs of a batch are over; `completed` of them answered."""

    name: ClassVar = "batch_end"
    batch_id: str
    agent: str
    total: int
    completed: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class SessionLoad:
    """The run sees messages that were said before it."""

    name: ClassVar = "session_load"
    run_id: str
    messages: int


@dataclass(frozen=True, slots=True)
class SessionSave:
    """What was said is in the conversation that the run was handed: `messages` in all."""

    name: ClassVar = "session_save"
    run_id: str
    messages: int


@dataclass(frozen=True, slots=True)
class MemoryTrim:
    """So many messages fell out of sight."""

    name: ClassVar = "memory_trim"
    run_id: str
    messages: int


@dataclass(frozen=True, slots=True)
class MemorySummarize:
    """What a model tells of messages that fell out of sight."""

    name: ClassVar = "memory_summarize"
    run_id: str
    summary: str
    messages_summarized: int


@dataclass(frozen=True, slots=True)
class EntityExtraction:
    """A reader has noted who and what was spoken of in the run `run_id`."""

    name: ClassVar = "entity_extraction"
    run_id: str
    entities: tuple[str, ...]
    turn_count: int


@dataclass(frozen=True, slots=True)
class KgExtraction:
    """A reader has noted what holds between them."""

    name: ClassVar = "kg_extraction"
    run_id: str
    triples: tuple[tuple[str, str, str], ...]


Observation = (
    RunStart
    | RunEnd
    | IterationStart
    | IterationEnd
    | LlmStart
    | LlmEnd
    | LlmRetry
    | CacheHit
    | UsageSeen
    | ProviderFallback
    | ModelSwitch
    | ToolStart
    | ToolChunk
    | ToolEnd
    | ToolError
    | ToolLoopDetected
    | PolicyDecision
    | ApprovalRequested
    | ApprovalDecided
    | ApprovalEnded
    | GuardrailTriggered
    | StructuredValidate
    | PromptCompressed
    | BudgetExceeded
    | Cancelled
    | RunFailure
    | BatchStart
    | BatchEnd
    | SessionLoad
    | SessionSave
    | MemoryTrim
    | MemorySummarize
    | EntityExtraction
    | KgExtraction
)
