"""What is said to a run that is under way: when the model reads it, and what it changes."""

from dataclasses import replace

from milepost.core.agents import Compression, Limits, LoopDetection
from milepost.core.approvers import OPEN_ID
from milepost.core.decide import decide
from milepost.core.effects import (
    CallModel,
    CallTool,
    CompressResult,
    Effect,
    End,
    Record,
    ScreenInput,
)
from milepost.core.events import (
    BudgetExceeded,
    Event,
    InputScreened,
    InputScreening,
    MessageAborted,
    MessageStarted,
    Output,
    RunCompleted,
    RunIncomplete,
    SteerApplied,
    SteerReceived,
    StepCompleted,
    StepStarted,
    StructuredRetried,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
    ToolResultCompressed,
)
from milepost.core.evolve import fold
from milepost.core.messages import Image, Message
from milepost.core.rulings import AnswerRule, Misfits, Rules, Run
from milepost.core.state import State, transcript, vetted
from tests.core.logs import (
    BUSY,
    NOW_MS,
    QUEUED,
    REFUSED,
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

FASTER = SteerReceived("ste_1", "Faster.", by="ann")
CHEAPER = SteerReceived("ste_2", "And cheaper.", (Image("https://a.example/b.png"),), "bob")
BOTH = SteerApplied(("ste_1", "ste_2"))
DONE = ToolCallCompleted("call_1_0", "ok", 3)


def decided(log: list[Event], rules: Rules | None = None) -> list[Effect]:
    return list(decide(fold(log), rules or allowing(), NOW_MS))


def within(**bounds: int) -> Rules:
    return ruled(lambda call: Run(call.arguments, "once"), Limits(**bounds))  # type: ignore[arg-type]


def said(state: State) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in transcript(state)]


# --- When it is read ---


def test_what_was_not_read_yet_is_kept_for_later() -> None:
    state = fold(begun(FASTER, CHEAPER, SteerApplied(("ste_1",))))

    assert state.messages[-1] == Message("user", "Faster.")
    assert state.steers == (CHEAPER,)


def test_whoever_the_model_was_told_something_by_has_a_say_in_the_run_from_then_on() -> None:
    told = replace(FASTER, key="key_ann"), replace(CHEAPER, key="key_bob")
    refused = SteerReceived("ste_3", "", by="cas", screened=True, blocked="no", key="key_cas")

    states = [
        fold(begun(*told, refused, *more)).speakers
        for more in ((), (SteerApplied(("ste_1",)),), (BOTH,))
    ]

    assert states == [frozenset(), {"key_ann"}, {"key_ann", "key_bob"}]


def test_nobody_knows_who_said_what_an_earlier_version_wrote_down() -> None:
    assert fold(begun(FASTER, SteerApplied(("ste_1",)))).speakers == {OPEN_ID}


def test_a_child_s_task_comes_of_whoever_told_something_to_the_runs_above_it() -> None:
    below = replace(QUEUED, speakers=("key_ann",))

    assert fold([below]).speakers == {"key_ann"}


def test_what_was_said_before_the_first_step_is_read_with_the_input() -> None:
    log = begun(FASTER)

    assert decided(log) == [Record((SteerApplied(("ste_1",)),))]
    [effect] = decided([*log, SteerApplied(("ste_1",))])
    assert isinstance(effect, CallModel)
    assert said(fold([*log, SteerApplied(("ste_1",))])) == [
        ("user", "Refund order 7"),
        ("user", "Faster."),
    ]


def test_what_was_said_while_the_model_speaks_waits_for_the_end_of_its_reply() -> None:
    assert decided(calling(FASTER)) == []


def test_an_answer_is_not_the_last_word_while_something_was_said_meanwhile() -> None:
    log = calling(FASTER, replied())

    assert decided(log) == [Record((StepCompleted(1),))]
    assert decided([*log, StepCompleted(1)]) == [Record((SteerApplied(("ste_1",)),))]
    [effect] = decided([*log, StepCompleted(1), SteerApplied(("ste_1",))])
    assert isinstance(effect, CallModel)
    assert effect.opening == (StepStarted(2),)


