"""The loop at its bounds: budgets, circles, schemas, and agents that only choose."""

from dataclasses import replace

import pytest

from milepost.core.admission import UNKNOWN_OUTCOME
from milepost.core.agents import Limits, LoopDetection
from milepost.core.decide import ROUTED, SKIPPED, UNAFFORDABLE, decide
from milepost.core.effects import CallModel, CallTool, Effect, End, Record, ScreenCall, ScreenInput
from milepost.core.events import (
    ApprovalWithdrawn,
    BudgetExceeded,
    BudgetWarning,
    ChildRunEnded,
    Event,
    Failure,
    InputMessage,
    InputScreened,
    InputScreening,
    LoopDetected,
    MessageStarted,
    Output,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunFailing,
    RunIncomplete,
    StepCompleted,
    StepStarted,
    StructuredRetried,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallScreened,
    ToolCallScreening,
    ToolCallStarted,
)
from milepost.core.evolve import fold
from milepost.core.messages import Message, ToolCall
from milepost.core.rulings import AnswerRule, Fits, Misfits, Reject, Rules, Run
from milepost.core.state import transcript
from milepost.core.usage import Usage
from tests.core.logs import (
    CRASHED,
    NOW_MS,
    USED,
    allowing,
    asked,
    asking,
    begun,
    calling,
    replied,
    requested,
    requesting,
    ruled,
    running,
)

DONE = ToolCallCompleted("call_1_0", "ok", 3)


def decided(log: list[Event], rules: Rules, now_ms: int = NOW_MS) -> list[Effect]:
    return list(decide(fold(log), rules, now_ms))


def within(**bounds: int) -> Rules:
    """Return rules that allow every call, within these bounds."""
    return ruled(lambda call: Run(call.arguments, "once"), Limits(**bounds))  # type: ignore[arg-type]


# --- Budgets ---


def test_the_next_model_call_is_not_made_when_the_run_has_spent_its_tokens() -> None:
    log = requesting(running(), DONE, StepCompleted(1))
    over = BudgetExceeded("run", "max_tokens", 15, 15)

    assert decided(log, within(max_tokens=15)) == [Record((over,))]
    assert decided([*log, over], within(max_tokens=15)) == [
        End(RunIncomplete("budget", Output("On it."), USED))
    ]


def test_a_run_that_has_nearly_spent_its_tokens_says_so_and_goes_on() -> None:
    log = requesting(running(), DONE, StepCompleted(1))
    nearly = BudgetWarning("run", "max_tokens", 15, 16)

    assert decided(log, within(max_tokens=16)) == [Record((nearly,))]
    [effect] = decided([*log, nearly], within(max_tokens=16))
    assert isinstance(effect, CallModel)


@pytest.mark.parametrize(
    ("bound", "unpriced"), [({}, "local/tiny"), ({"max_cost_usd_micros": 5}, None)]
)
def test_a_price_is_needed_for_a_bound_on_cost_alone(
    bound: dict[str, int], unpriced: str | None
) -> None:
    [effect] = decided(begun(), replace(within(**bound), unpriced=unpriced))

    assert isinstance(effect, CallModel)


def test_a_bound_on_cost_needs_a_price() -> None:
    rules = replace(within(max_cost_usd_micros=5), unpriced="local/tiny")

    [effect] = decided(begun(), rules)

    assert isinstance(effect, End)
    assert isinstance(effect.event, RunFailed)
    assert effect.event.error.code == "unpriced_model"
    assert "local/tiny" in effect.event.error.message


def test_calls_beyond_the_bound_are_skipped_and_the_run_ends_with_what_it_has() -> None:
    rules = within(max_tool_calls=1)
    over = BudgetExceeded("run", "max_tool_calls", 1, 1)

    first, second = decided(requesting(calls=2), rules)

    assert isinstance(first, CallTool)
    assert second == Record((over,))
    log = requesting(running(), over, calls=2)
    assert decided(log, rules) == [Record((ToolCallFailed("call_1_1", UNAFFORDABLE),))]
    log = [*log, ToolCallFailed("call_1_1", UNAFFORDABLE)]
    assert decided(log, rules) == [], "what has begun comes to its end"
    assert decided([*log, DONE], rules) == [
        End(RunIncomplete("budget", Output("On it."), USED), (StepCompleted(1),))
    ]


def test_a_call_that_the_client_runs_counts_as_one_of_our_own() -> None:
    by_client = [replace(requested(index), kind="client") for index in range(2)]

    first, second = decided(calling(replied(), *by_client), within(max_tool_calls=1))

    assert first == Record((ToolCallStarted("call_1_0", 1, "once"),))
    assert second == Record((BudgetExceeded("run", "max_tool_calls", 1, 1),))


