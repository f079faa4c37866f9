"""A run's log in the words of observers."""

from collections.abc import Iterator, Mapping

from milepost.agent import observations as seen
from milepost.agent.arguments import arguments_in
from milepost.agent.observations import Observation
from milepost.core.agents import Agent
from milepost.core.events import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalWithdrawn,
    BudgetExceeded,
    CacheHit,
    Event,
    Failure,
    GuardrailTriggered,
    InputScreened,
    LoopDetected,
    MemorySummarized,
    MemoryTrimmed,
    MessageAborted,
    MessageCompleted,
    MessageStarted,
    ModelFellBack,
    ModelRetried,
    PolicyDecided,
    RunCancelled,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunIncomplete,
    RunQueued,
    SessionLoaded,
    SideCallAborted,
    StepCompleted,
    StepStarted,
    StructuredRetried,
    Terminal,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallScreened,
    ToolCallStarted,
    ToolResultCompressed,
)
from milepost.core.json import Json
from milepost.core.usage import Usage

DENIED = "denied"


class Narration:
    """One run's. Feed it the log in order, and it says what there is to tell of each event."""

    def __init__(
        self, run_id: str, agent: Agent, *, parent_run_id: str | None, batch_id: str | None,
        metadata: Mapping[str, str], is_structured: bool,
    ) -> None:  # fmt: skip
        coherence = agent.guardrails.coherence if agent.guardrails else None
        self._run_id = run_id
        self._model = model = agent.model
        self._looking = coherence.model if coherence else model
        self._parent_run_id = parent_run_id
        self._batch_id = batch_id
        self._metadata = metadata
        self._is_structured = is_structured
        self._began_ms = 0
        self._asked_ms = 0
        self._message_model = model
        self._answered_by = model
        self._tools: dict[str, str] = {}
        self._given: dict[str, Mapping[str, Json]] = {}
        self._attempts = 1
        self._total = Usage()

    def tool(self, call_id: str) -> str:
        """Return the tool of a call."""
        return self._tools.get(call_id, "")

    def of(self, event: Event, time_ms: int) -> Iterator[Observation]:
        """Yield what there is to tell."""
        if given := arguments_in(event):
            self._given |= [given]
        match event:
            case RunQueued():
                yield self._begin(event, time_ms)
            case RunCompleted() | RunIncomplete() | RunFailed() | RunCancelled() | RunExpired():
                yield from self._end(event, time_ms)
            case MessageStarted() | MessageCompleted() | MessageAborted():
                yield from self._message(event, time_ms)
            case ToolCallRequested(call_id, name):
                self._tools[call_id] = name
            case ToolCallStarted() | ToolCallCompleted() | ToolCallFailed() | ToolCallDenied():
                yield self._call(event)
            case ToolResultCompressed():
                yield from self._compressed(event)
            case MemoryTrimmed() | MemorySummarized():
                yield from self._trimmed(event)
            case InputScreened(usage=usage) | ToolCallScreened(usage=usage):
                yield from self._spend(self._looking, usage)
            case _:
                yield from self._other(event)

    def _other(self, event: Event) -> Iterator[Observation]:
        run_id = self._run_id
        match event:
            case StepStarted(index):
                yield seen.IterationStart(run_id, index)
            case StepCompleted(index):
                yield seen.IterationEnd(run_id, index)
            case SessionLoaded(_, messages):
                yield seen.SessionLoad(run_id, messages)
            case ModelRetried(message_id, attempt, wait_ms, error):
                yield seen.LlmRetry(run_id, message_id, attempt, wait_ms, error)
            case ModelFellBack(message_id, failed, chosen, error):
                yield seen.ProviderFallback(run_id, message_id, failed, chosen, error)
            case CacheHit(message_id, age_s):
                yield seen.CacheHit(run_id, message_id, age_s)
            case SideCallAborted(_, model, usage):
                yield from self._spend(model, usage)
            case StructuredRetried(_, attempt, error):
                self._attempts = attempt + 1
                yield seen.StructuredValidate(run_id, attempt, error.message)
            case _:
                yield from self._step_in(event)

    def _step_in(self, event: Event) -> Iterator[Observation]:
        run_id = self._run_id
        match event:
            case LoopDetected(pattern, tools, count, action):
                yield seen.ToolLoopDetected(run_id, pattern, tools, count, action)
            case PolicyDecided(call_id, verdict, reason):
                yield seen.PolicyDecision(run_id, call_id, self.tool(call_id), verdict, reason)
            case ApprovalRequested() | ApprovalDecided() | ApprovalExpired() | ApprovalWithdrawn():
                yield self._approval(event)
            case GuardrailTriggered(guardrail, action, reason, call_id, place):
                yield seen.GuardrailTriggered(run_id, guardrail, place, action, reason, call_id)
            case BudgetExceeded(_, limit, spent, of):
                yield seen.BudgetExceeded(run_id, limit, spent, of)
            case _:
                pass  # Of this, observers have no word.

    def _begin(self, event: RunQueued, time_ms: int) -> Observation:
        self._began_ms = time_ms
        return seen.RunStart(
            self._run_id,
            event.agent,
            self._model,
            event.input,
            self._parent_run_id,
            self._batch_id,
            self._metadata,
        )

    def _message(
        self, event: MessageStarted | MessageCompleted | MessageAborted, time_ms: int
    ) -> Iterator[Observation]:
        run_id, took_ms = self._run_id, time_ms - self._asked_ms
        match event:
            case MessageStarted(message_id, model):
                self._asked_ms, self._message_model = time_ms, model
                yield seen.LlmStart(run_id, message_id, model)
            case MessageCompleted(message_id, content, finish_reason, usage):
                model = event.answered_by or self._message_model
                yield seen.LlmEnd(
                    run_id, message_id, model, content, finish_reason, usage, took_ms, None
                )
                yield from self._spend(model, usage)
                if model != self._answered_by:
                    yield seen.ModelSwitch(run_id, message_id, self._answered_by, model)
                    self._answered_by = model
            case MessageAborted(message_id, reason, error, usage):
                model = self._message_model
                failure = error or Failure("aborted", reason)
                yield seen.LlmEnd(run_id, message_id, model, "", None, usage, took_ms, failure)
                yield from self._spend(model, usage)

    def _call(
        self, event: ToolCallStarted | ToolCallCompleted | ToolCallFailed | ToolCallDenied
    ) -> Observation:
        run_id, call_id, tool = self._run_id, event.call_id, self.tool(event.call_id)
        match event:
            case ToolCallStarted(attempt=attempt):
                given = self._given.get(call_id, {})
                return seen.ToolStart(run_id, call_id, tool, given, attempt)
            case ToolCallCompleted(_, result, duration_ms):
                return seen.ToolEnd(run_id, call_id, tool, result, duration_ms, event.cached)
            case ToolCallFailed(_, error, duration_ms):
                return seen.ToolError(run_id, call_id, tool, error, duration_ms)
            case ToolCallDenied(_, by, reason):
                error = Failure(DENIED, f"denied by {by}: {reason}")
                return seen.ToolError(run_id, call_id, tool, error, 0)

    def _approval(
        self, event: ApprovalRequested | ApprovalDecided | ApprovalExpired | ApprovalWithdrawn
    ) -> Observation:
        run_id, approval_id, call_id = self._run_id, event.approval_id, event.call_id
        tool = self.tool(call_id)
        match event:
            case ApprovalRequested(arguments=arguments, preview=preview, policy=reason):
                return seen.ApprovalRequested(
                    run_id, approval_id, call_id, tool, arguments, preview, reason
                )
            case ApprovalDecided(decision=decision, by=by, comment=comment, arguments=changed):
                return seen.ApprovalDecided(
                    run_id, approval_id, call_id, tool, decision, by, comment, changed
                )
            case ApprovalExpired() | ApprovalWithdrawn():
                return seen.ApprovalEnded(
                    run_id, approval_id, call_id, tool, event.type.removeprefix("approval.")
                )

    def _compressed(self, event: ToolResultCompressed) -> Iterator[Observation]:
        after = len(event.content)
        yield seen.PromptCompressed(self._run_id, event.call_id, event.chars, after, event.fallback)
        yield from self._spend(event.model, event.usage)

    def _trimmed(self, event: MemoryTrimmed | MemorySummarized) -> Iterator[Observation]:
        yield seen.MemoryTrim(self._run_id, event.messages)
        if isinstance(event, MemorySummarized):
            yield seen.MemorySummarize(self._run_id, event.content, event.messages)
        yield from self._spend(event.model or self._model, event.usage)

    def _spend(self, model: str, usage: Usage) -> Iterator[Observation]:
        if usage != Usage():
            self._total += usage
            yield seen.UsageSeen(self._run_id, model, usage, self._total)

    def _end(self, event: Terminal, time_ms: int) -> Iterator[Observation]:
        run_id = self._run_id
        content, error = "", None
        finish_reason: str | None = None
        match event:
            case RunCompleted(output, _, finish):
                content, finish_reason = output.text, finish
                if self._is_structured and finish not in {"terminal", "routed"}:
                    yield seen.StructuredValidate(run_id, self._attempts, None)
            case RunIncomplete(reason, output):
                content, finish_reason = output.text, reason
            case RunFailed(failure):
                error = failure
                yield seen.RunFailure(run_id, failure)
            case RunCancelled(by, reason):
                yield seen.Cancelled(run_id, by, reason)
            case RunExpired(limit):
                finish_reason = limit
        yield seen.RunEnd(
            run_id,
            event.type.removeprefix("run."),
            content,
            finish_reason,
            error,
            event.usage,
            time_ms - self._began_ms,
        )
