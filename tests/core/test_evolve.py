"""The fold: what each event makes of a run, and what the model is told of it."""

from dataclasses import replace

import pytest

from milepost.core.agents import Bounds, StructuredOutput
from milepost.core.events import (
    ApprovalDecided,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalWithdrawn,
    CacheHit,
    Channel,
    Event,
    Failure,
    InputMessage,
    MessageAborted,
    MessageStarted,
    ModelRetried,
    Output,
    Parent,
    PolicyDecided,
    ReasoningCompleted,
    RunCancelled,
    RunCancelling,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunImported,
    RunIncomplete,
    RunQueued,
    RunResumed,
    RunRetried,
    RunRetrying,
    RunWaiting,
    SessionLoaded,
    StepCompleted,
    StepStarted,
    ToolCallChecked,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallScreened,
    ToolCallScreening,
    ToolResultCompressed,
    ToolResultCompressing,
)
from milepost.core.evolve import evolve, fold
from milepost.core.messages import Message
from milepost.core.open_call import CallStatus
from milepost.core.state import State
from milepost.core.usage import UNKNOWN, Usage
from tests.core.logs import (
    BUSY,
    CRASHED,
    QUEUED,
    REFUND_DIGEST,
    USED,
    approved,
    asked,
    begun,
    calling,
    denied,
    replied,
    requested,
    requesting,
    running,
)

FAILED = ToolCallFailed("call_1_0", Failure("tool_failed", "refund failed: no such order"))
ENDINGS: list[Event] = [
    RunCompleted(Output("done"), USED),
    RunIncomplete("max_steps", Output("so far"), USED),
    RunFailed(BUSY, USED),
    RunCancelled("ann", None, (), USED),
    RunExpired("deadline", USED),
]


def status(log: list[Event], call_id: str = "call_1_0") -> CallStatus:
    return fold(log).calls[call_id].status


def test_a_run_begins_with_its_input() -> None:
    said = (InputMessage("system", "Be brief."), InputMessage("user", "Hi"))

    state = fold([RunQueued("clerk", "agt_1", 1, "ses_1", said, deadline_ms=99)])

    assert state.messages == (Message("system", "Be brief."), Message("user", "Hi"))
    assert state.deadline_ms == 99


def test_a_run_knows_what_was_asked_for_beside_its_input() -> None:
    asked = replace(
        QUEUED,
        deadline_ms=5_000,
        response_format=StructuredOutput({"type": "object"}),
        cache=False,
        parent=Parent("run_0", "call_1_0", 1, "ses_0"),
        bounds=Bounds(max_model_calls=3),
        channel=Channel("desk", "ann"),
        speakers=("key_1", "key_2"),
    )

    state = fold([asked])

    assert state.deadline_ms == 5_000
    assert state.response_format == asked.response_format
    assert (state.parent, state.bounds, state.channel) == (
        asked.parent,
        asked.bounds,
        asked.channel,
    )
    assert (state.cache, sorted(state.speakers)) == (False, ["key_1", "key_2"])


def test_a_run_that_was_done_elsewhere_has_said_all_of_it() -> None:
    said = (
        Message("user", "Hello"),
        Message("assistant", "Which order?"),
        Message("user", "7"),
        Message("assistant", "Done."),
    )

    state = fold([replace(QUEUED, input=()), RunImported("old-7", "completed", "2026", said)])

    assert (state.messages, state.step, state.screened) == (said, 2, True)


def test_a_reply_is_the_next_message_and_its_usage_is_added() -> None:
    state = fold(calling(replied("Hello.", "length")))

    assert state.messages[-1] == Message("assistant", "Hello.")
    assert state.text == "Hello."
    assert state.finish_reason == "length"
    assert state.usage == USED
    assert state.open_message is None


def test_a_run_that_was_not_answered_has_no_text() -> None:
    assert fold(calling()).text == ""


def test_an_aborted_message_counts_as_a_failure_only_with_an_error() -> None:
    failed = fold(calling(MessageAborted("msg_1", "busy", BUSY)))
    lost = fold(calling(MessageAborted("msg_1", "its worker died")))

    assert (failed.failures, failed.failure, failed.open_message) == (1, BUSY, None)
    assert (lost.failures, lost.failure, lost.open_message) == (0, None, None)


