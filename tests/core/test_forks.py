"""A run that goes on from the middle of another one: what its state is, and what it decides."""

import pytest

from milepost.core.agents import Limits
from milepost.core.canonical import call_digest
from milepost.core.context import NOTHING_EARLIER
from milepost.core.decide import decide
from milepost.core.effects import AskApproval, CallModel, CallTool, CountCall, End, Record
from milepost.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    ForkedCall,
    ForkPoint,
    InputMessage,
    RunCompleted,
    RunForked,
    RunIncomplete,
    RunQueued,
    RunStarted,
    StepCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallInterrupted,
)
from milepost.core.evolve import fold
from milepost.core.messages import Message, ToolCall
from milepost.core.open_call import CallStatus
from milepost.core.policy import Counted, Terms
from milepost.core.prompt import prompt
from milepost.core.rulings import Count, Rules, Run
from tests.core.logs import NOW_MS, REJECTING, allowing, asking, ruled
from tests.core.world import CLERK

REFUND = ToolCall("call_3_0", "refund", {"order": 7})
DIGEST = call_digest("refund", {"order": 7})
WHY = "run run_0 has made this very call at its event 12"
PAST = (
    Message("user", "Refund order 7"),
    Message("assistant", "On it.", calls=(REFUND,)),
)


def forked(*calls: ForkedCall, **changes: object) -> RunForked:
    """Return what a fork within the third step of a run goes on from."""
    fields = {"step": 3, "step_open": True, "replied": True, **changes}
    return RunForked("run_0", 9, PAST, calls=calls, **fields)  # type: ignore[arg-type]  # by the tests


def begun(event: RunForked, *later: Event, said: str = "") -> list[Event]:
    given = (InputMessage("user", said),) if said else ()
    queued = RunQueued("clerk", "agt_1", 1, "ses_2", given, forked_from=ForkPoint("run_0", 9))
    return [queued, event, RunStarted(1, "w1"), *later]


def decided(event: RunForked, rules: Rules, *later: Event, said: str = "") -> tuple[object, ...]:
    return decide(fold(begun(event, *later, said=said)), rules, NOW_MS)


@pytest.mark.parametrize(
    ("step_open", "replied", "before"), [(True, False, 2), (True, True, 3), (False, False, 3)]
)
def test_a_step_counts_as_the_forks_own_if_its_model_is_still_to_answer_there(
    *, step_open: bool, replied: bool, before: int
) -> None:
    state = fold(begun(forked(step_open=step_open, replied=replied)))

    assert (state.step, state.steps_before) == (3, before)


def test_a_fork_stands_where_the_other_run_stood() -> None:
    event = forked(finish_reason="length", guarded={DIGEST: WHY})

    state = fold(begun(event, said="And order 8?"))

    assert state.messages == (*PAST, Message("user", "And order 8?"))
    assert (state.inherited, state.replied, state.finish_reason) == (len(PAST), True, "length")
    assert state.guarded == {DIGEST: WHY}


def test_a_fork_of_a_run_that_was_not_answered_is_to_be_answered() -> None:
    state = fold(begun(forked(replied=False)))

    assert (state.step_open, state.replied) == (True, False)


def test_a_result_that_the_other_run_had_is_what_it_was_there() -> None:
    done = ForkedCall(REFUND, "done", "a long receipt", terminal=True, long=14)

    call = fold(begun(forked(done))).calls[REFUND.id]

    assert (call.status, call.content, call.whole) == (
        CallStatus.DONE,
        "a long receipt",
        "a long receipt",
    )
    assert (call.terminal, call.long) == (True, 14)


def test_only_what_is_said_to_the_fork_itself_is_to_be_screened() -> None:
    assert fold(begun(forked())).screened
    assert not fold(begun(forked(), said="And order 8?")).screened


def test_a_call_that_had_not_begun_is_judged_anew() -> None:
    [run] = decided(forked(ForkedCall(REFUND, "requested")), allowing())
    [ask] = decided(forked(ForkedCall(REFUND, "requested")), asking())
    assert isinstance(run, CallTool)
    assert isinstance(ask, AskApproval)


def test_a_call_that_the_other_run_has_made_since_is_asked_about() -> None:
    event = forked(ForkedCall(REFUND, "requested"), guarded={DIGEST: WHY})
    [ask] = decided(event, allowing())
    assert isinstance(ask, AskApproval)
    assert (ask.digest, ask.reason) == (DIGEST, WHY)


def test_a_guarded_call_that_is_granted_is_asked_of_those_whom_its_rule_names() -> None:
    event = forked(ForkedCall(REFUND, "requested"), guarded={DIGEST: WHY})
    terms = Terms(approvers=("scope:finance",), self_approval=False)
    [ask] = decided(event, ruled(Run({"order": 7}, "once", terms=terms)))
    assert isinstance(ask, AskApproval)
    assert ask.terms == terms


