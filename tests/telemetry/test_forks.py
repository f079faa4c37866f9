"""The trace of a fork: its own, with a link to where it was forked off."""

from milepost.core.events import (
    Event,
    ForkedCall,
    ForkPoint,
    InputMessage,
    Output,
    RunCompleted,
    RunForked,
    RunQueued,
    RunResumed,
    RunStarted,
    RunWaiting,
    ToolCallCompleted,
    ToolCallStarted,
)
from milepost.core.messages import ToolCall
from milepost.core.spans import Span
from milepost.core.usage import Usage
from milepost.telemetry.otlp_json import otlp_json
from milepost.telemetry.spans import SpanFold

TRACE, SPAN = "a" * 32, "b" * 16
CALL = ToolCall("call_1_0", "pay", {"to": 1})
QUEUED = RunQueued(
    "clerk", "agt_1", 1, "ses_2", (InputMessage("user", "Go on."),),
    forked_from=ForkPoint("run_0", 7),
)  # fmt: skip
FORKED = RunForked(
    "run_0", 7, (), 1, step_open=True, replied=True, calls=(ForkedCall(CALL, "requested"),),
    trace_parent=f"00-{TRACE}-{SPAN}-01",
)  # fmt: skip
ENDED = RunCompleted(Output("Done."), Usage())


def spans_of(*events: Event) -> list[Span]:
    fold = SpanFold("run_1", None, provider="openai")
    return [
        span
        for seq, event in enumerate((QUEUED, FORKED, *events), start=1)
        for span in fold.feed(seq, seq, event)
    ]


def test_a_fork_says_which_run_it_goes_on_from() -> None:
    [span] = spans_of(RunStarted(1, "w1"), ENDED)
    assert span.attributes["milepost.forked_from.run_id"] == "run_0"
    assert span.attributes["milepost.forked_from.seq"] == "7"
    assert span.trace_id != TRACE


def test_the_first_span_of_a_fork_links_to_the_other_runs_trace() -> None:
    first, second = spans_of(
        RunStarted(1, "w1"), RunWaiting("approval", ()), RunResumed(2, "w2", "approval"), ENDED
    )
    [batch] = otlp_json([first, second], service_name="desk")["resourceSpans"]
    one, other = batch["scopeSpans"][0]["spans"]
    assert [(link["traceId"], link["spanId"]) for link in one["links"]] == [(TRACE, SPAN)]
    assert [link["spanId"] for link in other["links"]] == [first.span_id]
    assert not any("linked" in each["key"] for each in one["attributes"])


def test_a_call_that_the_other_runs_model_asked_for_has_its_span_where_it_is_made() -> None:
    made, _ = spans_of(
        RunStarted(1, "w1"),
        ToolCallStarted("call_1_0", 1, "once"),
        ToolCallCompleted("call_1_0", "done", 1),
        ENDED,
    )
    assert (made.kind, made.tool, made.seq) == ("execute_tool", "pay", 4)
