"""The loop, decided by the log alone: no mocks, no clock, no event loop."""

from dataclasses import replace

import pytest

from milepost.core.admission import UNKNOWN_OUTCOME
from milepost.core.agents import Limits
from milepost.core.backoff import RETRY_AFTER_S_MAX
from milepost.core.canonical import call_digest
from milepost.core.decide import CRASHES_MAX, decide
from milepost.core.effects import (
    AskApproval,
    CallModel,
    CallTool,
    Cancel,
    Effect,
    End,
    Park,
    Record,
    SummarizeHistory,
)
from milepost.core.events import (
    ApprovalDecided,
    ChildRunStarted,
    Event,
    Failure,
    MemorySummarizing,
    MemoryTrimmed,
    MessageAborted,
    MessageStarted,
    ModelRetried,
    Output,
    PolicyDecided,
    RunCancelling,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunIncomplete,
    RunRetried,
    RunWaiting,
    SessionLoaded,
    StepCompleted,
    StepStarted,
    Stretch,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallInterrupted,
)
from milepost.core.evolve import fold
from milepost.core.messages import ToolCall
from milepost.core.rulings import Ask, Refuse, Reject, Rules, Run
from milepost.core.usage import UNKNOWN
from tests.core.logs import (
    BUSY,
    CRASHED,
    LIMITED,
    NOW_MS,
    QUEUED,
    REFUND,
    REFUND_DIGEST,
    REFUSED,
    REFUSING,
    REJECTING,
    USED,
    allowing,
    approved,
    asked,
    asking,
    begun,
    calling,
    denied,
    replied,
    requested,
    requesting,
    ruled,
    running,
)

CALL = ToolCall("call_1_0", "refund", REFUND)
DONE = ToolCallCompleted("call_1_0", "ok", 3)


def decided(log: list[Event], rules: Rules | None = None, now_ms: int = NOW_MS) -> list[Effect]:
    return list(decide(fold(log), rules or allowing(), now_ms))


# --- Messages ---


def test_a_new_run_calls_the_model_in_its_first_step() -> None:
    assert decided(begun()) == [CallModel("msg_1", (StepStarted(1),))]


def test_a_model_that_is_being_called_is_waited_for() -> None:
    assert decided(calling()) == []


def test_a_reply_without_calls_completes_the_run() -> None:
    assert decided(calling(replied("Refunded."))) == [
        End(RunCompleted(Output("Refunded."), USED, "stop"), (StepCompleted(1),))
    ]


@pytest.mark.parametrize(
    ("finish_reason", "reason"),
    [("length", "output_tokens"), ("content_filter", "content_filter")],
)
def test_a_reply_that_was_cut_off_leaves_the_run_incomplete(
    finish_reason: str, reason: str
) -> None:
    reply = replied("Refun", finish_reason)  # type: ignore[arg-type]  # both are literals

    assert decided(calling(reply)) == [
        End(RunIncomplete(reason, Output("Refun"), USED), (StepCompleted(1),))
    ]


STRETCH = Stretch("sum_1", "1.0", "2.1", 4)
FALLING = SessionLoaded(3, 2, kept_from="3.0", trimmed=STRETCH)
TOLD = MemorySummarizing("sum_1", "1.0", "2.1", 4, "scribe/small")


def test_what_falls_out_of_sight_is_written_down_before_a_model_is_called() -> None:
    log = begun(FALLING)
    trimmed = MemoryTrimmed("sum_1", "1.0", "2.1", 4)

    assert decided(log) == [Record((trimmed,))]
    assert decided([*log, trimmed]) == [CallModel("msg_1", (StepStarted(1),))]


def test_what_falls_out_of_sight_is_told_by_the_model_that_is_named_and_waited_for() -> None:
    rules = replace(allowing(), summarizer="scribe/small")

    assert decided(begun(FALLING), rules) == [SummarizeHistory(TOLD)]
    assert decided(begun(FALLING, TOLD), rules) == []


def test_a_message_that_its_worker_lost_is_aborted_before_the_next_begins() -> None:
    lost = MessageAborted("msg_1", "its worker died", usage=UNKNOWN)

    assert decided(calling(CRASHED)) == [Record((lost,))]


def test_the_next_attempt_at_a_message_has_a_new_id_and_the_same_step() -> None:
    lost = MessageAborted("msg_1", "its worker died")

    assert decided(calling(CRASHED, lost)) == [CallModel("msg_2", ())]


