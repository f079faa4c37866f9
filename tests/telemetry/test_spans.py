"""Spans: when they begin and end, below what, and that a crash changes none of it."""

import hashlib
from collections.abc import Iterable
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.events import (
    ApprovalDecided,
    CacheHit,
    Failure,
    GuardrailTriggered,
    InputScreening,
    LoopDetected,
    MessageAborted,
    MessageStarted,
    ModelRetried,
    Output,
    PolicyDecided,
    ResumeWhy,
    RunCancelled,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunIncomplete,
    RunResumed,
    RunRetrying,
    RunWaiting,
    StepStarted,
    Terminal,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallScreening,
    ToolCallStarted,
    ToolResultCompressed,
    ToolResultCompressing,
)
from milepost.core.spans import Span
from milepost.core.usage import Usage
from milepost.telemetry.spans import SpanFold
from tests.telemetry.run_logs import (
    BROKEN,
    ELSEWHERE,
    MODEL,
    RUN_ID,
    Logged,
    LogWriter,
    asking,
    begun,
    claims_in,
    ended,
    random_logs,
    replied,
    requested,
)

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OPENING = (
    MessageStarted | ToolCallStarted | ToolCallScreening | InputScreening | ToolCallDenied
    | CacheHit | PolicyDecided | GuardrailTriggered | LoopDetected
)  # fmt: skip
CANCELLED = Failure("cancelled", "the run was ended while this tool ran")


def new_fold(trace_parent: str | None = None, *, content: bool = False) -> SpanFold:
    return SpanFold(RUN_ID, trace_parent, provider="openai", content=content)


def spans_of(log: Iterable[Logged], fold: SpanFold | None = None) -> list[Span]:
    fold = fold or new_fold()
    return [span for logged in log for span in fold.feed(*logged)]


def the(kind: str, log: LogWriter, fold: SpanFold | None = None) -> Span:
    [span] = (span for span in spans_of(log.entries, fold) if span.kind == kind)
    return span


def derived(seq: int) -> str:
    return hashlib.sha256(f"{RUN_ID}:{seq}".encode()).digest()[:8].hex()


def test_a_model_call_begins_with_its_message_and_ends_with_its_reply() -> None:
    log = asking()

    span = the("chat", log)

    assert (span.seq, span.name, span.model) == (4, "chat gpt-5-mini", MODEL)
    assert (span.start_ms, span.end_ms) == (3_005, 3_305)
    assert (span.status, span.error) == ("ok", None)


def test_a_model_call_says_what_was_asked_what_answered_and_what_it_took() -> None:
    log = asking()

    span = the("chat", log)

    assert span.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5-mini",
        "gen_ai.response.model": "gpt-5-mini-2026",
        "gen_ai.response.id": "resp_1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.time_to_first_chunk": 0.12,
        "gen_ai.usage.input_tokens": 50,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 8,
    }


def test_a_model_call_that_broke_carries_its_error() -> None:
    log = begun().write(MessageStarted("msg_1", MODEL))
    log.write(MessageAborted("msg_1", "broken", BROKEN), after_ms=40)

    span = the("chat", log)

    assert (span.status, span.error) == ("error", "the vendor is out of office")
    assert span.attributes["error.type"] == "provider_unavailable"


def test_a_model_call_that_was_stopped_is_cancelled_and_no_error() -> None:
    log = begun().write(MessageStarted("msg_1", MODEL))
    log.write(MessageAborted("msg_1", "the run was ended"))

    span = the("chat", log)

    assert (span.status, span.error) == ("cancelled", None)


def test_the_wait_before_a_retry_is_not_part_of_the_model_call() -> None:
    log = begun().write(ModelRetried("msg_2", 2, 1_500, BROKEN), MessageStarted("msg_2", MODEL))
    log.write(replied("msg_2"), after_ms=1_800)

    span = the("chat", log)

    assert (span.start_ms, span.end_ms) == (4_500, 4_800)


def test_a_model_call_given_up_while_it_waits_for_its_retry_takes_no_time() -> None:
    log = begun().write(ModelRetried("msg_2", 2, 60_000, BROKEN), MessageStarted("msg_2", MODEL))
    log.write(MessageAborted("msg_2", "the run was ended"), after_ms=100)

    span = the("chat", log)

    assert (span.start_ms, span.end_ms) == (3_100, 3_100)


def test_a_reply_from_the_cache_says_so() -> None:
    log = begun().write(MessageStarted("msg_1", MODEL), CacheHit("msg_1", 4.0), replied())

    assert the("chat", log).attributes["milepost.cache_hit"] is True