def test_all_that_was_said_is_read_at_once_and_in_order() -> None:
    log = calling(FASTER, CHEAPER, replied(), StepCompleted(1))

    assert decided(log) == [Record((BOTH,))]
    state = fold([*log, BOTH])
    assert state.messages[-2:] == (
        Message("user", "Faster."),
        Message("user", "And cheaper.", images=CHEAPER.images),
    )
    assert state.steers == ()


def test_nothing_is_read_between_a_call_and_its_result() -> None:
    log = requesting(FASTER)

    [effect] = decided(log)
    assert isinstance(effect, CallTool)
    log = [*log, running(), CHEAPER]
    assert decided(log) == []
    assert decided([*log, DONE]) == [Record((StepCompleted(1),))]
    log = [*log, DONE, StepCompleted(1)]
    assert decided(log) == [Record((BOTH,))]
    assert [role for role, _ in said(fold([*log, BOTH]))] == [
        "user", "assistant", "tool", "user", "user",
    ]  # fmt: skip


def test_a_run_that_waits_for_a_person_goes_on_waiting() -> None:
    log = requesting(asked(), FASTER)

    [effect] = decided(log, asking())

    assert (effect, fold(log).steers) == (decided(requesting(asked()), asking())[0], (FASTER,))


def test_it_is_read_by_the_model_that_is_asked_again_after_a_failure() -> None:
    log = calling(FASTER, MessageAborted("msg_1", "busy", BUSY))

    assert decided(log) == [Record((SteerApplied(("ste_1",)),))]
    [effect] = decided([*log, SteerApplied(("ste_1",))])
    assert isinstance(effect, CallModel)
    assert effect.message_id == "msg_2"


def test_it_is_not_read_where_no_model_is_asked_any_more() -> None:
    log = calling(FASTER, MessageAborted("msg_1", "no such model", REFUSED))

    [effect] = decided(log)

    assert isinstance(effect, End)


def test_the_guardrails_look_at_the_input_before_anything_is_read() -> None:
    rules = replace(allowing(), screens_input=True)

    assert decided(begun(FASTER), rules) == [ScreenInput()]
    screened = begun(InputScreening(), FASTER, InputScreened())
    assert decided(screened, rules) == [Record((SteerApplied(("ste_1",)),))]


def test_what_the_guardrails_refused_nobody_reads() -> None:
    refused = SteerReceived("ste_1", "", screened=True, blocked="too rude")
    log = calling(refused, replied())

    [effect] = decided(log)

    assert isinstance(effect, End)
    assert fold(log).steered == {"ste_1"}


# --- What it changes ---


def test_each_time_the_run_has_all_of_the_agent_s_steps_again() -> None:
    rules = within(max_steps=1)
    log = requesting(running(), DONE, StepCompleted(1))

    assert decided(log, rules) == [End(RunIncomplete("max_steps", Output("On it."), USED))]
    log = [*log, FASTER]
    assert decided(log, rules) == [Record((SteerApplied(("ste_1",)),))]
    log = [*log, SteerApplied(("ste_1",))]
    [effect] = decided(log, rules)
    assert isinstance(effect, CallModel)
    log += [StepStarted(2), MessageStarted("msg_2", "m"), replied("Now.", message_id="msg_2")]
    [effect] = decided(log, rules)
    assert isinstance(effect, End)


def test_the_step_in_which_a_failed_call_is_tried_again_is_one_of_them() -> None:
    log = calling(FASTER, MessageAborted("msg_1", "busy", BUSY), SteerApplied(("ste_1",)))

    assert fold(log).steps_before == 0


