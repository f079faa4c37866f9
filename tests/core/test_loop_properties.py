"""The loop in a world by chance: a run ends or waits, and nothing happens twice."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.core.admission import UNKNOWN_OUTCOME
from milepost.core.canonical import call_digest
from milepost.core.codec import decode, encode
from milepost.core.decide import decide
from milepost.core.events import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalWithdrawn,
    Event,
    InputScreened,
    MemorySummarized,
    MemoryTrimmed,
    MessageAborted,
    MessageCompleted,
    MessageStarted,
    RunCompleted,
    SideCallAborted,
    SteerApplied,
    SteerReceived,
    StepStarted,
    Terminal,
    ToolCallChecked,
    ToolCallCompleted,
    ToolCallCounted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallRequested,
    ToolCallScreened,
    ToolCallStarted,
    ToolResultCompressed,
)
from milepost.core.evolve import fold
from milepost.core.messages import Message
from milepost.core.state import State, transcript
from milepost.core.usage import Usage
from tests.core.world import (
    BY_CLIENT,
    DEADLINE_MS,
    GATED,
    MAX_STEPS,
    OFTEN,
    RATED,
    VARIANTS,
    World,
)

E = TypeVar("E", bound=Event)

PAID = (
    MessageCompleted
    | MessageAborted
    | ToolResultCompressed
    | InputScreened
    | ToolCallScreened
    | MemorySummarized
    | MemoryTrimmed
    | SideCallAborted
)
FAULTS_MAX = 40
TURNS_MAX = 300

SETTINGS = settings(max_examples=200)
CHANCES = st.randoms(use_true_random=False)


def lived(chance: Random, *, faults: int) -> World:
    """Return a world in which faults happened for a while, and then everybody was kind."""
    deadline_ms = chance.choice((None, DEADLINE_MS))
    world = World(chance, chance.choice(VARIANTS), deadline_ms)
    for turn in range(TURNS_MAX):
        world.kind = turn >= faults
        moves = world.moves()
        if not moves:
            return world
        world.happen(chance.choice(moves))
    raise AssertionError(f"the run goes on after {TURNS_MAX} turns: {world.log[-5:]}")


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Return worlds whose runs have ended."""
    return lived(draw(CHANCES), faults=draw(st.integers(0, FAULTS_MAX)))


def orphans(messages: Sequence[Message]) -> list[str]:
    """Return what vendors refuse: a call without its result behind it, or a result of no call."""
    wrong: list[str] = []
    expected: list[str] = []
    for message in messages:
        if message.role == "tool":
            if not expected or message.call_id != expected.pop(0):
                wrong.append(f"result of {message.call_id}")
        else:
            wrong += [f"no result of {call_id}" for call_id in expected]
            expected = [call.id for call in message.calls]
    return wrong + [f"no result of {call_id}" for call_id in expected]


def of(world: World, kind: type[E]) -> list[E]:
    return [event for event in world.log if isinstance(event, kind)]


def named(world: World, *kinds: type) -> Counter[str]:
    """Count the events of these kinds by what they are about."""
    found = (event for event in world.log if isinstance(event, kinds))
    return Counter(str(getattr(event, "approval_id", None) or getattr(event, "message_id", None)
                       or getattr(event, "call_id", None)) for event in found)  # fmt: skip


@SETTINGS
@given(worlds())
def test_every_run_ends_with_exactly_one_terminal_event(world: World) -> None:
    terminal = [event for event in world.log if isinstance(event, Terminal)]

    assert terminal == [world.log[-1]]
    assert decide(world.state, world.rules, world.now_ms) == ()


@SETTINGS
@given(worlds())
def test_a_call_that_may_not_be_repeated_is_begun_once_unless_a_person_says_it_did_not_happen(
    world: World,
) -> None:
    once = Counter(event.call_id for event in of(world, ToolCallStarted) if event.effect == "once")
    executed = Counter(call.call.id for call in world.executed if call.effect == "once")
    said = [each for each in of(world, ApprovalDecided) if each.decision == "not_happened"]
    wanted_again = Counter(each.call_id for each in said)

    assert all(times <= 1 + wanted_again[call_id] for call_id, times in once.items())
    assert all(times <= 1 + wanted_again[call_id] for call_id, times in executed.items())


@SETTINGS
@given(worlds())
def test_a_checkable_call_is_made_again_only_where_it_is_known_not_to_have_acted(
    world: World,
) -> None:
    known = [each.call_id for each in of(world, ToolCallChecked) if each.found == "absent"]
    known += [e.call_id for e in of(world, ApprovalDecided) if e.decision == "not_happened"]
    begun = Counter(e.call_id for e in of(world, ToolCallStarted) if e.effect == "checkable")

    assert all(times <= 1 + Counter(known)[call_id] for call_id, times in begun.items())