def test_a_call_that_is_made_again_after_a_crash_counts_once() -> None:
    repeated = ToolCallInterrupted("call_1_0", "repeat")
    log = requesting(running(effect="idempotent"), CRASHED, repeated)

    [effect] = decided(log, within(max_tool_calls=1))

    assert isinstance(effect, CallTool)


def test_a_run_that_has_made_all_its_calls_may_still_answer() -> None:
    [effect] = decided(requesting(running(), DONE, StepCompleted(1)), within(max_tool_calls=1))

    assert isinstance(effect, CallModel)


def test_calls_that_another_run_made_for_this_one_count_as_its_own() -> None:
    ended = ChildRunEnded("call_1_0", "run_2", "completed", Usage(), tool_calls=2)
    log = requesting(running(), ended, DONE, calls=2)

    [call] = decided(log, within(max_tool_calls=4))
    [over] = decided(log, within(max_tool_calls=3))

    assert isinstance(call, CallTool)
    assert over == Record((BudgetExceeded("run", "max_tool_calls", 3, 3),))


def test_what_was_taken_below_a_run_that_this_one_started_is_taken() -> None:
    used = Usage(input_tokens=1)
    ended = ChildRunEnded("call_1_0", "run_2", "completed", used, below=Usage(input_tokens=2))

    [over] = decided(
        requesting(running(), ended, DONE, StepCompleted(1)), within(max_tokens=18)
    )  # fmt: skip

    assert over == Record((BudgetExceeded("run", "max_tokens", 18, 18),))


def test_a_call_that_is_made_again_after_a_loss_counts_once() -> None:
    log = requesting(running(effect="idempotent"), CRASHED)
    rules = ruled(lambda call: Run(call.arguments, "idempotent"), Limits(max_tool_calls=1))
    [lost] = decided(log, rules)
    assert isinstance(lost, Record)

    [again] = decided([*log, *lost.events], rules)

    assert isinstance(again, CallTool)
    assert again.attempt == 2


def test_time_at_work_is_bounded_apart_from_time_on_the_wall() -> None:
    rules = replace(allowing(), active_deadline_ms=NOW_MS)

    assert decided(calling(), rules) == [End(RunExpired("active_time", fold(calling()).usage))]
    assert decided(calling(), rules, NOW_MS - 1) == []


# --- Circles ---


def circling(times: int) -> list[Event]:
    """Return the log of a run that has made the same call again and again."""
    log = begun()
    for step in range(1, times + 1):
        call_id = f"call_{step}_0"
        log += [
            StepStarted(step),
            MessageStarted(f"msg_{step}", "openai/gpt-5-mini"),
            replied(message_id=f"msg_{step}"),
            requested(step=step),
            replace(running(), call_id=call_id),
            replace(DONE, call_id=call_id),
            StepCompleted(step),
        ]
    return log


def test_a_run_in_a_circle_is_told_once_and_goes_on() -> None:
    rules = replace(allowing(), loop_detection=LoopDetection(repeat=2))

    [effect] = decided(circling(2), rules)

    assert isinstance(effect, Record)
    [seen] = effect.events
    assert isinstance(seen, LoopDetected)
    assert (seen.pattern, seen.tools, seen.count, seen.action) == ("repeat", ("refund",), 2, "warn")
    [following] = decided([*circling(2), seen], rules)
    assert isinstance(following, CallModel)
    assert fold([*circling(2), seen]).messages[-1] == Message("user", seen.notice)


def test_a_run_in_a_circle_is_stopped_where_its_agent_says_so() -> None:
    rules = replace(allowing(), loop_detection=LoopDetection(repeat=2, action="stop"))

    [effect] = decided(circling(2), rules)

    assert isinstance(effect, End)
    assert effect.event == RunIncomplete("loop", Output("On it."), USED + USED)
    assert isinstance(effect.events[0], LoopDetected)


def test_tools_that_allow_repetition_make_no_circle() -> None:
    wanted = LoopDetection(repeat=2)
    rules = replace(allowing(), loop_detection=wanted, repeat_allowed=frozenset({"refund"}))

    [effect] = decided(circling(2), rules)

    assert isinstance(effect, CallModel)


def test_circles_are_nobodys_business_unless_asked_for() -> None:
    [effect] = decided(circling(5), allowing())

    assert isinstance(effect, CallModel)


# --- Structured answers ---


def read(text: str) -> Fits | Misfits:
    return Fits({"text": text}) if text == "good" else Misfits("it is not good")


ANSWERED = replace(allowing(), answer=AnswerRule(read, retries=1))


def test_an_answer_that_fits_is_the_runs_in_both_forms() -> None:
    answered = Output("good", {"text": "good"})

    assert decided(calling(replied("good")), ANSWERED) == [
        End(RunCompleted(answered, USED, "stop"), (StepCompleted(1),))
    ]