def test_an_ended_run_needs_nothing() -> None:
    ended = RunCompleted(Output("Refunded."), USED)

    assert decided(calling(replied("Refunded."), StepCompleted(1), ended)) == []


# --- Steps ---


def test_the_step_limit_allows_exactly_that_many_model_calls() -> None:
    rules = ruled(Run(REFUND, "once"), Limits(max_steps=1))
    log = requesting(running(), DONE, StepCompleted(1))

    assert decided(log, rules) == [End(RunIncomplete("max_steps", Output("On it."), USED))]
    assert decided(log, replace(rules, limits=Limits(max_steps=2))) == [
        CallModel("msg_2", (StepStarted(2),))
    ]


def test_a_step_ends_when_every_call_has_a_result() -> None:
    assert decided(requesting(running(), DONE)) == [Record((StepCompleted(1),))]


# --- Failures of the model ---


def failed(*failures: Failure) -> list[Event]:
    log = calling(MessageAborted("msg_1", "busy", failures[0]))
    for number, failure in enumerate(failures[1:], start=2):
        message_id = f"msg_{number}"
        log += [MessageStarted(message_id, "m"), MessageAborted(message_id, "busy", failure)]
    return log


def test_a_failure_that_may_pass_is_retried_after_a_growing_wait() -> None:
    retried = ModelRetried("msg_2", 2, 1_000, BUSY)

    assert decided(failed(BUSY)) == [CallModel("msg_2", (retried,), wait_s=1.0)]
    [again] = decided(failed(BUSY, BUSY))
    assert isinstance(again, CallModel)
    assert again.wait_s == 2.0


def test_a_rate_limit_cools_down_on_top_of_the_backoff() -> None:
    [first] = decided(failed(LIMITED))
    [second] = decided(failed(LIMITED, LIMITED))

    assert isinstance(first, CallModel)
    assert isinstance(second, CallModel)
    assert (first.wait_s, second.wait_s) == (6.0, 12.0)


def test_an_agent_says_how_long_its_retries_wait() -> None:
    rules = ruled(
        Run(REFUND, "once"), Limits(retry_backoff_s=0.0, rate_limit_cooldown_s=0.5, model_retries=1)
    )

    [effect] = decided(failed(LIMITED), rules)

    assert isinstance(effect, CallModel)
    assert effect.wait_s == 0.5
    assert isinstance(decided(failed(LIMITED, LIMITED), rules)[0], End)


def test_a_vendor_that_names_a_longer_wait_gets_it() -> None:
    [effect] = decided(failed(replace(BUSY, retry_after_s=30.0)))

    assert isinstance(effect, CallModel)
    assert effect.wait_s == 30.0


def test_a_vendor_that_names_a_wait_beyond_the_bound_fails_the_run_which_says_how_long() -> None:
    at_most = replace(LIMITED, retry_after_s=RETRY_AFTER_S_MAX)
    beyond = replace(LIMITED, retry_after_s=RETRY_AFTER_S_MAX + 1)

    assert isinstance(decided(failed(at_most))[0], CallModel)
    assert decided(failed(beyond)) == [End(RunFailed(beyond, fold(begun()).usage))]


def test_the_last_retry_s_failure_fails_the_run() -> None:
    hinted = replace(BUSY, retry_after_s=3.0)

    assert decided(failed(BUSY, BUSY, hinted)) == [End(RunFailed(BUSY, fold(begun()).usage))]


def test_a_failure_for_good_fails_the_run_at_once() -> None:
    assert decided(failed(REFUSED)) == [End(RunFailed(REFUSED, fold(begun()).usage))]


def test_a_lost_attempt_is_no_failure() -> None:
    log = [*failed(BUSY), MessageStarted("msg_2", "m"), CRASHED]

    aborted = MessageAborted("msg_2", "its worker died", usage=UNKNOWN)
    assert decided(log) == [Record((aborted,))]
    assert decided([*log, aborted]) == [CallModel("msg_3", ())]


def test_the_last_step_may_be_gone_on_with() -> None:
    log = calling(CRASHED, MessageAborted("msg_1", "its worker died", usage=UNKNOWN))
    rules = replace(allowing(), limits=Limits(max_steps=1))

    assert decided(log, rules) == [CallModel("msg_2", ())]


# --- Calls ---


def test_an_allowed_call_is_run_with_the_arguments_that_were_judged() -> None:
    assert decided(requesting(), ruled(Run({"order": 8}, "read"))) == [
        CallTool(CALL, {"order": 8}, "read", attempt=1)
    ]