def test_a_run_within_no_bound_any_more_ends_and_what_was_said_stands_behind_it() -> None:
    rules = within(max_tokens=15)
    over = BudgetExceeded("run", "max_tokens", 15, 15)
    log = calling(FASTER, replied(), StepCompleted(1))

    assert decided(log, rules) == [Record((over,))]
    [end] = decided([*log, over], rules)
    assert end == End(RunIncomplete("budget", Output("On it."), USED))
    assert said(fold([*log, over, end.event])) == [
        ("user", "Refund order 7"),
        ("assistant", "On it."),
        ("user", "Faster."),
    ]


def test_whoever_is_told_something_new_is_in_no_circle() -> None:
    rules = replace(allowing(), loop_detection=LoopDetection(repeat=2, action="stop"))
    again = (StepStarted(2), MessageStarted("msg_2", "m"), replied(message_id="msg_2"))
    done = ToolCallCompleted("call_2_0", "ok", 3)
    log = requesting(running(), DONE, StepCompleted(1), *again)
    log += [requested(step=2), ToolCallStarted("call_2_0", 1, "once"), done, StepCompleted(2)]

    [end] = decided(log, rules)
    [effect] = decided([*log, FASTER, SteerApplied(("ste_1",))], rules)

    assert isinstance(end, End)
    assert isinstance(effect, CallModel)


def test_a_structured_answer_is_not_put_right_where_something_else_is_asked_by_now() -> None:
    rules = replace(allowing(), answer=AnswerRule(lambda _: Misfits("no"), 2))

    assert isinstance(decided(calling(replied()), rules)[0], Record)
    corrected = decided(calling(replied()), rules)[0]
    assert isinstance(corrected, Record)
    assert isinstance(corrected.events[0], StructuredRetried)
    assert decided(calling(FASTER, replied()), rules) == [Record((StepCompleted(1),))]


def test_a_result_that_would_be_the_answer_is_none_where_more_was_said() -> None:
    done = ToolCallCompleted("call_1_0", "bye", 3, terminal=True)

    assert decided(requesting(running(), FASTER, done)) == [Record((StepCompleted(1),))]
    [end] = decided(requesting(running(), done))
    assert isinstance(end, End)
    assert isinstance(end.event, RunCompleted)


def test_a_long_result_beside_it_is_made_shorter_where_the_model_goes_on_to_read_it() -> None:
    rules = replace(allowing(), compression=Compression("test/small", threshold_chars=3))
    long = ToolCallCompleted("call_1_1", "long", 3)
    done = ToolCallCompleted("call_1_0", "goodbye", 3, terminal=True)
    both = (running(), running(1), done, long)

    [effect] = decided(requesting(*both, FASTER, calls=2), rules)
    assert isinstance(effect, CompressResult)
    assert effect.call.id == "call_1_1"
    begun = (*both, FASTER, effect.opening)
    assert decided(requesting(*begun, calls=2), rules) == []
    short = ToolResultCompressed("call_1_1", "sh", 4, "test/small", USED)
    assert decided(requesting(*begun, short, calls=2), rules) == [Record((StepCompleted(1),))]
    [end] = decided(requesting(*both, calls=2), rules)
    assert isinstance(end, End)


def test_an_agent_that_only_chooses_chooses_anew() -> None:
    rules = replace(allowing(), routing_only=True)

    [effect] = decided(requesting(FASTER), rules)

    assert isinstance(effect, Record)
    assert isinstance(effect.events[0], ToolCallFailed)
    assert effect.events[-1] == StepCompleted(1)


# --- What is left ---


def test_what_no_guardrail_has_looked_at_is_left_out_for_those_who_have_them() -> None:
    looked_at = replace(CHEAPER, screened=True)
    over = RunIncomplete("budget", Output(""), USED)
    state = fold(begun(looked_at, FASTER, over))

    assert [content for _, content in said(state)] == ["Refund order 7", "And cheaper.", "Faster."]
    assert [each.content for each in vetted(state)] == ["Refund order 7", "And cheaper."]


def test_what_nobody_has_read_yet_is_no_part_of_what_a_model_is_shown() -> None:
    assert said(fold([QUEUED, FASTER])) == [("user", "Refund order 7")]