def test_a_guarded_call_is_counted_first_where_a_rule_wants_it_counted() -> None:
    wanted = (Counted("often", "tenant", 60, 3),)
    event = forked(ForkedCall(REFUND, "requested"), guarded={DIGEST: WHY})
    assert decided(event, ruled(Count({"order": 7}, wanted))) == (CountCall(REFUND, wanted),)


def test_a_question_that_is_put_anyway_says_so_too() -> None:
    event = forked(ForkedCall(REFUND, "requested"), guarded={DIGEST: WHY})
    [ask] = decided(event, asking())
    assert isinstance(ask, AskApproval)
    assert ask.reason == f"policy: ask *; {WHY}"


def test_a_call_that_only_reads_is_made() -> None:
    event = forked(ForkedCall(REFUND, "requested"), guarded={DIGEST: WHY})
    [run] = decided(event, allowing("read"))
    assert isinstance(run, CallTool)


def test_the_same_tool_with_other_arguments_is_not_asked_about() -> None:
    other = ToolCall("call_3_0", "refund", {"order": 8})
    event = forked(ForkedCall(other, "requested"), guarded={DIGEST: WHY})
    [run] = decided(event, allowing())
    assert isinstance(run, CallTool)


def test_a_yes_lets_the_guarded_call_be_made_and_a_no_is_remembered() -> None:
    event = forked(ForkedCall(REFUND, "requested"), guarded={DIGEST: WHY})
    asked = ApprovalRequested(
        "apr_1", "call_3_0", "refund", {"order": 7}, DIGEST, "refund(7)", WHY, NOW_MS
    )
    yes = ApprovalDecided("apr_1", "call_3_0", "approve", "ann")
    no = ApprovalDecided("apr_1", "call_3_0", "deny", "ann", "once is enough")
    [run] = decided(event, allowing(), asked, yes)
    [deny] = decided(event, allowing(), asked, no)
    assert isinstance(run, CallTool)
    assert run.approved_by == "ann"
    assert deny == Record((ToolCallDenied("call_3_0", "ann", "once is enough"),))


def test_a_call_that_had_begun_is_not_made_again() -> None:
    [record] = decided(forked(ForkedCall(REFUND, "unknown")), allowing("idempotent"))
    assert isinstance(record, Record)
    assert [type(event) for event in record.events] == [ToolCallInterrupted, ToolCallFailed]


def test_people_are_asked_what_came_of_a_call_that_they_had_approved() -> None:
    [ask] = decided(forked(ForkedCall(REFUND, "unknown", by="ann")), allowing())
    assert isinstance(ask, AskApproval)
    assert ask.kind == "outcome"


def test_a_result_is_what_the_other_run_brought() -> None:
    state = fold(begun(forked(ForkedCall(REFUND, "done", "refunded", terminal=True))))
    assert state.calls["call_3_0"].status is CallStatus.DONE
    [end] = decided(forked(ForkedCall(REFUND, "done", "refunded", terminal=True)), allowing())
    assert isinstance(end, End)
    assert isinstance(end.event, RunCompleted)
    assert end.event.output.text == "refunded"


@pytest.mark.parametrize(
    ("event", "left"),
    [
        (forked(step_open=False), 1),
        (forked(step_open=True, replied=False), 1),
        (forked(step_open=False, step=6), 1),
    ],
)
def test_steps_are_counted_from_the_point_on(event: RunForked, left: int) -> None:
    none_left = Limits(max_steps=0)
    [call] = decided(event, Rules(allowing().judge, Limits(max_steps=left)), said="Go on.")
    assert isinstance(call, CallModel)
    if not event.step_open:
        [end] = decided(event, Rules(allowing().judge, none_left), said="Go on.")
        assert isinstance(end, End)
        assert isinstance(end.event, RunIncomplete)


def test_the_model_is_shown_what_was_said_before_and_then_what_is_new() -> None:
    state = fold(begun(forked(step_open=False), said="Go on."))
    shown = prompt(CLERK, NOTHING_EARLIER, state)
    assert [turn.content for turn in shown] == ["Be kind.", "Refund order 7", "On it.", "Go on."]
    assert state.usage.model_calls == 0


@pytest.mark.parametrize("content", ["refunded", "Error (tool_failed): it broke"])
def test_what_a_call_came_to_stands_although_its_tool_is_gone(content: str) -> None:
    [record] = decided(forked(ForkedCall(REFUND, "done", content)), REJECTING)
    assert record == Record((StepCompleted(3),))
    state = fold(begun(forked(ForkedCall(REFUND, "done", content)), StepCompleted(3)))
    assert state.messages[-1] == Message("tool", content, call_id="call_3_0")