def test_calls_of_one_step_run_together() -> None:
    effects = decided(requesting(calls=3))

    assert [effect.call.id for effect in effects if isinstance(effect, CallTool)] == [
        "call_1_0",
        "call_1_1",
        "call_1_2",
    ]


def test_a_call_that_runs_is_not_begun_again() -> None:
    [effect] = decided(requesting(running(0), calls=2))

    assert isinstance(effect, CallTool)
    assert effect.call.id == "call_1_1"


def test_a_refused_call_is_told_to_the_model() -> None:
    assert decided(requesting(), REFUSING) == [
        Record(
            (
                PolicyDecided("call_1_0", "deny", "policy: deny *"),
                ToolCallDenied("call_1_0", "policy", "policy: deny *"),
            )
        )
    ]


def test_a_call_that_cannot_be_made_is_told_to_the_model() -> None:
    error = Failure("unknown_tool", "there is no such tool")

    assert decided(requesting(), REJECTING) == [Record((ToolCallFailed("call_1_0", error),))]


# --- Approvals ---


def test_a_gated_call_is_asked_about_with_its_digest() -> None:
    assert decided(requesting(), asking()) == [
        AskApproval(CALL, REFUND, REFUND_DIGEST, "policy: ask *")
    ]


def test_a_run_waits_while_a_person_is_asked() -> None:
    assert decided(requesting(asked()), asking()) == [Park("approval", ("apr_0",))]


def test_a_run_that_waits_already_is_left_alone() -> None:
    waiting = RunWaiting("approval", ("apr_0",))

    assert decided(requesting(asked(), waiting), asking()) == []


def test_a_run_waits_only_when_no_other_call_can_go_on() -> None:
    log = requesting(asked(0), running(1), calls=2)

    assert decided(log, asking()) == []
    assert decided([*log, ToolCallCompleted("call_1_1", "ok", 1)], asking()) == [
        Park("approval", ("apr_0",))
    ]


def test_a_run_says_for_whom_it_waits_and_names_each_once() -> None:
    below = ChildRunStarted("call_1_0", "run_2", "clerk")
    handed_over = running(1)
    by_client = replace(requested(1), kind="client")
    child: list[Event] = [requested(0), running(0), below]

    [for_child] = decided(calling(replied(), *child))
    [for_client] = decided(calling(replied(), *child, by_client, handed_over))
    [for_people] = decided(
        calling(replied(), *child, by_client, handed_over, requested(2), asked(2)), asking()
    )

    assert for_child == Park("child_run", ("run_2",))
    assert for_client == Park("client_tool", ("call_1_1", "run_2"))
    assert for_people == Park("approval", ("apr_2", "call_1_1", "run_2"))


def test_an_approved_call_is_run_once_more_judged() -> None:
    log = requesting(asked(), approved())

    assert decided(log, asking()) == [CallTool(CALL, REFUND, "once", attempt=1, approved_by="ann")]
    assert decided(log, allowing()) == [
        CallTool(CALL, REFUND, "once", attempt=1, approved_by="ann")
    ]


def test_an_edited_call_runs_with_the_edited_arguments() -> None:
    digest = call_digest("refund", {"order": 8})
    edit = ApprovalDecided(
        "apr_0", "call_1_0", "approve", "ann", arguments={"order": 8}, digest=digest
    )

    [effect] = decided(requesting(asked(), edit), asking())

    assert isinstance(effect, CallTool)
    assert effect.arguments == {"order": 8}


def test_only_what_was_approved_is_run() -> None:
    coerced_otherwise = ruled(Ask({"order": 8}, "once", "policy: ask *"))

    assert decided(requesting(asked(), approved()), coerced_otherwise) == [
        Record(
            (
                ToolCallDenied(
                    "call_1_0", "approval", "the arguments are not those that were approved"
                ),
            )
        )
    ]


def test_a_deny_still_wins_over_an_approval() -> None:
    assert decided(requesting(asked(), approved()), REFUSING) == [
        Record((ToolCallDenied("call_1_0", "policy", "policy: deny *"),))
    ]


def test_an_approved_call_whose_tool_is_gone_fails() -> None:
    [effect] = decided(requesting(asked(), approved()), REJECTING)

    assert isinstance(effect, Record)
    assert isinstance(effect.events[0], ToolCallFailed)


