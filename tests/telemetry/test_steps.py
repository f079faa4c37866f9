"""The steps of a trace beside calls of models and tools: what they are, and below what."""

from collections.abc import Iterable
from typing import get_args

import pytest

from milepost.core.events import (
    BudgetExceeded,
    BudgetWarning,
    CacheHit,
    ChildRunEnded,
    ChildRunStarted,
    Event,
    Failure,
    GuardrailTriggered,
    InputMessage,
    InputScreened,
    InputScreening,
    LoopDetected,
    MessageStarted,
    ModelFellBack,
    ModelRetried,
    Parent,
    PolicyDecided,
    RunQueued,
    RunResumed,
    RunStarted,
    RunWaiting,
    StructuredRetried,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallScreened,
    ToolCallScreening,
    ToolCallStarted,
)
from milepost.core.spans import Span, SpanKind
from milepost.core.usage import Usage
from milepost.telemetry.spans import SpanFold
from tests.telemetry.run_logs import (
    BROKEN,
    CIRCLE,
    MODEL,
    RUN_ID,
    Logged,
    LogWriter,
    asking,
    begun,
    ended,
    replied,
    requested,
)

CALL = "call_1_0"
DAY_MS = 86_400_000


def spans_of(log: Iterable[Logged], *, content: bool = False) -> list[Span]:
    fold = SpanFold(RUN_ID, None, provider="openai", content=content)
    return [span for logged in log for span in fold.feed(*logged)]


def kinds_in(log: LogWriter) -> list[str]:
    return [span.kind for span in spans_of(log.entries)]


def the(kind: SpanKind, log: LogWriter, *, content: bool = False) -> Span:
    [span] = (span for span in spans_of(log.entries, content=content) if span.kind == kind)
    return span


def test_a_run_in_which_nothing_of_it_happens_has_none_of_these_steps() -> None:
    log = asking().write(ToolCallStarted(CALL, 1, "read"), ToolCallCompleted(CALL, 42, 1))

    assert kinds_in(ended(log)) == ["chat", "execute_tool", "invoke_agent"]


def test_a_look_at_the_input_takes_from_its_beginning_to_its_end() -> None:
    log = begun().write(InputScreening(), after_ms=5)
    log.write(InputScreened(usage=Usage(input_tokens=7, output_tokens=1)), after_ms=30)

    span = the("guardrail", log)

    assert (span.seq, span.name, span.tool) == (3, "guardrail input", None)
    assert (span.start_ms, span.end_ms, span.status) == (3_005, 3_035, "ok")
    assert span.attributes == {
        "milepost.guardrail.place": "input",
        "milepost.guardrail.blocked": False,
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 1,
    }


def test_a_look_at_a_call_names_the_call_and_says_if_it_blocked_it() -> None:
    log = asking().write(ToolCallScreening(CALL))
    log.write(ToolCallScreened(CALL, blocked="nobody asked for it"), after_ms=40)

    span = the("guardrail", log)

    assert (span.name, span.tool) == ("guardrail tool_arguments add", "add")
    assert span.end_ms - span.start_ms == 40
    assert span.attributes == {
        "milepost.guardrail.place": "tool_arguments",
        "gen_ai.tool.call.id": CALL,
        "milepost.guardrail.blocked": True,
    }


def test_a_look_that_was_lost_to_a_crash_and_its_repetition_are_two_steps() -> None:
    log = begun().write(InputScreening()).write(RunResumed(2, "w2", "crash"), after_ms=9_000)
    log.write(InputScreening(), after_ms=5).write(InputScreened(), after_ms=30)

    lost, again = (span for span in spans_of(log.entries) if span.kind == "guardrail")

    assert (lost.status, lost.error, lost.end_ms) == ("error", "its worker died", 3_000)
    assert (again.status, again.end_ms - again.start_ms) == ("ok", 30)


def test_a_guardrail_that_stepped_in_stands_below_the_look_that_it_was_part_of() -> None:
    log = begun().write(InputScreening())
    log.write(GuardrailTriggered("pii", "rewrote", "an email", place="input"), InputScreened())
    log.write(MessageStarted("msg_1", MODEL), replied(), requested(), ToolCallScreening(CALL))
    log.write(GuardrailTriggered("coherence", "blocked", "why", CALL, "tool_arguments"))
    log.write(ToolCallScreened(CALL, blocked="why"))

    stepped_in, look, refused, second = (
        span for span in spans_of(log.entries) if span.kind == "guardrail"
    )

    assert (stepped_in.name, refused.name) == ("guardrail pii", "guardrail coherence add")
    assert (stepped_in.parent_id, refused.parent_id) == (look.span_id, second.span_id)
    assert stepped_in.attributes["milepost.guardrail.action"] == "rewrote"


def test_a_result_that_was_withheld_is_a_step_below_its_call() -> None:
    log = asking().write(ToolCallStarted(CALL, 1, "read"))
    log.write(GuardrailTriggered("screen_output", "blocked", "an order", CALL))
    log.write(ToolCallCompleted(CALL, "[blocked]", 1))

    withheld, call = the("guardrail", log), the("execute_tool", log)

    assert withheld.parent_id == call.span_id
    assert withheld.attributes["milepost.guardrail.place"] == "tool_results"