def test_a_tool_call_begins_when_the_tool_starts_and_not_when_it_was_asked_for() -> None:
    log = asking().write(ToolCallStarted("call_1_0", 1, "once"), after_ms=10)
    log.write(ToolCallCompleted("call_1_0", 42, 100), after_ms=100)

    span = the("execute_tool", log)

    assert (span.seq, span.name, span.tool) == (7, "execute_tool add", "add")
    assert (span.start_ms, span.end_ms, span.status) == (3_315, 3_415, "ok")
    assert span.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": "call_1_0",
        "gen_ai.tool.type": "function",
        "milepost.tool.attempt": 1,
        "milepost.tool.parameters": ("a", "b"),
    }


def test_a_tool_call_that_failed_carries_its_error() -> None:
    log = asking().write(ToolCallStarted("call_1_0", 1, "once"))
    log.write(ToolCallFailed("call_1_0", Failure("timeout", "no answer within 60 s"), 60_000))

    span = the("execute_tool", log)

    assert (span.status, span.error) == ("error", "no answer within 60 s")
    assert span.attributes["error.type"] == "timeout"


def test_a_tool_call_that_was_stopped_is_cancelled_and_no_error() -> None:
    log = asking().write(ToolCallStarted("call_1_0", 1, "once"))
    log.write(ToolCallFailed("call_1_0", CANCELLED))

    span = the("execute_tool", log)

    assert (span.status, span.error) == ("cancelled", None)


def summarising() -> LogWriter:
    """Return the log of a run in which a long result is being made shorter."""
    log = asking().write(ToolCallStarted("call_1_0", 1, "read"))
    log.write(ToolCallCompleted("call_1_0", "long", 5), after_ms=5)
    return log.write(ToolResultCompressing("call_1_0", "small/s-1", 4))


def summaries(log: LogWriter) -> list[Span]:
    return [span for span in spans_of(log.entries) if span.model == "small/s-1"]


@pytest.mark.parametrize(("fallback", "status"), [(None, "ok"), ("ProviderError", "error")])
def test_a_result_made_shorter_is_a_chat_with_the_model_that_did_it(
    fallback: str | None, status: str
) -> None:
    spent = Usage(input_tokens=9, output_tokens=2)
    told = ToolResultCompressed("call_1_0", "short", 4, "small/s-1", spent, fallback)

    [span] = summaries(summarising().write(told, after_ms=70))

    assert (span.kind, span.name, span.status) == ("chat", "chat s-1", status)
    assert span.end_ms - span.start_ms == 70
    assert span.attributes["gen_ai.usage.input_tokens"] == 9


def test_a_summary_lost_to_a_crash_and_its_repetition_are_two_spans() -> None:
    log = summarising().write(RunResumed(2, "w2", "crash"), after_ms=1_000)
    log.write(ToolResultCompressing("call_1_0", "small/s-1", 4), after_ms=5)
    log.write(ToolResultCompressed("call_1_0", "short", 4, "small/s-1", Usage()), after_ms=70)

    lost, again = summaries(log)

    assert (lost.status, lost.error) == ("error", "its worker died")
    assert (again.status, again.end_ms - again.start_ms) == ("ok", 70)


def test_a_summary_in_hand_when_the_run_ends_ends_with_it() -> None:
    [span] = summaries(ended(summarising()))

    assert span.status == "cancelled"


def test_a_call_that_never_ran_is_none_that_was_executed() -> None:
    log = asking().write(requested("call_1_1", "rm"))
    log.write(ToolCallDenied("call_1_0", "policy", "no"), ToolCallFailed("call_1_1", BROKEN))

    kinds = [span.kind for span in spans_of(ended(log).entries)]

    assert kinds == ["chat", "denial", "invoke_agent"]


def test_calls_that_run_at_once_end_each_on_its_own() -> None:
    log = asking().write(requested("call_1_1"))
    log.write(ToolCallStarted("call_1_0", 1, "read"), ToolCallStarted("call_1_1", 1, "read"))
    log.write(ToolCallCompleted("call_1_1", 1, 10), after_ms=10)
    log.write(ToolCallCompleted("call_1_0", 1, 30), after_ms=20)

    _, second, first = spans_of(log.entries)

    assert (first.seq, first.end_ms - first.start_ms) == (8, 30)
    assert (second.seq, second.end_ms - second.start_ms) == (9, 10)