@SETTINGS
@given(worlds())
def test_a_call_that_a_rule_counts_is_judged_by_its_count(world: World) -> None:
    counted = {each.call_id: each.counts for each in of(world, ToolCallCounted)}

    for call in world.executed:
        if call.call.name in RATED:
            assert call.call.name in counted[call.call.id]
            often = counted[call.call.id][call.call.name] > OFTEN
            asked = any(each.call_id == call.call.id for each in of(world, ApprovalDecided))
            assert asked or not often


@SETTINGS
@given(worlds())
def test_a_gated_call_runs_only_with_the_arguments_that_were_approved(world: World) -> None:
    shown = {event.call_id: event.digest for event in of(world, ApprovalRequested)}
    decided = {
        event.call_id: event for event in of(world, ApprovalDecided) if event.decision == "approve"
    }

    for call in world.executed:
        assert call.call.name not in {"banned", "unknown"}
        if call.call.name in GATED:
            answer = decided[call.call.id]
            approved = answer.digest or shown[call.call.id]
            assert call_digest(call.call.name, call.arguments) == approved


@SETTINGS
@given(worlds())
def test_the_log_says_with_which_arguments_a_tool_was_run(world: World) -> None:
    told: dict[str, object] = {}
    for event in world.log:
        match event:
            case ToolCallRequested() | ToolCallScreened() | ApprovalDecided() | ToolCallStarted():
                if event.arguments is not None:
                    told[event.call_id] = event.arguments
            case _:
                pass

    last = {call.call.id: call.arguments for call in world.executed}
    assert {call_id: told[call_id] for call_id in last} == last


@SETTINGS
@given(worlds())
def test_the_model_is_never_shown_a_call_without_its_result(world: World) -> None:
    assert [orphans(shown) for shown in world.prompts] == [[]] * len(world.prompts)


@SETTINGS
@given(worlds())
def test_no_part_of_a_log_leaves_an_orphan_in_the_transcript(world: World) -> None:
    state = State()
    for cut in range(len(world.log) + 1):
        state = fold(world.log[:cut])
        assert orphans(transcript(state)) == []


@SETTINGS
@given(worlds())
def test_of_every_call_that_was_begun_the_log_says_at_last_what_came_of_it(world: World) -> None:
    told = named(world, ToolCallCompleted, ToolCallFailed, ToolCallDenied)

    assert named(world, ToolCallStarted).keys() <= told.keys()


@SETTINGS
@given(worlds())
def test_what_was_begun_is_closed_and_what_was_asked_is_settled(world: World) -> None:
    messages = named(world, MessageStarted)
    questions = named(world, ApprovalRequested)
    closed = named(world, ToolCallCompleted, ToolCallFailed, ToolCallInterrupted)

    assert messages == named(world, MessageCompleted, MessageAborted)
    assert questions == named(world, ApprovalDecided, ApprovalExpired, ApprovalWithdrawn)
    assert named(world, ToolCallStarted).keys() <= closed.keys()
    assert set(messages.values()) <= {1}


@SETTINGS
@given(worlds())
def test_a_run_that_ends_has_used_what_its_log_says(world: World) -> None:
    spent = [event.usage for event in world.log if isinstance(event, PAID)]
    ended = [event.usage for event in world.log if isinstance(event, Terminal)]

    assert ended in ([], [sum(spent, start=Usage())])


@SETTINGS
@given(worlds())
def test_the_steps_are_counted_and_bounded(world: World) -> None:
    steps = [event.index for event in world.log if isinstance(event, StepStarted)]

    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) <= MAX_STEPS * (1 + len(of(world, SteerApplied)))


@SETTINGS
@given(worlds())
def test_what_was_said_meanwhile_is_applied_once_and_in_order(world: World) -> None:
    said = [each.message_id for each in of(world, SteerReceived) if each.blocked is None]
    applied = [each for event in of(world, SteerApplied) for each in event.message_ids]

    assert applied == said[: len(applied)]
    assert applied == said or not isinstance(world.log[-1], RunCompleted)
    told = [turn.content for turn in transcript(world.state) if turn.content.startswith("and ")]
    assert told == [f"and {message_id}" for message_id in said], "what came too late stands behind"


