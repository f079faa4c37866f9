"""Observers: what they are told, in which order, and how little they can do to a run."""

import asyncio
import dataclasses
import io
import json
from typing import Any, get_args

import pytest

from milepost import Agent, LoggingObserver, Observer, RecordingObserver, tool
from milepost.agent import observations as seen
from milepost.agent.observations import Observation
from milepost.agent.telling import Telling
from milepost.core.errors import ProviderError
from milepost.core.model import TextDelta
from milepost.providers.scripted import Scripted, calling, saying
from milepost.tools import ToolContext
from tests.agent.making import ADD, AT_ONCE, BUSY, MODEL, add, adding, agent

NAMES = (
    "run_start", "run_end", "tool_loop_detected", "llm_start", "llm_end", "cache_hit", "usage",
    "tool_start", "tool_end", "tool_error", "policy_decision", "guardrail_triggered",
    "structured_validate", "iteration_start", "iteration_end", "tool_chunk", "batch_start",
    "batch_end", "provider_fallback", "llm_retry", "memory_trim", "session_load", "session_save",
    "memory_summarize", "entity_extraction", "kg_extraction", "error", "budget_exceeded",
    "cancelled", "model_switch", "prompt_compressed", "approval_requested", "approval_decided",
    "approval_ended",
)  # fmt: skip
SCHEMA = {
    "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
}  # fmt: skip


class Told(Observer):
    """Notes what it is told of two things, plainly."""

    def __init__(self, notes: list[str], name: str = "told") -> None:
        self._notes = notes
        self._name = name

    def on_tool_start(self, seen: seen.ToolStart) -> None:
        self._notes.append(f"{self._name} {seen.tool}")


class Awaited(Observer):
    """Notes the same, and takes a moment for it."""

    def __init__(self, notes: list[str], gate: asyncio.Event | None = None) -> None:
        self._notes = notes
        self._gate = gate

    async def on_tool_start(self, seen: seen.ToolStart) -> None:
        await (self._gate.wait() if self._gate else asyncio.sleep(0))
        self._notes.append(f"awaited {seen.tool}")


class Beside(Awaited):
    """Is not waited for."""

    blocking = False


class Broken(Observer):
    """Raises whatever it is told."""

    def on_event(self, seen: Observation) -> None:
        raise ValueError(seen.name)


class BrokenLater(Observer):
    """Raises when it is awaited."""

    async def on_tool_start(self, seen: seen.ToolStart) -> None:
        raise ValueError(seen.tool)


def noting(notes: list[str]) -> object:
    @tool
    async def note() -> str:
        """Note."""
        notes.append("the tool")
        return "noted"

    return note


def test_there_is_a_method_for_each_thing_that_may_happen() -> None:
    kinds = {kind.name: kind for kind in get_args(Observation)}

    assert kinds.keys() == {*NAMES}
    assert {name for name in vars(Observer) if name.startswith("on_")} == {
        "on_event", *(f"on_{name}" for name in NAMES),
    }  # fmt: skip


def test_each_record_names_its_run_and_that_of_a_tool_its_call() -> None:
    for kind in get_args(Observation):
        fields = {field.name for field in dataclasses.fields(kind)}
        batch = kind.name in {"batch_start", "batch_end"}
        assert ("batch_id" if batch else "run_id") in fields
        assert "call_id" in fields or not kind.name.startswith("tool_") or "tools" in fields


def test_a_run_is_told_from_its_beginning_to_its_end() -> None:
    recorded = RecordingObserver()

    result = adding(observers=[recorded], trace_metadata={"case": "7"}).run(
        "What is 17 + 25?", parent_run_id="run_above", trace_metadata={"part": "1"}
    )

    assert recorded.names == [
        "run_start",
        "iteration_start", "llm_start", "llm_end", "usage", "tool_start", "tool_end",
        "iteration_end",
        "iteration_start", "llm_start", "llm_end", "usage", "iteration_end",
        "run_end",
    ]  # fmt: skip
    assert {each.run_id for each in recorded.seen} == {result.run_id}  # type: ignore[union-attr]
    [start] = recorded.of(seen.RunStart)
    assert (start.parent_run_id, start.metadata) == ("run_above", {"case": "7", "part": "1"})
    assert (result.trace.parent_run_id, result.trace.metadata) == ("run_above", start.metadata)
    [called], [brought] = recorded.of(seen.ToolStart), recorded.of(seen.ToolEnd)
    assert (called.call_id, dict(called.arguments)) == (brought.call_id, {"a": 17, "b": 25})
    [end] = recorded.of(seen.RunEnd)
    assert (end.status, end.content, end.usage) == ("completed", "It is 42.", result.usage)
    assert recorded.of(seen.UsageSeen)[-1].total == result.usage