def test_the_agent_is_invoked_from_the_claim_on_and_not_while_it_is_queued() -> None:
    log = ended(asking())

    span = the("invoke_agent", log)

    assert (span.seq, span.name) == (2, "invoke_agent clerk")
    assert (span.start_ms, span.end_ms) == (3_000, 3_306)
    assert span.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "openai",
        "gen_ai.agent.name": "clerk",
        "gen_ai.agent.id": "agt_1",
        "gen_ai.agent.version": "3",
        "gen_ai.conversation.id": "ses_1",
        "gen_ai.usage.input_tokens": 50,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 8,
        "milepost.run.status": "completed",
        "milepost.run.reason": "stop",
    }


@pytest.mark.parametrize(
    ("event", "run_status", "status", "error_type"),
    [
        (RunIncomplete("max_steps", Output(""), Usage()), "incomplete", "ok", None),
        (RunFailed(BROKEN, Usage()), "failed", "error", "provider_unavailable"),
        (RunCancelled("user", None, (), Usage()), "cancelled", "cancelled", None),
        (RunExpired("deadline", Usage()), "expired", "error", "expired"),
    ],
)
def test_the_last_span_of_the_agent_ends_as_the_run_does(
    event: Terminal, run_status: str, status: str, error_type: str | None
) -> None:
    log = begun().write(event)

    span = the("invoke_agent", log)

    assert span.attributes["milepost.run.status"] == run_status
    assert span.status == status
    assert span.attributes.get("error.type") == error_type


def test_what_is_in_hand_when_the_run_ends_ends_with_it() -> None:
    log = asking().write(ToolCallStarted("call_1_0", 1, "once"))
    log.write(MessageStarted("msg_2", MODEL))
    log.write(RunCancelled("user", None, (), Usage()), after_ms=50)

    _, tool, chat, agent = spans_of(log.entries)

    assert [span.kind for span in (tool, chat, agent)] == ["execute_tool", "chat", "invoke_agent"]
    assert {span.status for span in (tool, chat, agent)} == {"cancelled"}
    assert {span.end_ms for span in (tool, chat, agent)} == {log.now_ms}


def test_a_run_that_nobody_took_has_no_span() -> None:
    log = LogWriter(begun().entries[:1]).write(RunCancelled("user", None, (), Usage()))

    assert spans_of(log.entries) == []


DAYS_MS = 3 * 86_400_000


@pytest.mark.parametrize("leaving", [RunWaiting("approval", ("apr_1",)), RunRetrying("drain")])
def test_a_run_that_waits_for_days_is_two_short_spans_and_not_a_long_one(
    leaving: RunWaiting | RunRetrying,
) -> None:
    log = asking().write(leaving, after_ms=5)
    log.write(RunResumed(2, "w2", "approval"), after_ms=DAYS_MS)
    log.write(RunCompleted(Output("42"), Usage()), after_ms=20)

    before, after = (span for span in spans_of(log.entries) if span.kind == "invoke_agent")

    assert before.end_ms - before.start_ms == 310
    assert after.end_ms - after.start_ms == 20
    assert after.start_ms - before.end_ms == DAYS_MS
    assert after.attributes["milepost.linked_span_id"] == before.span_id
    assert "milepost.linked_span_id" not in before.attributes


def test_each_stretch_counts_its_own_tokens() -> None:
    log = asking().write(RunWaiting("approval", ("apr_1",)), RunResumed(2, "w2", "approval"))
    log.write(MessageStarted("msg_2", MODEL), replied("msg_2"), MessageStarted("msg_3", MODEL))
    log.write(replied("msg_3"))

    before, after = (span for span in spans_of(ended(log).entries) if span.kind == "invoke_agent")

    assert before.attributes["gen_ai.usage.input_tokens"] == 50
    assert after.attributes["gen_ai.usage.input_tokens"] == 100


def test_what_comes_after_the_wait_stands_below_the_second_stretch() -> None:
    log = asking().write(RunWaiting("approval", ("apr_1",)), RunResumed(2, "w2", "approval"))
    log.write(ToolCallStarted("call_1_0", 1, "once"), ToolCallCompleted("call_1_0", 42, 1))

    chat, first, tool, second = spans_of(ended(log).entries)

    assert chat.parent_id == first.span_id
    assert tool.parent_id == second.span_id
    assert second.span_id == derived(8)


def test_what_a_dead_worker_had_in_hand_ends_with_its_last_sign_of_life() -> None:
    log = asking().write(ToolCallStarted("call_1_0", 1, "read"), after_ms=10)
    log.write(RunResumed(2, "w2", "crash"), after_ms=30_000)
    log.write(ToolCallInterrupted("call_1_0", "repeat"), after_ms=5)

    _, stretch, tool = spans_of(log.entries)

    assert [span.kind for span in (stretch, tool)] == ["invoke_agent", "execute_tool"]
    assert {span.end_ms for span in (stretch, tool)} == {3_315}
    assert {span.error for span in (stretch, tool)} == {"its worker died"}
    assert {span.attributes["error.type"] for span in (stretch, tool)} == {"worker_lost"}