MOMENTS: list[tuple[Event, SpanKind, str]] = [
    (CacheHit("msg_1", 4.5), "cache_hit", "cache_hit message"),
    (PolicyDecided(CALL, "ask", "ask add"), "policy", "policy ask add"),
    (ToolCallDenied(CALL, "policy", "no"), "denial", "denial add"),
    (CIRCLE, "loop", "loop repeat"),
    (BudgetWarning("bud_1", "max_tokens", 8, 10), "budget", "budget warning"),
    (BudgetExceeded("run", "max_tokens", 10, 10), "budget", "budget exceeded"),
    (ModelFellBack("msg_1", MODEL, "b/c", BROKEN), "fallback", "fallback b/c"),
    (
        StructuredRetried("msg_1", 1, Failure("invalid_answer", "n is no number"), "Again."),
        "structured_retry",
        "structured_retry answer",
    ),
]


@pytest.mark.parametrize(("event", "kind", "name"), MOMENTS, ids=lambda part: str(part)[:20])
def test_what_happens_at_one_moment_is_a_step_without_a_duration(
    event: Event, kind: SpanKind, name: str
) -> None:
    log = asking().write(event, after_ms=7)

    span = the(kind, log)

    assert (span.seq, span.name) == (len(log.entries), name)
    assert span.start_ms == span.end_ms == log.now_ms


def test_a_step_is_told_as_soon_as_it_has_happened() -> None:
    log = asking()
    fold = SpanFold(RUN_ID, None, provider="openai")
    for logged in log.entries:
        fold.feed(*logged)

    [span] = fold.feed(7, log.now_ms, CIRCLE)

    assert span.kind == "loop"
    assert span.attributes == {
        "milepost.loop.pattern": "repeat",
        "milepost.loop.tools": ("add",),
        "milepost.loop.count": 3,
        "milepost.loop.action": "warn",
    }


def test_an_answer_that_did_not_fit_is_a_step_that_carries_the_error() -> None:
    wrong = StructuredRetried("msg_1", 1, Failure("invalid_answer", "n is no number"), "Again.")

    span = the("structured_retry", asking().write(wrong))

    assert (span.status, span.error) == ("error", "n is no number")
    assert span.attributes["error.type"] == "invalid_answer"
    assert span.attributes["milepost.structured_retry.attempt"] == 1


def test_a_fallback_says_which_model_failed_and_why() -> None:
    span = the("fallback", asking().write(ModelFellBack("msg_1", "a/b", "c/d", BROKEN)))

    assert (span.status, span.error) == ("error", "the vendor is out of office")
    assert span.attributes["milepost.fallback.failed"] == "a/b"
    assert span.attributes["milepost.fallback.chosen"] == "c/d"
    assert span.model == "c/d"


def test_a_budget_says_what_of_it_is_spent() -> None:
    span = the("budget", asking().write(BudgetExceeded("bud_1", "max_tokens", 12, 10)))

    assert span.attributes == {
        "milepost.budget.id": "bud_1",
        "milepost.budget.limit": "max_tokens",
        "milepost.budget.spent": 12,
        "milepost.budget.of": 10,
    }


def test_a_reply_from_the_cache_is_a_step_below_its_model_call() -> None:
    log = begun().write(MessageStarted("msg_1", MODEL), CacheHit("msg_1", 4.0), replied())

    assert the("cache_hit", log).parent_id == the("chat", log).span_id


def test_a_reply_from_the_cache_shows_that_the_wait_before_it_is_over() -> None:
    log = begun().write(ModelRetried("msg_2", 2, 1_000, BROKEN), MessageStarted("msg_2", MODEL))
    log.write(CacheHit("msg_2", 4.0), after_ms=999).write(replied("msg_2"), after_ms=1)

    hit, chat = the("cache_hit", log), the("chat", log)

    assert hit.start_ms == chat.start_ms == 3_999


def test_a_result_from_the_cache_is_a_step_below_its_tool_call() -> None:
    log = asking().write(ToolCallStarted(CALL, 1, "read"))
    log.write(ToolCallCompleted(CALL, 42, 0, cached=True))

    hit, call = the("cache_hit", log), the("execute_tool", log)

    assert (hit.parent_id, hit.tool) == (call.span_id, "add")
    assert call.attributes["milepost.cache_hit"] is True


def test_a_tool_call_says_what_was_mended_and_how_much_it_showed() -> None:
    log = asking().write(ToolCallStarted(CALL, 1, "read", {"a": 1}, ('a: "1" became 1',)))
    log.write(ToolCallCompleted(CALL, "xyz", 0, chunks=3))

    told = the("execute_tool", log).attributes

    assert told["milepost.tool.coerced"] == 1
    assert told["milepost.tool.chunks"] == 3
    assert told["milepost.tool.parameters"] == ("a",)


