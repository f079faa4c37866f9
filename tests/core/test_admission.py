"""One call's way in: what the guardrails say of it, and when they are asked."""

from dataclasses import replace

import pytest

from milepost.core.agents import Compression, Limits
from milepost.core.canonical import call_digest
from milepost.core.decide import decide
from milepost.core.effects import (
    AskApproval,
    CallTool,
    CompressResult,
    CountCall,
    Effect,
    Record,
    ScreenCall,
)
from milepost.core.events import (
    Event,
    Failure,
    ToolCallCompleted,
    ToolCallCounted,
    ToolCallCounting,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallScreened,
    ToolCallScreening,
    ToolCallStarted,
)
from milepost.core.evolve import fold
from milepost.core.json import Json
from milepost.core.messages import ToolCall
from milepost.core.policy import NOBODY_COUNTED, Counted
from milepost.core.rulings import Count, Counts, Rules, Ruling, Run
from tests.core.logs import (
    CRASHED,
    NOW_MS,
    REFUND,
    REFUSING,
    allowing,
    approved,
    asked,
    asking,
    calling,
    replied,
    requested,
    requesting,
    ruled,
    running,
)

CALL = ToolCall("call_1_0", "refund", REFUND)
CHANGED: dict[str, Json] = {"order": 8}
WANTED = (Counted("often", "tenant", 60, 3),)
EDITED = (
    ToolCallScreened("call_1_0"),
    asked(),
    replace(approved(), arguments=CHANGED, digest=call_digest("refund", CHANGED)),
)


def screened(rules: Rules) -> Rules:
    """Return the rules of an agent whose calls are looked at."""
    return replace(rules, screens_calls=True)


def decided(rules: Rules, *later: Event) -> list[Effect]:
    return list(decide(fold(requesting(*later)), rules, NOW_MS))


def test_a_call_is_looked_at_before_it_is_made() -> None:
    assert decided(screened(allowing())) == [ScreenCall(CALL, REFUND)]


def test_it_is_waited_for_while_it_is_looked_at() -> None:
    assert decided(screened(allowing()), ToolCallScreening("call_1_0")) == []


def test_what_nobody_objects_to_is_made() -> None:
    seen = ToolCallScreened("call_1_0")

    assert decided(screened(allowing()), seen) == [CallTool(CALL, REFUND, "once", 1)]


def test_what_is_blocked_is_not_made_and_the_model_is_told_why() -> None:
    blocked = Failure("guardrail_blocked", "the order is not the user's")

    assert decided(
        screened(allowing()), ToolCallScreened("call_1_0", "the order is not the user's")
    ) == [Record((ToolCallFailed("call_1_0", blocked),))]


def test_a_call_is_made_with_the_arguments_that_the_guardrails_left() -> None:
    changed = ToolCallScreened("call_1_0", arguments=CHANGED)

    [effect] = decided(screened(allowing()), changed)

    assert isinstance(effect, CallTool)
    assert effect.arguments == CHANGED


def test_a_person_is_asked_about_the_arguments_that_the_guardrails_left() -> None:
    changed = ToolCallScreened("call_1_0", arguments=CHANGED)

    [effect] = decided(screened(asking()), changed)

    assert isinstance(effect, AskApproval)
    assert effect.arguments == CHANGED


def test_what_may_not_be_made_anyway_is_not_looked_at() -> None:
    [effect] = decided(screened(REFUSING))

    assert isinstance(effect, Record)
    assert isinstance(effect.events[-1], ToolCallDenied)


def test_what_a_person_approved_is_not_looked_at_again() -> None:
    log = (ToolCallScreened("call_1_0"), asked(), approved())

    [effect] = decided(screened(asking()), *log)

    assert isinstance(effect, CallTool)


def test_what_a_person_edited_is_looked_at_again() -> None:
    [effect] = decided(screened(asking()), *EDITED)

    assert effect == ScreenCall(replace(CALL, arguments=CHANGED), CHANGED)


def test_an_edit_is_not_looked_at_where_nothing_is() -> None:
    [effect] = decided(asking(), *EDITED)

    assert isinstance(effect, CallTool)


def test_an_edit_that_nobody_objects_to_is_made_with_its_approval() -> None:
    log = (*EDITED, ToolCallScreening("call_1_0"), ToolCallScreened("call_1_0"))

    [effect] = decided(screened(asking()), *log)

    assert isinstance(effect, CallTool)
    assert (effect.arguments, effect.approved_by) == (CHANGED, "ann")


