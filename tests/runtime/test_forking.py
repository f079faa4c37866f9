"""Forks of runs by chance, at every point: nothing is done again, and nothing unasked."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.core.admission import UNKNOWN_OUTCOME
from milepost.core.canonical import call_digest
from milepost.core.decide import decide
from milepost.core.effects import AskApproval, CallModel, CallTool
from milepost.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    InputScreened,
    RunQueued,
    StepStarted,
    Terminal,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
)
from milepost.core.evolve import evolve, fold
from milepost.core.json import Json
from milepost.core.messages import Image, Message, Sealed
from milepost.core.state import State
from milepost.runtime.forking import CallsOpenError, Forking, NothingToContinueError, forking
from milepost.telemetry.context import span_id_of, trace_id_of
from milepost.telemetry.spans import SpanFold
from tests.core.test_loop_properties import orphans
from tests.core.world import RULES, VARIANTS
from tests.runtime.histories import History, history, said, stored
from tests.runtime.test_replay import acted, played

E = TypeVar("E", bound=Event)

SETTINGS = settings(max_examples=300, deadline=None)
CHANCES = st.integers(0, 2**32).map(Random)  # Two runs take more chance than an example has.
BUSY = (["pay", "look"], ["put", "pay"], ["book", "mail", "pay"])
KINDLY = Message("assistant", "Kindly.", sealed=(Sealed("openai", {"type": "thinking"}),))
SEEN = Message("user", "Look.", images=(Image("https://pictures.example/1.png"),))


def made_since(parent: History, at_seq: int) -> set[str]:
    """Return the digests of the calls that were made behind the event, but for mere reads."""
    made, state = set(), State()
    for seq, event in enumerate(parent.log, start=1):
        if isinstance(event, ToolCallStarted) and event.effect != "read" and seq > at_seq:
            call = state.calls[event.call_id].call
            made.add(call_digest(call.name, event.arguments or call.arguments))
        state = evolve(state, event)
    return made


def approved(fork: History) -> set[str]:
    """Return the digests of the calls to which somebody said yes."""
    asked = {each.approval_id: each.digest for each in of(fork, ApprovalRequested)}
    return {
        each.digest or asked[each.approval_id]
        for each in of(fork, ApprovalDecided)
        if each.decision in {"approve", "not_happened"}
    }


def of(lived: History, kind: type[E]) -> list[E]:
    return [event for event in lived.log if isinstance(event, kind)]


def seq_of(lived: History, kind: str, which: int = 0) -> int:
    """Return where the log has the event."""
    return [seq for seq, event in enumerate(lived.log, start=1) if event.type == kind][which]


def went_on(begun: Forking, script: Sequence[Sequence[str]] = ()) -> History:
    """Return the run of the fork, whose model asks for these calls, and then for no more."""
    asked = iter(script)
    chance = Random(0)
    lived = History(chance, RULES, forked=begun, script=lambda _: next(asked, None), kind=True)
    lived.live(faults=0, chance=chance)
    return lived


def statuses(begun: Forking) -> Mapping[str, str]:
    """Return how far the calls of the open step had come, by their tools."""
    return {forked.call.name: forked.status for forked in begun.forked.calls}


@SETTINGS
@given(CHANCES, st.integers(0, 30))
def test_a_fork_anywhere_comes_to_an_end_and_does_nothing_again_unasked(
    chance: Random, faults: int
) -> None:
    parent = history(chance, faults=faults)
    at_seq = chance.randrange(1, len(parent.log) + 1)
    added = chance.choice(((), said("Mind the gap.")))
    try:
        begun = forking(parent.logged, "run_0", at_seq, added=added)
    except (CallsOpenError, NothingToContinueError):
        return
    rules = chance.choice(VARIANTS)
    fork = History(chance, rules, forked=begun)
    fork.live(faults=chance.randrange(10), chance=chance)

    assert isinstance(fork.log[-1], Terminal)
    assert played(fork.logged, rules).divergence is None
    assert not any(map(orphans, fork.prompts))
    brought = {each.call.id for each in begun.forked.calls if each.status == "done"}
    assert not brought & {each.call_id for each in of(fork, ToolCallStarted)}
    since, agreed = made_since(parent, at_seq), approved(fork)
    for effect in fork.executed:
        digest = call_digest(effect.call.name, effect.arguments)
        assert effect.effect == "read" or digest not in since or digest in agreed
    spans = SpanFold("run_1", None, provider="openai")
    for each in fork.logged:
        spans.feed(each.seq, each.time_ms, each.event)


@pytest.mark.parametrize("at_seq", range(1, len(acted(*BUSY).log) + 1))
def test_at_every_point_of_a_busy_run_what_was_done_since_is_asked_about(at_seq: int) -> None:
    parent = acted(*BUSY)
    begun = forking(parent.logged, "run_0", at_seq)
    fork = went_on(begun, [*BUSY, *BUSY])
    asked = {each.digest for each in of(fork, ApprovalRequested)}
    since = made_since(parent, at_seq)
    done = {call_digest(effect.call.name, effect.arguments) for effect in fork.executed}
    assert since & done <= asked
    assert since & done or at_seq > seq_of(parent, "step.completed", 1)


@SETTINGS
@given(CHANCES)
def test_a_fork_of_a_fork_is_as_careful(chance: Random) -> None:
    parent = history(chance, faults=0)
    try:
        first = forking(parent.logged, "run_0", chance.randrange(1, len(parent.log) + 1))
    except NothingToContinueError:
        return
    middle = History(chance, RULES, forked=first)
    middle.live(faults=5, chance=chance)
    at_seq = chance.randrange(1, len(middle.log) + 1)
    second = forking(middle.logged, "run_1", at_seq)
    assert second.forked.guarded.keys() >= first.forked.guarded.keys()
    assert second.forked.guarded.keys() >= made_since(middle, at_seq)
    last = History(chance, RULES, forked=second)
    last.live(faults=0, chance=chance)
    assert isinstance(last.log[-1], Terminal)
    assert not any(map(orphans, last.prompts))


def test_a_result_from_before_the_point_is_not_brought_again() -> None:
    parent = acted(["pay"], ["look"])
    begun = forking(parent.logged, "run_0", seq_of(parent, "tool_call.completed"))
    fork = went_on(begun)
    assert statuses(begun) == {"pay": "done"}
    assert [effect.call.name for effect in fork.executed] == []
    assert [turn.content for turn in fork.state.messages if turn.role == "tool"] == [
        '{"did":"pay"}'
    ]


def test_a_call_that_the_other_run_made_since_is_asked_about_and_names_the_event() -> None:
    parent = acted(["pay"])
    begun = forking(parent.logged, "run_0", 1)
    fork = went_on(begun, [["pay"]])
    [asked] = of(fork, ApprovalRequested)
    made = seq_of(parent, "tool_call.started")
    assert asked.policy == f"run run_0 has made this very call at its event {made}"
    [wanted] = of(parent, ToolCallRequested)
    written = call_digest(wanted.name, wanted.arguments)
    assert begun.forked.guarded == {asked.digest: asked.policy, written: asked.policy}


def test_what_only_reads_is_not_asked_about() -> None:
    parent = acted(["look"])
    begun = forking(parent.logged, "run_0", 1)
    assert begun.forked.guarded == {}
    assert of(went_on(begun, [["look"]]), ApprovalRequested) == []


def test_a_call_that_had_begun_without_a_result_is_unknown() -> None:
    parent = acted(["pay", "look"])
    at_seq = seq_of(parent, "tool_call.started", -1)
    begun = forking(parent.logged, "run_0", at_seq)
    assert statuses(begun) == {"pay": "unknown", "look": "requested"}
    fork = went_on(begun)
    assert [event.error for event in of(fork, ToolCallFailed)] == [UNKNOWN_OUTCOME]
    assert [effect.call.name for effect in fork.executed] == ["look"]


def test_what_another_key_made_repeatable_is_unknown_too() -> None:
    parent = acted(["put"])
    begun = forking(parent.logged, "run_0", seq_of(parent, "tool_call.started"))
    assert statuses(begun) == {"put": "unknown"}
    assert [effect.call.name for effect in went_on(begun).executed] == []


def test_no_question_and_no_answer_is_taken_along() -> None:
    parent = acted(["mail"])
    asked, answered = seq_of(parent, "approval.requested"), seq_of(parent, "approval.decided")
    for at_seq in (asked, answered):
        begun = forking(parent.logged, "run_0", at_seq)
        assert statuses(begun) == {"mail": "requested"}
        assert len(of(went_on(begun), ApprovalRequested)) == 1


def test_an_edit_falls_away_with_its_approval() -> None:
    parent = acted(["mail"])
    decided = parent.log[seq_of(parent, "approval.decided") - 1]
    assert isinstance(decided, ApprovalDecided)
    edited: dict[str, Json] = {"times": 1, "to": 9}
    log = parent.logged[: seq_of(parent, "approval.decided")]
    answer = replace(decided, arguments=edited, digest=call_digest("mail", edited))
    log[-1] = replace(log[-1], event=answer)

    [forked] = forking(log, "run_0", log[-1].seq).forked.calls

    [asked] = of(parent, ToolCallRequested)
    assert forked.call.arguments == asked.arguments


def test_a_no_stays_a_no() -> None:
    parent = acted(["mail"])
    decided = parent.log[seq_of(parent, "approval.decided") - 1]
    assert isinstance(decided, ApprovalDecided)
    log = parent.logged[: seq_of(parent, "approval.decided")]
    log[-1] = replace(log[-1], event=replace(decided, decision="deny", comment="not to him"))
    begun = forking(log, "run_0", log[-1].seq)
    fork = went_on(begun)
    assert statuses(begun) == {"mail": "denied"}
    assert "denied by ann: not to him" in fork.state.messages[2].content


def test_a_message_is_there_whole_or_not_at_all() -> None:
    parent = acted(["pay", "look"])
    written = seq_of(parent, "message.completed")
    for at_seq in (written - 1, written, written + 1):
        begun = forking(parent.logged, "run_0", at_seq)
        assert [turn.role for turn in begun.forked.conversation] == ["user"]
        assert not begun.forked.replied
    begun = forking(parent.logged, "run_0", written + 2)
    assert [turn.role for turn in begun.forked.conversation] == ["user", "assistant"]
    assert statuses(begun) == {"pay": "requested", "look": "requested"}


def test_the_fork_of_an_answer_is_that_answer_without_a_model() -> None:
    parent = acted(["look"])
    fork = went_on(forking(parent.logged, "run_0", len(parent.log)))
    assert fork.prompts == []
    assert fork.log[-1].type == "run.completed"
    assert fork.state.text == parent.state.text


def test_the_fork_of_an_end_may_be_told_more() -> None:
    parent = acted(["look"])
    begun = forking(parent.logged, "run_0", len(parent.log), added=said("And now?"))
    fork = went_on(begun)
    assert begun.input == said("And now?")
    assert [turn.role for turn in fork.prompts[0][1:]] == [
        "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip


def test_a_run_that_had_reached_its_last_step_goes_on_with_steps_of_its_own() -> None:
    rules = replace(RULES, limits=replace(RULES.limits, max_steps=1))
    parent = acted(["look"], rules=rules)
    assert parent.log[-1].type == "run.incomplete"
    begun = forking(parent.logged, "run_0", len(parent.log))
    chance = Random(0)
    fork = History(chance, rules, forked=begun, script=lambda _: ["look"], kind=True)
    fork.live(faults=0, chance=chance)
    assert of(fork, StepStarted) == [StepStarted(2)]


def test_nothing_is_said_before_open_calls_have_their_results() -> None:
    parent = acted(["pay", "look"])
    at_seq = seq_of(parent, "tool_call.started")
    before = seq_of(parent, "tool_call.requested")
    with pytest.raises(CallsOpenError, match=f"fork at event {before} instead"):
        forking(parent.logged, "run_0", at_seq, added=said("Stop!"))
    assert forking(parent.logged, "run_0", before, added=said("Stop!")).input == said("Stop!")


def test_an_input_that_nobody_has_read_is_the_forks_own() -> None:
    parent = acted(["look"])
    begun = forking(parent.logged, "run_0", 2, added=said("And quickly."))
    assert begun.input == (*said("Do what must be done."), *said("And quickly."))
    assert begun.forked.conversation == ()


def test_an_input_that_was_blocked_leaves_nothing_to_go_on_with() -> None:
    parent = acted(["look"])
    log = parent.logged[:2]
    log.append(replace(log[-1], seq=3, event=InputScreened(blocked="too rude")))
    with pytest.raises(NothingToContinueError, match="give the fork an input"):
        forking(log, "run_0", 3)
    assert forking(log, "run_0", 3, added=said("Please.")).input == said("Please.")


def test_the_sessions_past_comes_first_with_its_pictures_and_what_is_sealed() -> None:
    parent = acted(["look"])
    begun = forking(parent.logged, "run_0", len(parent.log), history=(SEEN, KINDLY))
    [back] = stored([begun.forked])
    assert back == begun.forked
    assert begun.forked.conversation[:2] == (SEEN, KINDLY)


def test_guardrails_look_at_what_is_new_and_never_at_what_was_said_before() -> None:
    begun = forking(acted(["look"]).logged, "run_0", 3, added=said("Please."))
    queued = RunQueued("clerk", "agt_1", 1, "ses_2", begun.input)
    before = len(begun.forked.conversation)
    state = fold([queued, begun.forked])
    assert (state.inherited, state.screened) == (before, False)
    blocked = evolve(state, InputScreened(blocked="no"))
    assert blocked.messages == begun.forked.conversation
    alone = fold([replace(queued, input=()), begun.forked])
    assert alone.screened


def test_a_fork_links_to_the_span_in_which_it_was() -> None:
    parent = acted(["look"])
    own = forking(parent.logged, "run_0", 5).forked.trace_parent
    assert own == f"00-{trace_id_of('run_0')}-{span_id_of('run_0', 2)}-01"
    caller = f"00-{'a' * 32}-{'b' * 16}-01"
    above = forking(parent.logged, "run_0", 5, trace_parent=caller).forked.trace_parent
    assert above == f"00-{'a' * 32}-{span_id_of('run_0', 2)}-01"
    assert forking(parent.logged, "run_0", 1).forked.trace_parent is None


def test_a_fork_begins_with_the_next_move() -> None:
    begun = forking(acted(["pay"]).logged, "run_0", 3)
    queued = RunQueued("clerk", "agt_1", 1, "ses_2", begun.input)
    [effect] = decide(fold([queued, begun.forked]), RULES, 0)
    assert isinstance(effect, CallModel)
    [effect] = decide(fold([queued, forking(acted(["pay"]).logged, "run_0", 6).forked]), RULES, 0)
    assert isinstance(effect, CallTool | AskApproval)