def test_the_parameters_that_a_call_names_are_bounded() -> None:
    many = {f"{number:03}" + "x" * 100: 1 for number in range(100)}
    log = asking().write(ToolCallStarted(CALL, 1, "read", many), ToolCallCompleted(CALL, 1, 1))

    told = the("execute_tool", log).attributes["milepost.tool.parameters"]

    assert isinstance(told, tuple)
    assert (len(told), max(map(len, told))) == (32, 64)


@pytest.mark.parametrize("content", [False, True])
def test_what_somebody_said_of_a_call_is_there_for_those_who_opted_in(content: bool) -> None:
    log = asking().write(GuardrailTriggered("coherence", "blocked", "said aloud", CALL))
    log.write(ToolCallDenied(CALL, "ann", "said aloud"))

    told = [span for span in spans_of(log.entries, content=content) if span.kind != "chat"]

    assert [("said aloud" in str(span)) for span in told] == [content, content]


def test_a_call_of_an_agent_lasts_until_its_answer_is_read_across_all_waits() -> None:
    log = asking().write(requested("call_1_1", "agent:scribe", "agent"))
    log.write(ToolCallStarted("call_1_1", 1, "idempotent"), after_ms=1)
    log.write(ChildRunStarted("call_1_1", "run_2", "scribe"), after_ms=1)
    log.write(RunWaiting("child_run", ("run_2",)), after_ms=1)
    log.write(RunResumed(2, "w2", "child_run"), after_ms=DAY_MS)
    log.write(ChildRunEnded("call_1_1", "run_2", "completed", Usage()), after_ms=1)
    log.write(ToolCallCompleted("call_1_1", "done", 0))

    span = the("execute_tool", log)

    assert (span.tool, span.status) == ("agent:scribe", "ok")
    assert span.end_ms - span.start_ms == DAY_MS + 3
    assert span.attributes["milepost.child_run.id"] == "run_2"
    assert span.attributes["milepost.child_run.status"] == "completed"


def test_a_child_that_was_over_at_once_is_named_all_the_same() -> None:
    log = asking().write(requested("call_1_1", "agent:scribe", "agent"))
    log.write(ToolCallStarted("call_1_1", 1, "idempotent"))
    log.write(ChildRunEnded("call_1_1", "run_2", "completed", Usage()))
    log.write(ToolCallCompleted("call_1_1", "done", 0))

    assert the("execute_tool", log).attributes["milepost.child_run.id"] == "run_2"


def test_what_the_client_runs_is_not_lost_with_a_worker() -> None:
    log = asking().write(requested("call_1_1", "ask_user", "client"))
    log.write(ToolCallStarted("call_1_1", 1, "once"))
    log.write(RunResumed(2, "w2", "crash"), after_ms=20_000)
    log.write(ToolCallCompleted("call_1_1", "yes", 0), after_ms=5_000)

    span = the("execute_tool", log)

    assert (span.status, span.end_ms - span.start_ms) == ("ok", 25_000)


def test_a_call_that_dies_before_its_run_was_made_is_lost() -> None:
    log = asking().write(requested("call_1_1", "agent:scribe", "agent"))
    log.write(ToolCallStarted("call_1_1", 1, "idempotent"))
    log.write(RunResumed(2, "w2", "crash"), after_ms=20_000)

    span = the("execute_tool", ended(log))

    assert (span.status, span.end_ms) == ("error", span.start_ms)


def test_a_run_that_another_one_started_says_by_which_call() -> None:
    queued = RunQueued(
        "scribe", "agt_2", 1, "ses_2", (InputMessage("user", "Write."),),
        parent=Parent("run_1", "call_1_0", 1),
    )  # fmt: skip
    log = LogWriter().write(queued, RunStarted(1, "w1"))

    told = the("invoke_agent", ended(log)).attributes

    assert told["milepost.parent_run_id"] == "run_1"
    assert told["milepost.parent_call_id"] == "call_1_0"


def test_a_run_s_labels_are_on_its_stretches_and_nowhere_else() -> None:
    fold = SpanFold(RUN_ID, None, provider="openai", metadata={"team": "red"})

    chat, agent = (span for logged in ended(asking()).entries for span in fold.feed(*logged))

    assert agent.attributes["milepost.metadata.team"] == "red"
    assert "milepost.metadata.team" not in chat.attributes


def test_every_kind_of_step_is_made_by_some_event() -> None:
    log = ended(begun().write(InputScreening(), InputScreened()))
    logs = [log, *(asking().write(event) for event, _, _ in MOMENTS)]
    log = asking().write(ToolCallStarted(CALL, 1, "read"), ToolCallCompleted(CALL, 1, 1))

    made = {kind for each in (*logs, log) for kind in kinds_in(each)}

    assert made == set(get_args(SpanKind))


def test_a_circle_is_told_of_with_its_tools() -> None:
    circle = LoopDetected("ping_pong", ("add", "sub"), 4, "stop", "Enough.")

    assert the("loop", asking().write(circle)).attributes["milepost.loop.tools"] == ("add", "sub")