@SETTINGS
@given(worlds())
def test_a_model_is_told_at_its_next_call_what_was_said_meanwhile(world: World) -> None:
    unread = 0
    for event in world.log:
        match event:
            case SteerReceived(blocked=None):
                unread += 1
            case SteerApplied(message_ids):
                unread -= len(message_ids)
            case MessageStarted():
                assert unread == 0
            case _:
                pass
    for shown in world.prompts:
        told = [message.content for message in shown if message.content.startswith("and ")]
        assert len(told) == len(set(told))


@SETTINGS
@given(worlds())
def test_a_log_that_was_stored_folds_to_the_same_state(world: World) -> None:
    stored = [(event.type, encode(event)) for event in world.log]
    read = [decode(kind, data) for kind, data in stored]

    assert fold(event for event in read if event) == world.state


@SETTINGS
@given(CHANCES, st.integers(0, FAULTS_MAX))
def test_what_is_in_hand_is_not_decided_again(chance: Random, turns: int) -> None:
    world = World(chance)
    for _ in range(turns):
        if not (moves := world.moves()):
            break
        world.happen(chance.choice(moves))

    assert decide(world.state, world.rules, world.now_ms) == ()


# --- One run, crashed everywhere ---


def errands(state: State) -> Sequence[str] | None:
    """Return the calls that a model asks for in each step of the run that is crashed."""
    return {1: ("look", "put", "pay"), 2: ("mail", "look")}.get(state.step)


def crashed_after(events: int | None) -> World:
    """Play the run to its end in a fixed order, with a crash once it has that many events."""
    world = World(Random(1), script=errands, kind=True)
    for _ in range(TURNS_MAX):
        if events is not None and len(world.log) >= events and world.held and not world.ended:
            world.crash()
            events = None
        if not (moves := world.moves()):
            return world
        world.happen(moves[0])
    raise AssertionError("the run does not end")


WHOLE = crashed_after(None)


def results(log: Sequence[Event]) -> dict[str, str]:
    return {turn.call_id or "": turn.content for turn in transcript(fold(log)) if turn.call_id}


@pytest.mark.parametrize("events", range(2, len(WHOLE.log)))
def test_a_run_that_crashed_anywhere_comes_to_the_same_end(events: int) -> None:
    world = crashed_after(events)

    ending = world.log[-1]
    assert isinstance(ending, RunCompleted)
    assert isinstance(WHOLE.log[-1], RunCompleted)
    assert ending.output == WHOLE.log[-1].output
    unknown = {
        call_id
        for call_id, told in results(world.log).items()
        if told == f"Error ({UNKNOWN_OUTCOME.code}): {UNKNOWN_OUTCOME.message}"
    }
    assert unknown <= {"call_1_2", "call_2_0"}, "only what may not be repeated is unknown"
    assert {name: told for name, told in results(world.log).items() if name not in unknown} == {
        name: told for name, told in results(WHOLE.log).items() if name not in unknown
    }
    assert Counter(call.call.id for call in world.executed if call.effect == "once") == {
        "call_1_2": 1,
        "call_2_0": 1,
    }


@SETTINGS
@given(worlds())
def test_the_first_terminal_result_is_the_answer_and_no_model_is_asked_after_it(
    world: World,
) -> None:
    answered = [
        at
        for at, event in enumerate(world.log)
        if isinstance(event, ToolCallCompleted) and event.terminal
    ]
    if not answered or of(world, SteerReceived):
        return  # Whoever was told something more is asked again.

    behind = world.log[answered[0] :]

    assert not any(isinstance(event, MessageStarted) for event in behind)
    end = world.log[-1]
    if isinstance(end, RunCompleted):
        assert end.finish_reason == "terminal"
        assert end.output.text == '{"did":"close"}'


@SETTINGS
@given(worlds())
def test_a_long_result_is_read_only_in_its_shorter_form(world: World) -> None:
    compressed = Counter(event.call_id for event in of(world, ToolResultCompressed))
    read = {message.content for shown in world.prompts for message in shown}

    assert all(times == 1 for times in compressed.values())
    assert not read & {'{"did":"look"}', '{"did":"mail"}', '{"did":"ping"}'}
    screened = sum(event.usage.model_calls for event in of(world, InputScreened))
    screened += sum(event.usage.model_calls for event in of(world, ToolCallScreened))
    asked = len(of(world, MessageCompleted)) + len(of(world, MemorySummarized)) + screened
    assert world.state.usage.model_calls == asked + len(compressed)


@SETTINGS
@given(worlds())
def test_a_call_that_the_client_runs_is_never_run_here(world: World) -> None:
    assert not {call.call.name for call in world.executed} & BY_CLIENT