def test_an_edit_that_is_blocked_is_not_made_and_the_model_is_told_why() -> None:
    seen = ToolCallScreened("call_1_0", blocked="the order is not the user's")
    blocked = Failure("guardrail_blocked", "the order is not the user's")

    assert decided(screened(asking()), *EDITED, ToolCallScreening("call_1_0"), seen) == [
        Record((ToolCallFailed("call_1_0", blocked),))
    ]


def test_a_person_is_asked_again_of_what_the_guardrails_made_of_an_edit() -> None:
    left: dict[str, Json] = {"order": 9}
    log = (
        *EDITED, ToolCallScreening("call_1_0"), ToolCallScreened("call_1_0", arguments=left)
    )  # fmt: skip

    [effect] = decided(screened(asking()), *log)

    assert isinstance(effect, AskApproval)
    assert effect.arguments == left
    asked_again = replace(asked(), digest=effect.digest, arguments=left)
    [made] = decided(screened(asking()), *log, asked_again, approved())
    assert isinstance(made, CallTool)
    assert made.arguments == left


def test_a_look_at_an_edit_that_a_crash_interrupted_is_taken_again_and_its_approval_kept() -> None:
    lost = (*EDITED, ToolCallScreening("call_1_0"), CRASHED)
    seen = (ToolCallScreening("call_1_0"), ToolCallScreened("call_1_0"))

    [look] = decided(screened(asking()), *lost)
    [effect] = decided(screened(asking()), *lost, *seen)

    assert isinstance(look, ScreenCall)
    assert isinstance(effect, CallTool)


def test_a_look_that_a_crash_interrupted_is_taken_again() -> None:
    lost = (ToolCallScreening("call_1_0"), CRASHED)

    assert decided(screened(allowing()), *lost) == [ScreenCall(CALL, REFUND)]


def test_a_call_that_is_made_again_is_looked_at_where_nobody_has_looked_at_it() -> None:
    log = (running(effect="idempotent"), CRASHED, ToolCallInterrupted("call_1_0", "repeat"))

    assert decided(screened(allowing("idempotent")), *log) == [ScreenCall(CALL, REFUND)]
    [effect] = decided(screened(allowing("idempotent")), *log, ToolCallScreened("call_1_0"))
    assert isinstance(effect, CallTool)


def test_a_tool_gets_what_the_person_said_who_approved_its_call() -> None:
    said = replace(approved(), comment="this once")

    [effect] = decided(asking(), asked(), said)

    assert isinstance(effect, CallTool)
    assert (effect.approved_by, effect.comment) == ("ann", "this once")


@pytest.mark.parametrize(("mended", "shown"), [(REFUND, None), (CHANGED, CHANGED)])
def test_a_call_that_the_client_runs_says_what_became_of_its_arguments(
    mended: dict[str, Json], shown: dict[str, Json] | None
) -> None:
    log = calling(replied(), replace(requested(), kind="client"))

    effects = decide(fold(log), ruled(Run(mended, "once", ("mended",))), NOW_MS)

    started = ToolCallStarted("call_1_0", 1, "once", shown, ("mended",))
    assert effects == (Record((started,)),)


# --- Counts ---


def counting(call: ToolCall, counts: Counts = NOBODY_COUNTED, /) -> Ruling:
    """Rule as a policy does that has to know first how often such calls were made."""
    if not counts:
        return Count(call.arguments, WANTED)
    return Run(call.arguments, "idempotent")


@pytest.mark.parametrize(
    "log",
    [
        (),
        (asked(), approved()),
        (running(effect="idempotent"), CRASHED, ToolCallInterrupted("call_1_0", "repeat")),
    ],
    ids=["asked for", "approved", "lost"],
)
def test_a_call_is_counted_first_and_once_however_far_it_has_come(log: tuple[Event, ...]) -> None:
    counted = (ToolCallCounting("call_1_0"), ToolCallCounted("call_1_0", {"often": 1}))

    assert decided(Rules(counting), *log) == [CountCall(CALL, WANTED)]
    [effect] = decided(Rules(counting), *log, *counted)
    assert isinstance(effect, CallTool)


# --- Long results ---


def test_only_results_that_are_made_shorter_take_of_the_calls_that_the_run_may_make() -> None:
    limits = Limits(max_model_calls=2)
    rules = Rules(allowing().judge, limits, Compression("test/small", threshold_chars=5))
    short, long = (ToolCallCompleted(f"call_1_{n}", "x" * (5 + n), 3) for n in range(2))

    effects = decide(fold(requesting(running(), running(1), short, long, calls=2)), rules, NOW_MS)

    [effect] = effects
    assert isinstance(effect, CompressResult)
    assert effect.call.id == "call_1_1"