def test_what_an_aborted_message_took_is_part_of_the_usage() -> None:
    state = fold(calling(MessageAborted("msg_1", "its worker died", usage=UNKNOWN)))

    assert state.usage == UNKNOWN


def test_a_reply_forgets_the_failures_before_it() -> None:
    again = MessageStarted("msg_2", "openai/gpt-5-mini")

    state = fold(calling(MessageAborted("msg_1", "busy", BUSY), again, replied(message_id="msg_2")))

    assert (state.failures, state.failure) == (0, None)
    assert state.messages_started == 2


def test_calls_stand_in_the_reply_that_asked_for_them() -> None:
    state = fold(requesting(calls=2))

    assert [call.id for call in state.messages[-1].calls] == ["call_1_0", "call_1_1"]
    assert status(requesting(calls=2), "call_1_1") is CallStatus.REQUESTED


def test_a_denial_says_who_and_why() -> None:
    state = fold(requesting(asked(), denied()))

    assert state.calls["call_1_0"].status is CallStatus.DENIED
    assert state.calls["call_1_0"].denied_by == "ann"
    assert state.calls["call_1_0"].denial == "not today"


def test_a_denial_without_a_comment_says_so() -> None:
    assert fold(requesting(asked(), denied(comment=None))).calls["call_1_0"].denial == (
        "no reason was given"
    )


@pytest.mark.parametrize(
    "event", [ApprovalExpired("apr_0", "call_1_0"), ApprovalWithdrawn("apr_0", "call_1_0")]
)
def test_a_question_that_nobody_answers_means_no(event: Event) -> None:
    assert status(requesting(asked(), event)) is CallStatus.DENIED


@pytest.mark.parametrize(
    ("event", "by", "why"),
    [
        (ApprovalExpired("apr_0", "call_1_0"), "expiry", "nobody answered in time"),
        (ApprovalWithdrawn("apr_0", "call_1_0"), "withdrawal", "the question was withdrawn"),
        (ApprovalWithdrawn("apr_0", "call_1_0", "ann", "never mind"), "ann", "never mind"),
    ],
)
def test_the_model_is_told_why_a_question_went_unanswered(event: Event, by: str, why: str) -> None:
    call = fold(requesting(asked(), event)).calls["call_1_0"]

    assert (call.denied_by, call.denial) == (by, why)


def test_a_question_that_nobody_answers_ends_the_run_where_its_policy_says_so() -> None:
    silent = fold(requesting(asked(), ApprovalExpired("apr_0", "call_1_0", "fail")))
    denied_ = fold(requesting(asked(), ApprovalExpired("apr_0", "call_1_0")))

    assert silent.failing == Failure("approval_expired", "nobody answered in time")
    assert denied_.failing is None


def test_what_people_are_asked_is_kept_and_whom_until_others_are_asked() -> None:
    question = replace(asked(), approvers=("key:ann",), kind="outcome")
    passed_on = ApprovalEscalated("apr_0", "call_1_0", ("scope:finance",), 9_000)

    before = fold(requesting(question)).calls["call_1_0"]
    after = fold(requesting(question, passed_on)).calls["call_1_0"]

    assert (before.status, before.approval_id) == (CallStatus.ASKED, "apr_0")
    assert (before.asked, before.asking) == ({"order": 7}, "outcome")
    assert (before.approvers, after.approvers) == (("key:ann",), ("scope:finance",))


def test_a_question_that_is_taken_back_behind_its_answer_changes_nothing() -> None:
    log = requesting(asked(), approved(), running(), ToolCallCompleted("call_1_0", "done", 5))

    assert fold([*log, ApprovalWithdrawn("apr_0", "call_1_0")]) == fold(log)


def test_who_says_that_a_lost_call_happened_says_what_it_brought() -> None:
    happened = ApprovalDecided("apr_0", "call_1_0", "happened", "ann", result={"paid": 7})

    call = fold(requesting(replace(asked(), kind="outcome"), happened)).calls["call_1_0"]

    assert (call.status, call.brought) == (CallStatus.HAPPENED, {"paid": 7})


