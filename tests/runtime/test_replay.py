"""A log played again: its own rules agree with it, and other rules show where they part from it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.core.agents import Limits
from milepost.core.events import (
    ApprovalDecided,
    Event,
    Failure,
    MessageAborted,
    RunCancelled,
    RunCancelling,
    StoppedWork,
    ToolCallCompleted,
)
from milepost.core.messages import ToolCall
from milepost.core.policy import NOBODY_COUNTED
from milepost.core.rulings import Ask, Counts, Refuse, Reject, Rules, Ruling, Run
from milepost.core.state import State
from milepost.core.usage import UNKNOWN
from milepost.runtime.logged import Logged, logged
from milepost.runtime.replay import (
    Divergence,
    Replayed,
    definition_changes,
    replay,
    tools_called,
)
from milepost.runtime.settle import RUN_ENDED
from milepost.store.records import LogEntry
from tests.core.logs import allowing
from tests.core.world import CLAIM, CLERK, DEADLINE_MS, RULES, VARIANTS, judge
from tests.runtime.histories import TURNS_MAX, History

OLD_LOGS = Path(__file__).parents[1] / "core" / "old_logs"

SETTINGS = settings(max_examples=200, deadline=None)
CHANCES = st.randoms(use_true_random=False)


def played(log: Sequence[Logged], rules: Rules) -> Replayed:
    """Play the log again under these rules."""
    return replay(log, CLAIM, CLERK, rules)


def acted(*steps: Sequence[str], rules: Rules = RULES) -> History:
    """Return the run of a model that asks for these calls, step by step, and then for no more."""

    def script(state: State) -> Sequence[str] | None:
        return steps[state.step - 1] if state.step <= len(steps) else None

    chance = Random(0)
    lived = History(chance, rules, script=script, kind=True)
    lived.live(faults=0, chance=chance)
    return lived


def judging(other: Callable[[ToolCall], Ruling | None]) -> Rules:
    """Return the rules of the world, but where `other` has one."""

    def judged(call: ToolCall, counts: Counts = NOBODY_COUNTED, /) -> Ruling:
        return other(call) or judge(call, counts)

    return replace(RULES, judge=judged)


def parting(again: Replayed) -> Divergence:
    """Return where the rules part from the log."""
    assert again.divergence is not None
    return again.divergence


def types(found: Divergence) -> tuple[object, object]:
    """Return the types of what was expected and of what was found."""
    told, seen = found.expected, found.found
    return told and told["type"], seen and seen["type"]


@SETTINGS
@given(CHANCES, st.integers(0, 40))
def test_a_log_is_what_its_own_rules_would_write_wherever_it_stands(
    chance: Random, faults: int
) -> None:
    deadline_ms = chance.choice((None, DEADLINE_MS))
    rules = chance.choice(VARIANTS)
    world = History(chance, rules, deadline_ms)
    for turn in range(TURNS_MAX):
        again = played(world.logged, rules)
        assert again.divergence is None, again.divergence
        assert again.events == len(world.log)
        assert again.steps == world.state.step
        assert again.notes == ()
        world.kind = turn >= faults
        if not (moves := world.moves()):
            return
        world.happen(chance.choice(moves))
    pytest.fail("the run did not come to an end")


@SETTINGS
@given(CHANCES, CHANCES)
def test_other_rules_part_from_a_log_where_they_would_have_written_another(
    chance: Random, other: Random
) -> None:
    rules, others = chance.choice(VARIANTS), other.choice(VARIANTS)
    world = History(chance, rules)
    world.live(faults=10, chance=chance)

    again = played(world.logged, others)

    if again.divergence is None:
        assert again.events == len(world.log)
    else:
        assert again.events == again.divergence.seq - 1
        assert again.divergence.expected != again.divergence.found


@pytest.mark.parametrize("terminal", [True, False, None])
def test_what_people_say_that_calls_brought_is_theirs_to_say_and_not_the_rules(
    terminal: bool | None,
) -> None:
    """Both are answered before a worker reads either answer; older workers wrote no more."""
    rules = replace(RULES, on_unknown=lambda _: "ask")
    lived = History(Random(0), rules, script=lambda _: ("pay", "pay"), kind=True)
    lived.finish()
    lived.crash()
    asked = [(str(call.approval_id), call_id) for call_id, call in lived.state.calls.items()]
    assert len(asked) == len(lived.pending) == 2

    answers: list[Event] = []
    for approval_id, call_id in asked:
        answers += [ApprovalDecided(approval_id, call_id, "happened", "ann", result="it did")]
        if terminal is not None:
            answers += [ToolCallCompleted(call_id, "it did", 0, terminal=terminal)]
    lived.bring_answers(answers)

    assert played(lived.logged, rules).divergence is None


def test_what_is_denied_now_and_ran_then_is_told() -> None:
    log = acted(["pay"]).logged
    denying = judging(
        lambda call: Refuse("policy", "policy: deny pay") if call.name == "pay" else None
    )

    found = parting(played(log, denying))

    assert types(found) == ("policy.decided", "tool_call.started")
    assert found.seq == next(each.seq for each in log if each.event.type == "tool_call.started")
    assert "tool_call.started" in found.why


def test_what_is_asked_now_and_ran_then_is_told() -> None:
    asking = judging(
        lambda call: (
            Ask({"times": 1, **call.arguments}, "once", "new") if call.name == "pay" else None
        )
    )
    found = parting(played(acted(["pay"]).logged, asking))
    assert types(found) == ("policy.decided", "tool_call.started")


def test_what_runs_now_and_was_asked_then_is_told() -> None:
    running = judging(
        lambda call: Run({"times": 1, **call.arguments}, "once") if call.name == "mail" else None
    )
    found = parting(played(acted(["mail"]).logged, running))
    assert types(found) == ("tool_call.started", "policy.decided")


def test_another_reading_of_the_arguments_is_told() -> None:
    doubled = judging(
        lambda call: Run({"times": 2, **call.arguments}, "once") if call.name == "pay" else None
    )
    found = parting(played(acted(["pay"]).logged, doubled))
    assert types(found) == ("tool_call.started", "tool_call.started")
    assert found.why.endswith("but with another arguments")
    assert found.expected is not None
    assert found.found is not None
    assert found.expected["data"] != found.found["data"]


def test_another_effect_of_the_tool_is_told() -> None:
    harmless = judging(
        lambda call: Run({"times": 1, **call.arguments}, "read") if call.name == "pay" else None
    )
    found = parting(played(acted(["pay"]).logged, harmless))
    assert found.why.endswith("but with another effect")


def test_a_tool_that_is_gone_is_told() -> None:
    without = judging(
        lambda call: Reject(Failure("unknown_tool", "gone")) if call.name == "pay" else None
    )
    found = parting(played(acted(["pay"]).logged, without))
    assert types(found) == ("tool_call.failed", "tool_call.started")


def test_calls_that_would_wait_for_one_another_are_told() -> None:
    log = acted(["look", "put"]).logged
    found = parting(played(log, replace(RULES, parallel_tools=False)))
    assert types(found) == (None, "tool_call.started")
    assert found.why == "the log has tool_call.started here, and the rules decide on nothing"


def test_calls_that_would_not_wait_any_more_are_told() -> None:
    waiting = replace(RULES, parallel_tools=False)
    found = parting(played(acted(["look", "put"], rules=waiting).logged, RULES))
    assert types(found) == ("tool_call.started", "tool_call.completed")


def test_an_end_that_would_come_sooner_is_told() -> None:
    shorter = replace(RULES, limits=replace(RULES.limits, max_steps=1))
    found = parting(played(acted(["look"]).logged, shorter))
    assert types(found) == ("run.incomplete", "step.started")


def test_a_move_that_the_log_lacks_at_its_end_is_told() -> None:
    log = acted(["look"]).logged
    found = parting(played(log[:-1], RULES))
    assert (found.seq, *types(found)) == (len(log), "run.completed", None)


def test_a_part_of_a_log_says_nothing_of_what_comes_behind_it() -> None:
    log = acted(["look"]).logged
    again = replay(log[:-1], CLAIM, CLERK, RULES, whole=False)
    assert again.divergence is None


def test_the_same_move_in_other_words_is_a_note() -> None:
    reasoning = judging(
        lambda call: (
            Ask({"times": 1, **call.arguments}, "once", "policy: mails are looked at")
            if call.name == "mail"
            else None
        )
    )
    again = played(acted(["mail"]).logged, reasoning)
    assert again.divergence is None
    assert again.notes == (
        "event 7, policy.decided, would differ in reason",
        "event 8, approval.requested, would differ in policy",
    )


def test_what_became_of_work_that_a_cancellation_stopped_is_no_decision_of_the_rules() -> None:
    log = list(acted(["look"]).logged)
    place = next(at for at, each in enumerate(log) if each.event.type == "message.completed")
    message_id = log[place].event.message_id  # type: ignore[union-attr]  # as its type says
    work = (StoppedWork("message", message_id, "m", "closed", None, 7),)
    usage = State().usage + UNKNOWN
    stopping: list[Event] = [
        RunCancelling("ann", None),
        MessageAborted(message_id, RUN_ENDED, usage=UNKNOWN),
        RunCancelled("ann", None, (message_id,), usage, work),
    ]
    cancelled = log[:place] + [
        replace(log[place], seq=log[place].seq + nth, event=event)
        for nth, event in enumerate(stopping)
    ]

    again = played(cancelled, RULES)

    assert again.divergence is None, again.divergence
    assert again.notes == ()


def test_of_many_notes_the_rest_is_counted() -> None:
    reasoning = judging(
        lambda call: (
            Ask({"times": 1, **call.arguments}, "once", "new") if call.name == "mail" else None
        )
    )
    rules = replace(RULES, limits=Limits(max_steps=20))
    log = acted(*[["mail"]] * 15, rules=rules).logged
    again = played(log, replace(reasoning, limits=rules.limits))
    assert len(again.notes) == 21
    assert again.notes[-1] == "and 10 more of this kind"


def test_a_replay_whose_time_is_up_tells_how_far_it_came() -> None:
    log = acted(["look"]).logged
    asked = count()
    again = replay(log, CLAIM, CLERK, RULES, stop=lambda: next(asked) == 5)
    assert (again.events, again.divergence) == (5, None)
    assert again.notes == ("the time was up behind event 5; what comes later is not told",)


def test_a_call_says_which_tools_a_run_needs() -> None:
    assert tools_called(acted(["look", "pay"], ["unknown"]).logged) == {"look", "pay", "unknown"}


def test_what_of_a_definition_differs_is_named() -> None:
    changed = replace(
        CLERK, version=2, instructions="Be brief.", limits=Limits(max_steps=9), metadata={"a": "b"}
    )
    assert definition_changes(CLERK, CLERK) == []
    assert definition_changes(CLERK, changed) == ["instructions", "limits"]


def test_an_event_of_a_later_version_is_passed_over() -> None:
    entries = [LogEntry(1, "nudge.received", 0, "{}")]
    assert logged(entries) == []


@pytest.mark.parametrize("path", sorted(OLD_LOGS.glob("*.ndjson")), ids=lambda path: path.stem)
def test_a_log_of_an_earlier_version_can_be_played(path: Path) -> None:
    lines = enumerate(path.read_text().splitlines(), start=1)
    entries = [LogEntry(seq, *_entry(line)) for seq, line in lines]
    again = played(logged(entries), allowing())
    assert again.events > 0


def _entry(line: str) -> tuple[str, int, str]:
    kind, data = json.loads(line)
    return kind, 0, json.dumps(data)


def test_a_log_that_is_ten_times_as_long_has_its_calls_judged_ten_times_as_often() -> None:
    judged: list[str] = []

    def noting(call: ToolCall) -> None:
        judged.append(call.id)

    rules = replace(judging(noting), limits=Limits(max_steps=200))
    counts = []
    for steps in (5, 50):
        log = acted(*[["look"]] * steps, rules=rules).logged
        judged.clear()
        assert played(log, rules).divergence is None
        counts.append(len(judged))
    assert counts[1] == 10 * counts[0]
