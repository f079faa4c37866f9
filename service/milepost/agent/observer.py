"""Watching runs from within the process: a method for each thing that may happen.

What an observer raises never reaches the run: it is counted, and told in the process' own log.
"""

from collections.abc import Awaitable

from milepost.agent.observations import (
    ApprovalDecided,
    ApprovalEnded,
    ApprovalRequested,
    BatchEnd,
    BatchStart,
    BudgetExceeded,
    CacheHit,
    Cancelled,
    EntityExtraction,
    GuardrailTriggered,
    IterationEnd,
    IterationStart,
    KgExtraction,
    LlmEnd,
    LlmRetry,
    LlmStart,
    MemorySummarize,
    MemoryTrim,
    ModelSwitch,
    Observation,
    PolicyDecision,
    PromptCompressed,
    ProviderFallback,
    RunEnd,
    RunFailure,
    RunStart,
    SessionLoad,
    SessionSave,
    StructuredValidate,
    ToolChunk,
    ToolEnd,
    ToolError,
    ToolLoopDetected,
    ToolStart,
    UsageSeen,
)

Answer = Awaitable[None] | None
"""What a method returns: nothing, or something to be awaited where it is `async`."""


class Observer:
    """Override what you want to hear of, with plain methods or with `async` ones.

    Plain ones are called first, in the loop of the run, and must not block it. Of the `async` ones
    the run waits for those of an observer that is `blocking`; the others run beside it. Whoever
    wants everything in one place overrides `on_event`.
    """

    blocking: bool = True

    def on_event(self, seen: Observation) -> Answer:
        """Call the method that the record is for."""
        answer: Answer = getattr(self, f"on_{seen.name}")(seen)
        return answer

    def on_run_start(self, seen: RunStart) -> Answer:
        """A run begins."""

    def on_run_end(self, seen: RunEnd) -> Answer:
        """A run is over."""

    def on_iteration_start(self, seen: IterationStart) -> Answer:
        """A step begins."""

    def on_iteration_end(self, seen: IterationEnd) -> Answer:
        """A step is over."""

    def on_llm_start(self, seen: LlmStart) -> Answer:
        """A model is asked."""

    def on_llm_end(self, seen: LlmEnd) -> Answer:
        """A model has answered, or failed."""

    def on_llm_retry(self, seen: LlmRetry) -> Answer:
        """A model is asked again."""

    def on_cache_hit(self, seen: CacheHit) -> Answer:
        """An answer was kept from before."""

    def on_usage(self, seen: UsageSeen) -> Answer:
        """A model call took something."""

    def on_provider_fallback(self, seen: ProviderFallback) -> Answer:
        """The next model was asked."""

    def on_model_switch(self, seen: ModelSwitch) -> Answer:
        """Another model answered than before."""

    def on_tool_start(self, seen: ToolStart) -> Answer:
        """A tool is about to run."""

    def on_tool_chunk(self, seen: ToolChunk) -> Answer:
        """A tool said something."""

    def on_tool_end(self, seen: ToolEnd) -> Answer:
        """A tool brought a result."""

    def on_tool_error(self, seen: ToolError) -> Answer:
        """A call came to nothing."""

    def on_tool_loop_detected(self, seen: ToolLoopDetected) -> Answer:
        """The run turns in a circle."""

    def on_policy_decision(self, seen: PolicyDecision) -> Answer:
        """A call was judged, and not allowed at once."""

    def on_approval_requested(self, seen: ApprovalRequested) -> Answer:
        """A call waits for a yes."""

    def on_approval_decided(self, seen: ApprovalDecided) -> Answer:
        """There is an answer."""

    def on_approval_ended(self, seen: ApprovalEnded) -> Answer:
        """There will be no answer."""

    def on_guardrail_triggered(self, seen: GuardrailTriggered) -> Answer:
        """A guardrail stepped in."""

    def on_structured_validate(self, seen: StructuredValidate) -> Answer:
        """An answer was held against its schema."""

    def on_prompt_compressed(self, seen: PromptCompressed) -> Answer:
        """A long result was made shorter."""

    def on_budget_exceeded(self, seen: BudgetExceeded) -> Answer:
        """A bound was reached."""

    def on_cancelled(self, seen: Cancelled) -> Answer:
        """The run was stopped."""

    def on_error(self, seen: RunFailure) -> Answer:
        """The run could not go on."""

    def on_batch_start(self, seen: BatchStart) -> Answer:
        """A batch begins."""

    def on_batch_end(self, seen: BatchEnd) -> Answer:
        """A batch is over."""

    def on_session_load(self, seen: SessionLoad) -> Answer:
        """The run sees what was said before it."""

    def on_session_save(self, seen: SessionSave) -> Answer:
        """A conversation was kept."""

    def on_memory_trim(self, seen: MemoryTrim) -> Answer:
        """The oldest messages went out of sight."""

    def on_memory_summarize(self, seen: MemorySummarize) -> Answer:
        """Messages out of sight were summarized."""

    def on_entity_extraction(self, seen: EntityExtraction) -> Answer:
        """Who and what was spoken of was noted."""

    def on_kg_extraction(self, seen: KgExtraction) -> Answer:
        """What holds between them was noted."""