def test_a_call_that_is_made_once_more_may_be_looked_up_and_asked_about_anew() -> None:
    lost = (running(), CRASHED, ToolCallInterrupted("call_1_0", "check"))
    looked_up = (ToolCallChecked("call_1_0", "unknown"), replace(asked(), kind="outcome"))
    again = ApprovalDecided("apr_0", "call_1_0", "not_happened", "ann")

    before = fold(requesting(*lost, *looked_up, again)).calls["call_1_0"]
    call = fold(requesting(*lost, *looked_up, again, running())).calls["call_1_0"]

    assert (before.checked, before.asking) == (True, "outcome")
    assert (call.checked, call.asking) == (False, "call")


@pytest.mark.parametrize(("comment", "said"), [(None, ""), ("call me", "; they say: call me")])
def test_who_stops_a_run_over_a_call_that_nobody_knows_of_is_named_with_what_they_say(
    comment: str | None, said: str
) -> None:
    stop = ApprovalDecided("apr_0", "call_1_0", "stop", "ann", comment)

    failing = fold(requesting(asked(), stop)).failing

    why = f"nobody knows what came of a call, and ann stopped the run{said}"
    assert failing == Failure("outcome_unknown", why)


def test_an_approval_keeps_the_digest_that_was_shown() -> None:
    call = fold(requesting(asked(), approved())).calls["call_1_0"]

    assert (call.status, call.digest) == (CallStatus.APPROVED, REFUND_DIGEST)


def test_an_edit_replaces_arguments_and_digest() -> None:
    edit = ApprovalDecided(
        "apr_0", "call_1_0", "approve", "ann", arguments={"order": 8}, digest="sha256:8"
    )

    call = fold(requesting(asked(), edit)).calls["call_1_0"]

    assert call.call.arguments == {"order": 8}
    assert call.digest == "sha256:8"


def test_a_call_keeps_what_its_tool_got_and_all_that_it_brought() -> None:
    log = requesting(
        replace(running(), arguments={"order": 8}),
        ToolCallCompleted("call_1_0", "a long receipt", 5),
        ToolResultCompressing("call_1_0", "openai/small", 14),
        ToolResultCompressed("call_1_0", "short", 14, "openai/small", USED),
    )

    call = fold(log).calls["call_1_0"]

    assert call.given == {"order": 8}
    assert (call.content, call.whole, call.long) == ("short", "a long receipt", 0)
    assert fold(log[:-2]).calls["call_1_0"].long == 14


def test_a_call_that_the_guardrails_changed_is_one_that_nobody_has_approved() -> None:
    looked_at = (
        ToolCallScreening("call_1_0"),
        ToolCallScreened("call_1_0", arguments={"order": 9}),
    )

    call = fold(requesting(asked(), approved(), *looked_at)).calls["call_1_0"]

    assert (call.status, call.screened) == (CallStatus.REQUESTED, True)
    assert call.call.arguments == {"order": 9}
    assert (call.digest, call.approved_by, call.comment) == (None, None, None)


def test_what_a_tool_says_of_a_lost_call_decides_whether_it_is_made_again() -> None:
    lost = (running(), CRASHED, ToolCallInterrupted("call_1_0", "check"))
    absent, unknown = (ToolCallChecked("call_1_0", found) for found in ("absent", "unknown"))

    assert status(requesting(*lost)) is CallStatus.CHECKING
    assert status(requesting(*lost, absent)) is CallStatus.REPEATABLE
    assert status(requesting(*lost, unknown)) is CallStatus.LOST


def test_a_result_that_ends_the_run_is_not_made_shorter() -> None:
    done = ToolCallCompleted("call_1_0", "a long receipt", 5, terminal=True)

    call = fold(requesting(running(), done)).calls["call_1_0"]

    assert (call.terminal, call.long) == (True, 0)


def test_a_denied_call_is_remembered_by_its_digest() -> None:
    state = fold(requesting(asked(), denied(), ToolCallDenied("call_1_0", "ann", "not today")))

    assert state.denials == {REFUND_DIGEST: "not today"}
    assert state.calls["call_1_0"].content == "Tool 'refund' denied by ann: not today"


def test_a_call_that_policy_denied_was_never_asked_and_is_not_remembered() -> None:
    state = fold(requesting(ToolCallDenied("call_1_0", "policy", "policy: deny *")))

    assert state.denials == {}
    assert state.calls["call_1_0"].status is CallStatus.DONE