def test_retries_failures_and_errors_are_told() -> None:
    recorded = RecordingObserver()

    agent(BUSY, ProviderError("no"), observers=[recorded]).run("Hi.")

    assert [each for each in recorded.names if each not in {"iteration_start", "usage"}] == [
        "run_start", "llm_start", "llm_end", "llm_retry", "llm_start", "llm_end", "error",
        "run_end",
    ]  # fmt: skip
    assert [each.error and each.error.message for each in recorded.of(seen.LlmEnd)] == [
        "busy", "no",
    ]  # fmt: skip


def test_a_fallback_is_told_and_who_answers_from_then_on() -> None:
    recorded = RecordingObserver()
    asked = Agent(
        "one/model",
        fallbacks=["two/model"],
        providers={"one": Scripted([BUSY]), "two": Scripted([saying("Here.")])},
        observers=[recorded],
    )

    asked.run("Hi.")

    [fell], [switched] = recorded.of(seen.ProviderFallback), recorded.of(seen.ModelSwitch)
    assert (fell.failed, fell.chosen, fell.error.message) == ("one/model", "two/model", "busy")
    assert (switched.previous, switched.current) == ("one/model", "two/model")


def test_a_cached_answer_is_told_like_any_other_and_that_it_was_kept() -> None:
    recorded = RecordingObserver()
    asked = agent(saying("Hi."), cache_ttl_s=60, observers=[recorded])

    asked.run("Hi.")
    recorded.seen.clear()
    asked.run("Hi.")

    names = [name for name in recorded.names if name in {"llm_start", "llm_end", "cache_hit"}]
    assert names == ["llm_start", "cache_hit", "llm_end"]


def test_what_stands_in_a_calls_way_is_told() -> None:
    recorded = RecordingObserver()
    asked = agent(
        calling(("add", {"a": 1, "b": 2}), ("sub", {})),
        saying("No."),
        tools=[add],
        policy={"deny": ["add"]},
        observers=[recorded],
    )

    asked.run("Go.")

    [judged] = recorded.of(seen.PolicyDecision)
    assert (judged.tool, judged.verdict) == ("add", "deny")
    assert [each.error.code for each in recorded.of(seen.ToolError)] == ["denied", "unknown_tool"]


def test_circles_bounds_and_guardrails_are_told() -> None:
    recorded = RecordingObserver()
    asked = agent(
        *[ADD] * 5,
        tools=[add],
        loop_detection={},
        limits={**AT_ONCE, "max_model_calls": 4},
        guardrails={"tool_results": [{"type": "regex", "pattern": "42", "action": "warn"}]},
        observers=[recorded],
    )

    asked.run("Go.")

    assert recorded.of(seen.ToolLoopDetected)[0].tools == ("add",)
    assert [each.limit for each in recorded.of(seen.BudgetExceeded)] == ["max_model_calls"]
    assert recorded.of(seen.GuardrailTriggered)[0].place == "tool_results"


def test_structured_answers_and_shortened_results_are_told() -> None:
    @tool
    def long() -> str:
        """Say much."""
        return "x" * 500

    recorded = RecordingObserver()
    asked = agent(
        calling(("long", {})), saying("short"), saying("{}"), saying('{"n": 1}'),
        tools=[long],
        compression={"threshold_chars": 100},
        response_format=SCHEMA,
        observers=[recorded],
    )  # fmt: skip

    asked.run("Go.")

    [shortened] = recorded.of(seen.PromptCompressed)
    assert (shortened.chars_before, shortened.fallback) == (500, None)
    judged = recorded.of(seen.StructuredValidate)
    assert [each.error is None for each in judged] == [False, True]
    assert [each.attempt for each in judged] == [1, 2]