def test_an_answer_that_does_not_fit_is_asked_for_again_within_the_step() -> None:
    log = calling(replied("bad"))

    [effect] = decided(log, ANSWERED)

    assert isinstance(effect, Record)
    [retried] = effect.events
    assert isinstance(retried, StructuredRetried)
    assert retried.error == Failure("invalid_answer", "it is not good", retryable=True)
    assert "it is not good" in retried.notice
    assert decided([*log, retried], ANSWERED) == [CallModel("msg_2", ())]
    assert fold([*log, retried]).messages[-1] == Message("user", retried.notice)


def test_each_correction_counts() -> None:
    assert ANSWERED.answer is not None
    rules = replace(ANSWERED, answer=replace(ANSWERED.answer, retries=5))
    first = StructuredRetried("msg_1", 1, Failure("invalid_answer", "it is not good"), "Again.")
    again = (MessageStarted("msg_2", "m"), replied("worse", message_id="msg_2"))

    [effect] = decided(calling(replied("bad"), first, *again), rules)

    assert isinstance(effect, Record)
    [second] = effect.events
    assert isinstance(second, StructuredRetried)
    assert (second.message_id, second.attempt) == ("msg_2", 2)


def test_an_answer_that_never_fits_leaves_the_run_incomplete() -> None:
    misfit = Failure("invalid_answer", "it is not good", retryable=True)
    log = calling(
        replied("bad"),
        StructuredRetried("msg_1", 1, misfit, "Again."),
        MessageStarted("msg_2", "openai/gpt-5-mini"),
        replied("worse", message_id="msg_2"),
    )

    assert decided(log, ANSWERED) == [
        End(RunIncomplete("structured_output", Output("worse"), USED + USED), (StepCompleted(1),))
    ]


def test_corrections_cost_no_step() -> None:
    rules = replace(ANSWERED, limits=Limits(max_steps=1))
    misfit = Failure("invalid_answer", "it is not good", retryable=True)
    log = calling(replied("bad"), StructuredRetried("msg_1", 1, misfit, "Again."))

    assert decided(log, rules) == [CallModel("msg_2", ())]


def test_a_terminal_result_that_fits_is_parsed_too() -> None:
    log = requesting(running(), replace(DONE, result="good", terminal=True))

    [effect] = decided(log, ANSWERED)

    assert isinstance(effect, End)
    assert isinstance(effect.event, RunCompleted)
    assert effect.event.output == Output("good", {"text": "good"})


def test_a_terminal_result_ends_the_run_once_what_else_has_begun_is_over() -> None:
    terminal = replace(DONE, terminal=True)
    log = requesting(running(), running(1), terminal, calls=3)

    assert decided(log, allowing()) == [Record((ToolCallFailed("call_1_2", SKIPPED),))]
    log = [*log, ToolCallFailed("call_1_2", SKIPPED)]
    assert decided(log, allowing()) == []
    [end] = decided([*log, replace(DONE, call_id="call_1_1", result="no")], allowing())
    assert isinstance(end, End)
    assert end.event == RunCompleted(Output("ok"), USED, "terminal")


def test_the_end_takes_back_what_people_are_asked_and_says_what_is_not_known() -> None:
    terminal = replace(DONE, terminal=True)
    unknown = replace(asked(2), kind="outcome")
    log = requesting(running(), asked(1), running(2), CRASHED, unknown, terminal, calls=3)

    assert decided(log, asking()) == [
        Record(
            (
                ApprovalWithdrawn("apr_1", "call_1_1"),
                ToolCallFailed("call_1_1", SKIPPED),
                ApprovalWithdrawn("apr_2", "call_1_2"),
                ToolCallFailed("call_1_2", UNKNOWN_OUTCOME),
            )
        )
    ]


# --- One call after the other ---


def test_calls_are_made_one_after_the_other_where_the_agent_wants_that() -> None:
    rules = replace(allowing(), parallel_tools=False)

    [first] = decided(requesting(calls=3), rules)
    [second] = decided(requesting(running(), DONE, calls=3), rules)

    assert isinstance(first, CallTool)
    assert isinstance(second, CallTool)
    assert (first.call.id, second.call.id) == ("call_1_0", "call_1_1")
    assert decided(requesting(running(), calls=3), rules) == []


def test_a_question_holds_up_the_calls_behind_it_then() -> None:
    rules = replace(asking(), parallel_tools=False)

    [park] = decided(requesting(asked(), calls=2), rules)

    assert getattr(park, "pending", None) == ("apr_0",)


# --- Choosing alone ---