def test_a_model_call_lost_to_a_crash_is_an_error_though_nobody_reports_one() -> None:
    log = begun().write(MessageStarted("msg_1", MODEL)).write(RunResumed(2, "w2", "crash"))
    log.write(MessageAborted("msg_1", "its worker died"), after_ms=100)

    span = the("chat", log)

    assert (span.status, span.end_ms) == ("error", 3_000)


def test_a_second_crash_does_not_lengthen_what_the_first_cut_off() -> None:
    log = begun().write(MessageStarted("msg_1", MODEL)).write(RunResumed(2, "w2", "crash"))
    log.write(RunResumed(3, "w3", "crash"), after_ms=60_000)
    log.write(MessageAborted("msg_1", "its worker died"))

    assert the("chat", log).end_ms == 3_000


def test_a_call_that_is_made_again_is_two_spans() -> None:
    log = asking().write(ToolCallStarted("call_1_0", 1, "read"), RunResumed(2, "w2", "crash"))
    log.write(ToolCallInterrupted("call_1_0", "repeat"), ToolCallStarted("call_1_0", 2, "read"))
    log.write(ToolCallCompleted("call_1_0", 42, 7), after_ms=7)

    lost, made = (span for span in spans_of(log.entries) if span.kind == "execute_tool")

    assert (lost.status, made.status) == ("error", "ok")
    assert [span.attributes["milepost.tool.attempt"] for span in (lost, made)] == [1, 2]


@pytest.mark.parametrize("why", ["drain", "cancel"])
def test_a_run_that_was_handed_back_without_a_word_was_not_lost(why: ResumeWhy) -> None:
    log = begun().write(RunResumed(2, "w2", why), after_ms=10)

    first, _ = spans_of(ended(log).entries)

    assert (first.status, first.end_ms) == ("ok", 3_000)
    assert first.attributes["milepost.run.status"] == "retrying"


def test_a_claim_owes_its_spans_to_the_first_event_that_the_worker_writes() -> None:
    fold = new_fold()
    log = begun().write(MessageStarted("msg_1", MODEL)).write(RunResumed(2, "w2", "crash"))
    read = [fold.feed(*logged) for logged in log.entries]

    written = fold.feed(5, 9_000, MessageAborted("msg_1", "its worker died"))

    assert read == [()] * 4
    assert [span.kind for span in written] == ["invoke_agent", "chat"]


def test_a_clock_that_steps_back_makes_no_span_negative() -> None:
    log = begun()
    log.now_ms -= 500
    log.write(RunWaiting("approval", ()))

    span = the("invoke_agent", log)

    assert span.end_ms == span.start_ms == 3_000


def test_the_callers_trace_goes_on_below_the_callers_span() -> None:
    chat, agent = spans_of(ended(asking()).entries, new_fold(CALLER))

    assert agent.trace_id == chat.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert agent.parent_id == "b7ad6b7169203331"
    assert chat.parent_id == agent.span_id


@pytest.mark.parametrize("header", [None, "", "00-zz", CALLER.replace("00-", "ff-", 1)])
def test_without_a_valid_caller_the_trace_is_the_runs_own(header: str | None) -> None:
    chat, agent = spans_of(ended(asking()).entries, new_fold(header))

    assert agent.trace_id == chat.trace_id == hashlib.sha256(RUN_ID.encode()).hexdigest()[:32]
    assert agent.parent_id is None


def test_ids_are_derived_from_the_run_and_the_event_that_opened_the_span() -> None:
    chat, agent = spans_of(ended(asking()).entries)

    assert (agent.span_id, chat.span_id) == (derived(2), derived(4))


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False)])
def test_a_caller_that_samples_nothing_is_heard(flags: str, sampled: bool) -> None:
    assert new_fold(f"{CALLER[:-2]}{flags}").sampled is sampled


def gated() -> LogWriter:
    """A log in which every word that was said is recognisable."""
    log = begun().write(MessageStarted("msg_1", MODEL), replied(text="said aloud"), requested())
    edited = ApprovalDecided("apr_1", "call_1_0", "approve", "eva", arguments={"a": "told to it"})
    log.write(edited, ToolCallStarted("call_1_0", 1, "once"))
    log.write(ToolCallCompleted("call_1_0", {"answer": "brought back"}, 1))
    return log.write(RunCompleted(Output("told the user"), Usage()))