def test_what_was_said_before_is_told_as_a_session_that_was_loaded() -> None:
    recorded = RecordingObserver()
    asked = agent(saying("One."), saying("Two."), observers=[recorded])

    asked.run([*asked.run("Hi.").messages, "And?"])

    assert [each.messages for each in recorded.of(seen.SessionLoad)] == [2]


def test_what_a_tool_says_while_it_runs_is_told_in_order() -> None:
    @tool
    def count(context: ToolContext) -> str:
        """Count."""
        for n in range(50):
            context.progress(f"{n} ")
        return "counted"

    recorded = RecordingObserver()

    agent(
        calling(("count", {})), saying("Done."), tools=[count], observers=[recorded]
    ).run("Go.")  # fmt: skip

    chunks = recorded.of(seen.ToolChunk)
    assert "".join(each.chunk for each in chunks) == "".join(f"{n} " for n in range(50))
    assert {(each.call_id, each.tool) for each in chunks} == {("call_1_0", "count")}
    names = recorded.names
    assert names.index("tool_start") < names.index("tool_chunk") < names.index("tool_end")


def test_a_batch_is_told_with_its_id_and_so_are_its_runs() -> None:
    recorded = RecordingObserver()

    agent(saying("One."), BUSY, BUSY, BUSY, observers=[recorded]).batch(
        ["a", "b"], max_concurrency=1
    )

    [start], [end] = recorded.of(seen.BatchStart), recorded.of(seen.BatchEnd)
    assert (start.total, start.max_concurrency) == (2, 1)
    assert (end.batch_id, end.total, end.completed) == (start.batch_id, 2, 1)
    assert {each.batch_id for each in recorded.of(seen.RunStart)} == {start.batch_id}


def test_the_end_of_a_batch_that_is_broken_off_is_told() -> None:
    def enough(over: int, total: int) -> None:
        raise LookupError(f"{over} of {total}")

    recorded = RecordingObserver()
    asked = agent(saying("One."), saying("Two."), observers=[recorded])

    with pytest.raises(LookupError):
        asked.batch(["a", "b"], max_concurrency=1, on_progress=enough)

    assert (recorded.names[0], recorded.names[-1]) == ("batch_start", "batch_end")
    [end] = recorded.of(seen.BatchEnd)
    assert (end.total, end.completed) == (2, 1)


async def test_the_end_of_a_run_that_is_cancelled_is_told() -> None:
    reached = asyncio.Event()

    async def hang(_: object) -> str:
        reached.set()
        await asyncio.Event().wait()
        return "never"

    recorded = RecordingObserver()
    asked = Agent(MODEL, providers={"test": hang}, observers=[recorded])
    run = asyncio.create_task(asked.arun("Hi."))
    await reached.wait()

    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert recorded.names[-2:] == ["cancelled", "run_end"]
    assert recorded.of(seen.RunEnd)[0].status == "cancelled"


def test_what_observers_raise_is_counted_and_goes_no_further() -> None:
    recorded = RecordingObserver()

    result = adding(observers=[Broken(), BrokenLater(), recorded]).run("Go.")

    assert result.content == "It is 42."
    assert result.observer_failures == len(recorded.seen) + 1


@dataclasses.dataclass
class Counting(Observer):
    """Equals whoever has counted as far, and has no hash."""

    starts: int = 0

    def on_run_start(self, _: seen.RunStart) -> None:
        self.starts += 1
        raise ValueError("I count no further")


def test_each_observer_that_equals_another_is_told_of_where_it_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    result = adding(observers=[Counting(), Counting()]).run("Go.")

    assert (result.content, result.observer_failures) == ("It is 42.", 2)
    assert len([each for each in caplog.messages if "an observer failed" in each]) == 2


class WaitsInVain(Observer):
    """Waits for what somebody else has cancelled."""

    async def on_tool_start(self, seen: seen.ToolStart) -> None:
        gone = asyncio.create_task(asyncio.sleep(60), name=seen.tool)
        gone.cancel()
        await gone


async def test_what_was_cancelled_within_an_observer_does_not_cancel_the_run() -> None:
    result = await adding(observers=[WaitsInVain()]).arun("Go.")

    assert (result.content, result.observer_failures) == ("It is 42.", 1)