def test_an_agent_that_only_chooses_answers_with_its_calls() -> None:
    rules = replace(allowing(), routing_only=True)

    [effect] = decided(requesting(calls=2), rules)

    assert isinstance(effect, End)
    assert effect.event == RunCompleted(
        Output("On it.", {"calls": [{"name": "refund", "arguments": {"order": 7}}] * 2}),
        USED,
        "routed",
    )
    assert effect.events == (
        ToolCallFailed("call_1_0", ROUTED),
        ToolCallFailed("call_1_1", ROUTED),
        StepCompleted(1),
    )


def test_a_choice_that_cannot_be_made_goes_back_to_the_model() -> None:
    unknown = Failure("unknown_tool", "there is no such tool")
    rules = replace(ruled(Reject(unknown)), routing_only=True)

    assert decided(requesting(), rules) == [
        Record((ToolCallFailed("call_1_0", unknown), StepCompleted(1)))
    ]


def test_what_an_agent_chooses_is_looked_at_before_it_is_its_answer() -> None:
    rules = replace(allowing(), routing_only=True, screens_calls=True)
    looking = [ToolCallScreening(f"call_1_{index}") for index in range(2)]

    looks = decided(requesting(calls=2), rules)

    assert [type(look) for look in looks] == [ScreenCall, ScreenCall]
    assert decided(requesting(*looking, calls=2), rules) == []
    assert decided(requesting(*looking, ToolCallScreened("call_1_0"), calls=2), rules) == []


def test_what_the_guardrails_refuse_is_no_choice_and_what_they_change_is_chosen_changed() -> None:
    rules = replace(allowing(), routing_only=True, screens_calls=True)
    seen = (
        ToolCallScreened("call_1_0", blocked="not yours"),
        ToolCallScreened("call_1_1", arguments={"order": 8}),
    )
    refused = ToolCallFailed("call_1_0", Failure("guardrail_blocked", "not yours"))

    assert decided(requesting(*seen, calls=2), rules) == [Record((refused,))]
    [effect] = decided(requesting(*seen, refused, calls=2), rules)

    assert isinstance(effect, End)
    assert isinstance(effect.event, RunCompleted)
    assert effect.event.output.parsed == {
        "calls": [{"name": "refund", "arguments": {"order": 8}}]
    }  # fmt: skip


def test_where_the_guardrails_refuse_every_choice_the_model_is_asked_again() -> None:
    rules = replace(allowing(), routing_only=True, screens_calls=True)
    refused = ToolCallFailed("call_1_0", Failure("guardrail_blocked", "not yours"))
    log = requesting(ToolCallScreened("call_1_0", blocked="not yours"), refused)

    assert decided(log, rules) == [Record((StepCompleted(1),))]


def test_what_can_be_chosen_is_even_if_something_else_cannot() -> None:
    def judge(call: ToolCall) -> Run | Reject:
        return Run({}, "once") if call.id == "call_1_0" else Reject(SKIPPED)

    [effect] = decided(requesting(calls=2), replace(ruled(judge), routing_only=True))

    assert isinstance(effect, End)
    assert isinstance(effect.event, RunCompleted)
    assert effect.event.output.parsed == {"calls": [{"name": "refund", "arguments": {}}]}


# --- The input, looked at ---

SCREENING = replace(allowing(), screens_input=True)


def test_the_input_is_looked_at_before_any_model_is_called() -> None:
    assert decided(begun(), SCREENING) == [ScreenInput()]
    assert decided(begun(InputScreening()), SCREENING) == []


def test_an_input_that_is_blocked_ends_the_run_and_is_remembered_by_nobody() -> None:
    log = begun(InputScreening(), InputScreened(blocked="rude"))

    assert decided(log, SCREENING) == [End(RunIncomplete("guardrail", Output(""), fold(log).usage))]
    assert transcript(fold(log)) == ()


def test_an_input_that_was_changed_is_what_the_model_reads() -> None:
    log = begun(InputScreened(input=(InputMessage("user", "Refund [order]"),)))

    [effect] = decided(log, SCREENING)

    assert isinstance(effect, CallModel)
    assert transcript(fold(log)) == (Message("user", "Refund [order]"),)


def test_a_look_at_the_input_that_a_crash_interrupted_is_taken_again() -> None:
    assert decided(begun(InputScreening(), CRASHED), SCREENING) == [ScreenInput()]


# --- Runs that can't go on ---


@pytest.mark.parametrize("log", [calling(), requesting(running())])
def test_a_run_that_is_failing_stops_what_it_has_in_hand(log: list[Event]) -> None:
    failing = RunFailing(Failure("stop_rule_failed", "it raised"))

    [effect] = decided([*log, failing], allowing())

    assert type(effect).__name__ == "Cancel"