def test_what_was_said_is_in_no_span() -> None:
    spans = spans_of(gated().entries)

    told = "".join(str(span) for span in spans)

    assert len(spans) == 3
    for words in ("Refund", "said aloud", "told to it", "brought back", "told the user"):
        assert words not in told


def test_what_was_said_is_there_for_those_who_opted_in() -> None:
    chat, tool, agent = spans_of(gated().entries, new_fold(content=True))

    said = orjson.loads(str(chat.attributes["gen_ai.output.messages"]))
    assert said[0]["parts"] == [{"type": "text", "content": "said aloud"}]
    assert tool.attributes["gen_ai.tool.call.arguments"] == '{"a":"told to it"}'
    assert tool.attributes["gen_ai.tool.call.result"] == '{"answer":"brought back"}'
    assert "Refund order 7" in str(agent.attributes["gen_ai.input.messages"])
    assert "told the user" in str(agent.attributes["gen_ai.output.messages"])


def test_the_arguments_that_are_shown_are_those_that_the_tool_got() -> None:
    log = asking().write(ToolCallStarted("call_1_0", 1, "once", {"a": 17, "b": 25.0}))
    log.write(ToolCallCompleted("call_1_0", 42, 1))

    span = the("execute_tool", log, new_fold(content=True))

    assert span.attributes["gen_ai.tool.call.arguments"] == '{"a":17,"b":25.0}'


def test_the_calls_of_past_steps_are_not_kept() -> None:
    fold = new_fold()
    log = begun()

    for step in range(1, 50):
        log.write(StepStarted(step), MessageStarted(f"msg_{step}", MODEL), replied(f"msg_{step}"))
        log.write(requested(f"call_{step}_0"), ToolCallDenied(f"call_{step}_0", "policy", "no"))
    spans_of(log.entries, fold)

    assert list(fold._asked) == ["call_49_0"]


def test_what_was_said_at_length_is_cut() -> None:
    log = begun().write(MessageStarted("msg_1", MODEL), replied(text="la" * 100_000))

    span = the("chat", log, new_fold(content=True))

    assert len(str(span.attributes["gen_ai.output.messages"])) < 10_000


def test_a_fork_takes_nothing_back() -> None:
    fold = new_fold()
    log = begun().write(MessageStarted("msg_1", MODEL))
    spans_of(log.entries, fold)

    refused = fold.fork().feed(4, 9_000, MessageAborted("msg_1", "never written"))

    assert refused[0].status == "cancelled"
    assert fold.feed(4, 9_000, replied())[0].status == "ok"


@given(log=random_logs(), data=st.data())
def test_a_log_read_in_two_portions_gives_the_spans_of_the_whole(
    log: list[Logged], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(log)))
    whole, again = new_fold(), new_fold()
    closed = [whole.feed(*logged) for logged in log]

    spans_of(log[:cut], again)
    rest = [again.feed(*logged) for logged in log[cut:]]

    assert rest == closed[cut:]


@given(random_logs())
def test_what_each_worker_appended_makes_the_trace_whole_and_nothing_comes_twice(
    log: list[Logged],
) -> None:
    claims = [*claims_in(log), len(log)]
    stored: list[Span] = []

    for claim, following in pairwise(claims):
        fold = new_fold()
        spans_of(log[:claim], fold)
        appended_to = following if following == len(log) else following - 1
        stored += spans_of(log[claim:appended_to], fold)

    assert stored == spans_of(log)
    assert len({span.seq for span in stored}) == len(stored)


@given(random_logs())
def test_every_span_lies_within_its_parent_and_no_time_was_invented(log: list[Logged]) -> None:
    times = {time_ms for _, time_ms, _ in log}
    spans = {span.span_id: span for span in spans_of(log)}

    for span in spans.values():
        assert span.span_id == derived(span.seq)
        assert span.start_ms <= span.end_ms
        assert span.end_ms in times
        if span.kind != "invoke_agent":
            parent = spans[span.parent_id or ""]
            assert parent.start_ms <= span.start_ms
            # What goes on elsewhere does not end where its stretch does.
            assert span.end_ms <= parent.end_ms or span.tool in ELSEWHERE


@given(random_logs())
def test_all_that_was_begun_is_told_and_stretches_do_not_overlap(log: list[Logged]) -> None:
    opened = {seq for seq, _, event in log if isinstance(event, OPENING)}
    spans = spans_of(log)

    assert {span.seq for span in spans} == opened | set(claims_in(log))
    stretches = [span for span in spans if span.kind == "invoke_agent"]
    for earlier, later in pairwise(stretches):
        assert earlier.end_ms <= later.start_ms
        assert later.attributes["milepost.linked_span_id"] == stretches[0].span_id
