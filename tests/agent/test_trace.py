"""Traces: a step for each thing that was done, from the events of a run."""

import json

import pytest

from milepost import tool
from milepost.agent.trace import TraceStep, steps_of
from milepost.core.codec import usage_shown
from milepost.core.events import (
    ChildRunEnded,
    Event,
    Failure,
    GuardrailTriggered,
    InputScreened,
    InputScreening,
    MemorySummarized,
    MemorySummarizing,
    MemoryTrimmed,
    MessageAborted,
    MessageStarted,
    RunCancelled,
    RunExpired,
    ToolCallDenied,
    ToolCallRequested,
    ToolCallScreened,
    ToolCallScreening,
    ToolResultCompressed,
    ToolResultCompressing,
)
from milepost.core.usage import Usage
from milepost.providers.scripted import calling, saying
from tests.agent.making import ADD, AT_ONCE, BUSY, add, adding, agent

NO = Failure("busy", "not now")
ASKED = ToolCallRequested("call_1_0", "add", {}, "server", "key", "msg_1")


def test_a_trace_has_a_step_for_each_thing_that_was_done() -> None:
    trace = adding().run("What is 17 + 25?").trace

    assert [(step.type, step.name) for step in trace.steps] == [
        ("llm_call", "test/model"),
        ("tool_selection", "add"),
        ("tool_execution", "add"),
        ("llm_call", "test/model"),
    ]
    assert trace.filter("tool_execution")[0].detail["result"] == 42
    assert trace.filter("tool_execution", "tool_selection") == trace.steps[1:3]


def test_a_trace_is_json_and_a_timeline_and_its_duration_is_the_sum_of_its_steps() -> None:
    trace = adding(trace_metadata={"case": "7"}).run("Go.").trace

    told = json.loads(trace.to_json())
    assert told == trace.to_dict()
    assert (told["run_id"], told["metadata"]) == (trace.run_id, {"case": "7"})
    assert told["total_duration_ms"] == sum(step["duration_ms"] for step in told["steps"])
    assert [line.split()[4] for line in trace.timeline().splitlines()] == [
        step.type for step in trace.steps
    ]


def test_a_trace_tells_what_went_wrong_or_was_stopped() -> None:
    failed = agent(calling(("sub", {})), BUSY, BUSY, BUSY, tools=[add]).run("Go.").trace
    cached = agent(saying("Hi."), cache_ttl_s=60)
    cached.run("Hi.")

    assert [(step.type, step.name) for step in failed.filter("error")] == [
        ("error", "sub"), ("error", "provider_unavailable"),
    ]  # fmt: skip
    assert [step.type for step in cached.run("Hi.").trace.steps] == ["cache_hit", "llm_call"]


def test_a_trace_tells_of_guardrails_budgets_circles_and_what_was_said_before() -> None:
    asked = agent(
        *[ADD] * 5,
        tools=[add],
        loop_detection={},
        limits={**AT_ONCE, "max_model_calls": 4},
        guardrails={"input": [{"type": "pii"}]},
    )

    trace = asked.run(
        [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hi!"}, "a@b.com"]
    ).trace

    assert {step.type for step in trace.steps} == {
        "session_load", "guardrail", "llm_call", "tool_selection", "tool_execution",
        "loop_detected", "budget_exceeded",
    }  # fmt: skip


def test_the_spans_are_those_that_the_service_would_export() -> None:
    result = adding().run("Go.")

    assert [span.kind for span in result.spans] == ["chat", "execute_tool", "chat", "invoke_agent"]


@pytest.mark.parametrize(
    ("events", "kind", "name"),
    [
        ([MessageStarted("msg_1", "test/m"), MessageAborted("msg_1", "x", NO)],
         "llm_call", "test/m"),
        ([InputScreening(), InputScreened(blocked="no")], "guardrail", "input"),
        ([ASKED, ToolCallScreening("call_1_0"), ToolCallScreened("call_1_0")], "guardrail", "add"),
        ([ASKED, ToolCallScreening("call_1_0"), ToolCallScreened("call_1_0", usage=Usage(1))],
         "coherence_check", "add"),
        ([ASKED, ToolResultCompressing("call_1_0", "test/m", 9),
          ToolResultCompressed("call_1_0", "short", 9, "test/m", Usage())],
         "prompt_compressed", "add"),
        ([ASKED, ToolCallDenied("call_1_0", "policy", "no")], "error", "add"),
        ([GuardrailTriggered("screen_output", "block", "x", "call_1_0")],
         "output_screening", "screen_output"),
        ([GuardrailTriggered("pii", "rewrite", "x", place="output")], "guardrail", "pii"),
        ([ChildRunEnded("call_1_0", "run_2", "completed", Usage())], "child_run", "run_2"),
        ([RunCancelled("caller", None, (), Usage())], "cancelled", "caller"),
        ([RunExpired("deadline", Usage())], "error", "expired"),
    ],
)  # fmt: skip
def test_each_thing_has_its_step(events: list[Event], kind: str, name: str) -> None:
    happened = [(1_000 + 5 * n, event) for n, event in enumerate(events)]

    step: TraceStep = steps_of(happened, {})[-1]

    assert (step.type, step.name) == (kind, name)
    assert step.start_ms + step.duration_ms == happened[-1][0]


@pytest.mark.parametrize(
    ("told", "detail"),
    [
        (MemorySummarized("sum_1", "1.0", "2.1", 4, "scribe/small", "They met.", Usage(7, 3)), {}),
        (MemoryTrimmed("sum_1", "1.0", "2.1", 4, "scribe/small", NO, Usage(7, 3)),
         {"error": "not now"}),
    ],
)  # fmt: skip
def test_telling_of_what_falls_out_of_sight_takes_its_time_and_its_tokens(
    told: Event, detail: dict[str, str]
) -> None:
    opening = MemorySummarizing("sum_1", "1.0", "2.1", 4, "scribe/small")

    [step] = steps_of([(1_000, opening), (1_800, told)], {})

    assert (step.type, step.name) == ("memory_summarize", "scribe/small")
    assert (step.start_ms, step.duration_ms) == (1_000, 800)
    shown = dict(step.detail)
    assert shown.pop("usage") == usage_shown(Usage(7, 3))
    assert shown == {"messages": 4, **detail}


def test_looks_at_results_and_calls_take_their_time() -> None:
    @tool
    def long() -> str:
        """Say much."""
        return "x" * 500

    trace = agent(
        calling(("long", {})), saying("short"), saying("Done."),
        tools=[long], compression={"threshold_chars": 100},
    ).run("Go.").trace  # fmt: skip

    [shortened] = trace.filter("prompt_compressed")
    assert (shortened.name, shortened.detail["chars_before"]) == ("long", 500)