def test_a_denied_call_is_told_to_the_model() -> None:
    assert decided(requesting(asked(), denied()), asking()) == [
        Record((ToolCallDenied("call_1_0", "ann", "not today"),))
    ]


def test_a_denied_call_is_not_asked_about_again_in_the_same_run() -> None:
    log = requesting(asked(), denied(), ToolCallDenied("call_1_0", "ann", "not today"),
                     StepCompleted(1), StepStarted(2), MessageStarted("msg_2", "m"),
                     replied(message_id="msg_2"), requested(step=2))  # fmt: skip

    assert decided(log, asking()) == [
        Record((ToolCallDenied("call_2_0", "an earlier answer in this run", "not today"),))
    ]


def test_an_approval_is_good_for_one_call_only() -> None:
    log = requesting(asked(), approved(), running(), DONE, StepCompleted(1), StepStarted(2),
                     MessageStarted("msg_2", "m"), replied(message_id="msg_2"),
                     requested(step=2))  # fmt: skip

    [effect] = decided(log, asking())

    assert isinstance(effect, AskApproval)


# --- Recovery ---


def test_a_call_that_may_have_acted_is_not_repeated_and_the_model_is_told() -> None:
    assert decided(requesting(running(effect="once"), CRASHED)) == [
        Record(
            (
                ToolCallInterrupted("call_1_0", "tell_model"),
                ToolCallFailed("call_1_0", UNKNOWN_OUTCOME),
            )
        )
    ]


@pytest.mark.parametrize("effect", ["read", "idempotent"])
def test_a_call_that_is_safe_to_repeat_is_made_again(effect: str) -> None:
    log = requesting(running(effect=effect), CRASHED)  # type: ignore[arg-type]  # both literals
    repeat = ToolCallInterrupted("call_1_0", "repeat")

    assert decided(log) == [Record((repeat,))]
    [again] = decided([*log, repeat], allowing(effect))  # type: ignore[arg-type]
    assert isinstance(again, CallTool)
    assert again.attempt == 2


def test_a_repeated_call_keeps_its_approval() -> None:
    log = requesting(asked(), approved(), running(effect="read"), CRASHED,
                     ToolCallInterrupted("call_1_0", "repeat"))  # fmt: skip

    assert decided(log, asking("read")) == [
        CallTool(CALL, REFUND, "read", attempt=2, approved_by="ann")
    ]


@pytest.mark.parametrize(
    ("ruling", "expected"),
    [
        (Ask(REFUND, "read", "new policy"), AskApproval(CALL, REFUND, REFUND_DIGEST, "new policy")),
        (Refuse("policy", "no"), Record((ToolCallDenied("call_1_0", "policy", "no"),))),
        (
            Reject(Failure("unknown_tool", "gone")),
            Record((ToolCallFailed("call_1_0", Failure("unknown_tool", "gone")),)),
        ),
    ],
)
def test_a_repeated_call_is_judged_anew(ruling: Ask | Refuse | Reject, expected: Effect) -> None:
    log = requesting(running(effect="read"), CRASHED, ToolCallInterrupted("call_1_0", "repeat"))

    assert decided(log, ruled(ruling)) == [expected]


def test_a_run_that_keeps_crashing_waits_for_an_operator() -> None:
    log = begun(*[CRASHED] * CRASHES_MAX)

    assert decided(log) == [Park("operator", ())]
    assert decided([*log, RunWaiting("operator", ())]) == []
    assert decided(log[:-1]) == [CallModel("msg_1", (StepStarted(1),))]


def test_an_operator_sends_it_on() -> None:
    log = begun(*[CRASHED] * CRASHES_MAX, RunWaiting("operator", ()), replace(CRASHED, why="retry"),
                RunRetried("ann"))  # fmt: skip

    assert decided(log) == [CallModel("msg_1", (StepStarted(1),))]


# --- The end, by whomever ---


def test_a_cancelled_run_stops_before_anything_else() -> None:
    log = calling(CRASHED, RunCancelling("ann", None))

    assert decided(log) == [Cancel()]


def test_a_run_expires_at_its_deadline_and_not_before() -> None:
    log = begun(queued=replace(QUEUED, deadline_ms=NOW_MS))

    assert decided(log, now_ms=NOW_MS) == [End(RunExpired("deadline", fold(log).usage))]
    assert decided(log, now_ms=NOW_MS - 1) == [CallModel("msg_1", (StepStarted(1),))]