def test_a_new_worker_has_lost_what_the_last_one_had_in_hand() -> None:
    state = fold(requesting(running(0), running(1), FAILED, CRASHED, calls=3))

    statuses = [call.status for call in state.calls.values()]
    assert statuses == [CallStatus.DONE, CallStatus.LOST, CallStatus.REQUESTED]
    assert state.attempt == 2


@pytest.mark.parametrize(("then", "expected"), [("repeat", "repeatable"), ("tell_model", "lost")])
def test_an_interrupted_call_is_repeatable_only_if_the_log_says_so(
    then: str, expected: str
) -> None:
    event = ToolCallInterrupted("call_1_0", then)  # type: ignore[arg-type]  # both are literals

    assert status(requesting(running(), CRASHED, event)) == expected


def test_a_message_is_lost_with_its_worker_until_it_is_aborted() -> None:
    crashed = fold(calling(CRASHED))
    aborted = evolve(crashed, MessageAborted("msg_1", "its worker died"))

    assert crashed.message_lost
    assert not aborted.message_lost
    assert not fold(begun(CRASHED)).message_lost


def test_only_crashes_count_and_only_until_something_is_achieved() -> None:
    crash, drain = RunResumed(2, "w2", "crash"), RunResumed(2, "w2", "drain")

    assert fold(begun(crash, drain, crash)).crashes == 2
    assert fold(begun(crash, crash, RunRetried("ann"))).crashes == 0
    assert fold(calling(crash, replied())).crashes == 0
    assert fold(requesting(running(), crash, crash, FAILED)).crashes == 0


def test_a_run_waits_until_it_is_resumed() -> None:
    parked = requesting(asked(), RunWaiting("approval", ("apr_0",)))

    assert fold(parked).waiting
    assert not fold([*parked, RunResumed(2, "w2", "approval")]).waiting


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda event: event.type)
def test_a_terminal_event_ends_the_run(ending: Event) -> None:
    state = fold(begun(RunWaiting("operator", ()), ending))

    assert state.ended
    assert not state.waiting


def test_a_request_to_cancel_is_kept_with_its_author() -> None:
    assert fold(begun(RunCancelling("ann", "typo"))).cancelling == RunCancelling("ann", "typo")


def test_the_session_is_pinned_as_it_was_loaded() -> None:
    assert fold(begun(SessionLoaded(3, 12))).loaded == SessionLoaded(3, 12)
    assert fold(begun()).loaded is None


def test_a_step_begins_without_calls_and_unanswered() -> None:
    log = requesting(FAILED, StepCompleted(1), StepStarted(2))

    state = fold(log)

    assert (state.step, state.step_open, state.replied) == (2, True, False)
    assert state.calls == {}


@pytest.mark.parametrize(
    "event",
    [
        RunRetrying("drain"),
        ReasoningCompleted("msg_1", "hm"),
        ModelRetried("msg_2", 2, 1_000, BUSY),
        CacheHit("msg_1", 3.0),
        PolicyDecided("call_1_0", "ask", "policy: ask *"),
    ],
    ids=lambda event: event.type,
)
def test_an_event_that_is_only_told_changes_nothing(event: Event) -> None:
    state = fold(requesting())

    assert evolve(state, event) == state


def test_results_stand_in_the_order_of_the_requests() -> None:
    second = ToolCallCompleted("call_1_1", {"refunded": True}, 5)

    state = fold(requesting(second, FAILED, StepCompleted(1), calls=2))

    assert state.messages[-2:] == (
        Message("tool", "Error (tool_failed): refund failed: no such order", call_id="call_1_0"),
        Message("tool", '{"refunded":true}', call_id="call_1_1"),
    )


def test_usage_of_several_messages_adds_up() -> None:
    log = requesting(FAILED, StepCompleted(1), StepStarted(2), replied("Sorry."))

    assert fold(log).usage == USED + USED
    assert State().usage == Usage()


def test_later_calls_have_ids_of_their_own_step() -> None:
    log = requesting(FAILED, StepCompleted(1), StepStarted(2), replied(), requested(step=2))

    assert list(fold(log).calls) == ["call_2_0"]