async def test_a_run_that_is_cancelled_waits_for_no_observer_that_hangs() -> None:
    notes: list[str] = []
    gate = asyncio.Event()
    run = asyncio.create_task(adding(observers=[Awaited(notes, gate)]).arun("Go."))
    await asyncio.sleep(0)

    run.cancel()
    gate.set()

    with pytest.raises(asyncio.CancelledError):
        await run


def test_all_are_told_the_plain_ones_first() -> None:
    notes: list[str] = []
    asked = agent(
        calling(("note", {})),
        saying("Done."),
        tools=[noting(notes)],
        observers=[Awaited(notes), Told(notes, "one"), Told(notes, "two")],
    )

    asked.run("Go.")

    assert notes == ["one note", "two note", "awaited note", "the tool"]


async def test_a_run_does_not_wait_for_who_does_not_block() -> None:
    notes: list[str] = []
    gate = asyncio.Event()

    @tool
    async def release() -> str:
        """Let the observer go on: it would wait for ever if the run waited for it."""
        notes.append("the tool")
        gate.set()
        return "released"

    asked = agent(
        calling(("release", {})), saying("Done."), tools=[release], observers=[Beside(notes, gate)]
    )

    await asyncio.wait_for(asked.arun("Go."), 10)

    assert notes == ["the tool", "awaited release"]


def test_plain_and_async_ones_serve_a_run_that_is_waited_for_too() -> None:
    notes: list[str] = []

    adding(observers=[Awaited(notes), Beside(notes)]).run("Go.")

    assert notes == ["awaited add"] * 2


def test_lines_of_json_are_written_one_a_record() -> None:
    written = io.StringIO()

    result = adding(observers=[LoggingObserver(written)]).run("What is 17 + 25?")

    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [line["event"] for line in lines][:3] == ["run_start", "iteration_start", "llm_start"]
    assert {line["run_id"] for line in lines} == {result.run_id}
    assert all("time" in line for line in lines)


@pytest.mark.parametrize("given", [Observer, print, object()])
def test_what_is_no_observer_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="is no observer; give an instance of a class from"):
        agent(observers=[given])


def test_a_method_that_nobody_would_call_is_refused() -> None:
    class Misspelt(Observer):
        def on_tool_begin(self, seen: seen.ToolStart) -> None:
            """Never hears of anything."""

    with pytest.raises(TypeError, match=r"on_tool_begin is no method .* on_tool_\w+ meant"):
        agent(observers=[Misspelt()])


def test_a_message_that_breaks_off_is_told_as_one_that_failed() -> None:
    recorded = RecordingObserver()

    agent([TextDelta("Well, "), BUSY], saying("Here."), observers=[recorded]).run("Hi.")

    first, second = recorded.of(seen.LlmEnd)
    assert (first.content, first.error is not None) == ("", True)
    assert (second.content, second.error) == ("Here.", None)


@pytest.mark.parametrize("kind", [Awaited, Beside])
async def test_nobody_is_waited_for_without_end(kind: type[Awaited]) -> None:
    telling = Telling([kind([], asyncio.Event())], "run_1", blocking_s=0.01, left_s=0)

    await telling.tell([seen.ToolStart("run_1", "call_1_0", "add", {}, 1)])
    await telling.end()

    assert telling.failures == 1


async def test_what_expires_is_told_with_its_limit() -> None:
    async def hang(_: object) -> str:
        await asyncio.Event().wait()
        return "never"

    recorded = RecordingObserver()
    asked = Agent(MODEL, providers={"test": hang}, observers=[recorded])

    await asked.arun("Hi.", deadline_s=0.01)

    [end] = recorded.of(seen.RunEnd)
    assert (end.status, end.finish_reason) == ("expired", "deadline")


def test_what_a_look_at_a_call_takes_is_told_as_usage_of_the_model_that_looked() -> None:
    recorded = RecordingObserver()
    asked = Agent(
        "one/model",
        providers={
            "one": Scripted([ADD, saying("42")]),
            "judge": Scripted([saying('{"coherent": true, "reason": "yes"}')]),
        },
        tools=[add],
        guardrails={"coherence": {"model": "judge/small"}},
        observers=[recorded],
    )

    asked.run("What is 17 + 25?")

    told = [each.model for each in recorded.of(seen.UsageSeen)]
    assert told == ["one/model", "judge/small", "one/model"]
