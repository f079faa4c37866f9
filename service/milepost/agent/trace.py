"""A run's trace: what was done, step by step, from the events of its log."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import orjson

from milepost.agent.arguments import arguments_in
from milepost.core.codec import usage_shown
from milepost.core.events import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalWithdrawn,
    BudgetExceeded,
    CacheHit,
    ChildRunEnded,
    Event,
    GuardrailTriggered,
    InputScreened,
    InputScreening,
    LoopDetected,
    MemorySummarized,
    MemorySummarizing,
    MemoryTrimmed,
    MessageAborted,
    MessageCompleted,
    MessageStarted,
    RunCancelled,
    RunExpired,
    RunFailed,
    SessionLoaded,
    StructuredRetried,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallScreened,
    ToolCallScreening,
    ToolCallStarted,
    ToolResultCompressed,
    ToolResultCompressing,
)
from milepost.core.json import Json
from milepost.core.usage import Usage
from milepost.live.frames import rfc3339

StepType = Literal[
    "llm_call", "tool_selection", "tool_execution", "cache_hit", "error", "structured_retry",
    "guardrail", "coherence_check", "output_screening", "session_load", "session_save",
    "memory_summarize", "entity_extraction", "kg_extraction", "budget_exceeded", "cancelled",
    "prompt_compressed", "loop_detected", "child_run", "approval",
]  # fmt: skip
"""Steps of kinds that no run has yet are there for those who match on all of them."""


@dataclass(frozen=True, slots=True)
class TraceStep:
    """Something that was done: `name` says to what, `detail` what came of it.

    `reasoning` is what the model said beside its calls, or thought before its answer.
    """

    type: StepType
    start_ms: int
    duration_ms: int
    name: str = ""
    detail: Mapping[str, Json] = field(default_factory=dict)
    reasoning: str | None = None

    def to_dict(self) -> dict[str, Json]:
        """Return the step as JSON."""
        return {
            "type": self.type,
            "name": self.name,
            "started_at": rfc3339(self.start_ms),
            "duration_ms": self.duration_ms,
            "detail": dict(self.detail),
            "reasoning": self.reasoning,
        }


@dataclass(frozen=True, slots=True)
class AgentTrace:
    """The steps of a run, in the order in which they were over."""

    run_id: str
    parent_run_id: str | None
    metadata: Mapping[str, str]
    steps: tuple[TraceStep, ...]

    @property
    def total_duration_ms(self) -> int:
        """The time of all steps together: what ran side by side counts twice."""
        return sum(step.duration_ms for step in self.steps)

    def filter(self, *types: StepType) -> tuple[TraceStep, ...]:
        """Return the steps of these types."""
        return tuple(step for step in self.steps if step.type in types)

    def to_dict(self) -> dict[str, Json]:
        """Return the trace as JSON."""
        return {
            "run_id": self.run_id,
            "parent_run_id": self.parent_run_id,
            "metadata": dict(self.metadata),
            "total_duration_ms": self.total_duration_ms,
            "steps": [step.to_dict() for step in self.steps],
        }

    def to_json(self) -> str:
        """Return the trace as the text of a JSON object."""
        return orjson.dumps(self.to_dict()).decode()

    def timeline(self) -> str:
        """Return a line for each step: when it began, how long it took, and what it was."""
        began = min((step.start_ms for step in self.steps), default=0)
        return "\n".join(
            f"{step.start_ms - began:>8} ms {step.duration_ms:>8} ms  {step.type:<17} {step.name}"
            for step in self.steps
        )


def steps_of(
    happened: Iterable[tuple[int, Event]], reasonings: Mapping[str, str]
) -> tuple[TraceStep, ...]:
    """Return the steps that the events, each with its moment in Unix milliseconds, tell of.

    `reasonings` are those of the run's messages.
    """
    tracing = _Tracing(reasonings)
    for time_ms, event in happened:
        tracing.feed(time_ms, event)
    return tuple(tracing.steps)


_Opening = InputScreening | ToolCallScreening | ToolResultCompressing | MemorySummarizing
_Closing = (
    InputScreened | ToolCallScreened | ToolResultCompressed | MemorySummarized | MemoryTrimmed
)


class _Tracing:
    """The steps so far, and what has begun and is not over."""

    def __init__(self, reasonings: Mapping[str, str]) -> None:
        self.steps: list[TraceStep] = []
        self._reasonings = reasonings
        self._begun: dict[str, int] = {}
        self._models: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._given: dict[str, Mapping[str, Json]] = {}

    def feed(self, time_ms: int, event: Event) -> None:
        """Take the next event."""
        if given := arguments_in(event):
            self._given |= [given]
        match event:
            case MessageStarted() | MessageCompleted() | MessageAborted():
                self._message(time_ms, event)
            case ToolCallRequested():
                self._request(time_ms, event)
            case ToolCallStarted(call_id):
                self._begun[call_id] = time_ms
            case ToolCallCompleted() | ToolCallFailed() | ToolCallDenied():
                self._close_call(time_ms, event)
            case _ if isinstance(event, _Opening):
                self._begun[_place(event)] = time_ms
            case _ if isinstance(event, _Closing):
                self._close(time_ms, event)
            case ApprovalRequested(approval_id):
                self._begun[approval_id] = time_ms
            case ApprovalDecided() | ApprovalExpired() | ApprovalWithdrawn():
                self._close_approval(time_ms, event)
            case _:
                self._note(time_ms, event)

    def _message(
        self, time_ms: int, event: MessageStarted | MessageCompleted | MessageAborted
    ) -> None:
        message_id = event.message_id
        if isinstance(event, MessageStarted):
            self._begun[message_id], self._models[message_id] = time_ms, event.model
            return
        model, detail = self._models.get(message_id, ""), _spent(event)
        if isinstance(event, MessageCompleted):
            model = event.answered_by or model
            detail |= {"finish_reason": event.finish_reason, "content": event.content}
        else:
            detail |= {"error": event.reason}
        reasoning = self._reasonings.get(message_id)
        self._end("llm_call", message_id, time_ms, model, detail, reasoning)

    def _request(self, time_ms: int, event: ToolCallRequested) -> None:
        self._names[event.call_id] = event.name
        said: dict[str, Json] = {"call_id": event.call_id, "arguments": dict(event.arguments)}
        reasoning = self._reasonings.get(event.message_id)
        self.steps.append(TraceStep("tool_selection", time_ms, 0, event.name, said, reasoning))

    def _close_call(
        self, time_ms: int, event: ToolCallCompleted | ToolCallFailed | ToolCallDenied
    ) -> None:
        call_id, name = event.call_id, self._names.get(event.call_id, "")
        detail: dict[str, Json] = {
            "call_id": call_id,
            "arguments": dict(self._given.get(call_id, {})),
        }
        match event:
            case ToolCallCompleted(result=result, cached=cached):
                detail |= {"result": result, "cached": cached}
            case ToolCallFailed(error=error):
                detail |= {"error": error.message, "code": error.code}
            case ToolCallDenied(by=by, reason=reason):
                detail |= {"error": f"denied by {by}: {reason}"}
        begun = call_id in self._begun or isinstance(event, ToolCallCompleted)
        self._end("tool_execution" if begun else "error", call_id, time_ms, name, detail)

    def _close_approval(
        self, time_ms: int, event: ApprovalDecided | ApprovalExpired | ApprovalWithdrawn
    ) -> None:
        detail: dict[str, Json] = {"call_id": event.call_id}
        match event:
            case ApprovalDecided(decision=decision, by=by, comment=comment):
                detail |= {"decision": decision, "by": by, "comment": comment}
            case ApprovalExpired():
                detail |= {"decision": "expired"}
            case ApprovalWithdrawn():
                detail |= {"decision": "withdrawn"}
        name = self._names.get(event.call_id, "")
        self._end("approval", event.approval_id, time_ms, name, detail)

    def _close(self, time_ms: int, event: _Closing) -> None:
        place = _place(event)
        match event:
            case InputScreened(blocked=blocked):
                self._end("guardrail", place, time_ms, "input", {"blocked": blocked})
            case ToolCallScreened(call_id, blocked=blocked, usage=usage):
                # Only to judge whether a call serves the user takes a model.
                kind: StepType = "guardrail" if usage == Usage() else "coherence_check"
                name = self._names.get(call_id, "")
                self._end(kind, place, time_ms, name, {"blocked": blocked})
            case ToolResultCompressed(call_id, content, chars):
                name = self._names.get(call_id, "")
                detail: dict[str, Json] = {"chars_before": chars, "chars_after": len(content)}
                self._end("prompt_compressed", place, time_ms, name, _spent(event) | detail)
            case MemorySummarized() | MemoryTrimmed():
                self._end(
                    "memory_summarize", place, time_ms, event.model or "", _told_of_history(event)
                )

    def _note(self, time_ms: int, event: Event) -> None:
        match event:
            case CacheHit(message_id, age_s):
                self._add("cache_hit", time_ms, message_id, {"age_s": age_s})
            case StructuredRetried(message_id, attempt, error):
                detail: dict[str, Json] = {"attempt": attempt, "error": error.message}
                self._add("structured_retry", time_ms, message_id, detail)
            case GuardrailTriggered(guardrail, action, reason, _, place):
                kind: StepType = "output_screening" if place == "tool_results" else "guardrail"
                said: dict[str, Json] = {"place": place, "action": action, "reason": reason}
                self._add(kind, time_ms, guardrail, said)
            case _:
                self._mark(time_ms, event)

    def _mark(self, time_ms: int, event: Event) -> None:
        match event:
            case SessionLoaded(_, messages):
                self._add("session_load", time_ms, "", {"messages": messages})
            case LoopDetected(pattern, tools, count, action):
                seen: dict[str, Json] = {"tools": [*tools], "count": count, "action": action}
                self._add("loop_detected", time_ms, pattern, seen)
            case BudgetExceeded(_, limit, spent, of):
                self._add("budget_exceeded", time_ms, limit, {"spent": spent, "of": of})
            case ChildRunEnded(_, run_id, status):
                self._add("child_run", time_ms, run_id, {"status": status})
            case RunFailed(error):
                self._add("error", time_ms, error.code, {"error": error.message})
            case RunCancelled(by, reason):
                self._add("cancelled", time_ms, by, {"reason": reason})
            case RunExpired(limit):
                self._add("error", time_ms, "expired", {"limit": limit})
            case _:
                pass  # No step of its own.

    def _end(
        self, kind: StepType, begun: str, time_ms: int, name: str, detail: Mapping[str, Json],
        reasoning: str | None = None,
    ) -> None:  # fmt: skip
        start_ms = self._begun.pop(begun, time_ms)
        took_ms = max(0, time_ms - start_ms)
        self.steps.append(TraceStep(kind, start_ms, took_ms, name, detail, reasoning))

    def _add(self, kind: StepType, time_ms: int, name: str, detail: Mapping[str, Json]) -> None:
        self.steps.append(TraceStep(kind, time_ms, 0, name, detail))


def _place(event: _Opening | _Closing) -> str:
    """Return what tells the two ends of a look at something from all others."""
    match event:
        case InputScreening() | InputScreened():
            return "the input"
        case ToolCallScreening(call_id) | ToolCallScreened(call_id):
            return f"the call {call_id}"
        case ToolResultCompressing(call_id) | ToolResultCompressed(call_id):
            return f"the result of {call_id}"
        case MemorySummarizing() | MemorySummarized() | MemoryTrimmed():
            return "the history"


def _told_of_history(event: MemorySummarized | MemoryTrimmed) -> dict[str, Json]:
    detail: dict[str, Json] = {"messages": event.messages}
    if event.model is not None:
        detail |= _spent(event)
    if isinstance(event, MemoryTrimmed) and event.error is not None:
        detail |= {"error": event.error.message}
    return detail


def _spent(
    event: MessageCompleted | MessageAborted | ToolResultCompressed | MemorySummarized
    | MemoryTrimmed,
) -> dict[str, Json]:  # fmt: skip
    return {"usage": dict(usage_shown(event.usage))}
