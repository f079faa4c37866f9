"""Circles: what counts as one, what does not, and what the model is told."""

import pytest

from milepost.core.agents import LoopDetection
from milepost.core.loops import Circle, Footprint, circle_in, notice_of

WANTED = LoopDetection(repeat=3, stall=3, ping_pong=3)
NOBODY: frozenset[str] = frozenset()


def step(tool: str, argument: int = 1, told: str | None = None) -> Footprint:
    """Return a call; unless told otherwise, each of them brings something new."""
    step.count += 1  # type: ignore[attr-defined]
    return Footprint(tool, {"n": argument}, told or f"result {step.count}")  # type: ignore[attr-defined]


step.count = 0  # type: ignore[attr-defined]


def test_the_same_call_three_times_in_a_row_is_a_circle() -> None:
    trail = [step("look"), step("find"), step("find"), step("find")]

    assert circle_in(trail, WANTED, NOBODY) == Circle("repeat", ("find",), 3)


def test_twice_is_not_yet_one() -> None:
    assert circle_in([step("find"), step("find")], WANTED, NOBODY) is None


def test_the_same_tool_with_other_arguments_leads_on() -> None:
    assert circle_in([step("find", n) for n in range(6)], WANTED, NOBODY) is None


def test_the_same_result_three_times_in_a_row_is_a_stall() -> None:
    trail = [step("find", n, "nothing") for n in range(3)]

    assert circle_in(trail, WANTED, NOBODY) == Circle("stall", ("find",), 3)


def test_the_same_result_of_different_tools_is_none() -> None:
    trail = [step("find", 1, "ok"), step("mail", 2, "ok"), step("pay", 3, "ok")]

    assert circle_in(trail, WANTED, NOBODY) is None


def test_fewer_results_than_a_stall_takes_are_none_though_all_are_the_same() -> None:
    assert circle_in([step("find", n, "nothing") for n in range(2)], WANTED, NOBODY) is None


def test_two_calls_that_take_turns_are_a_circle() -> None:
    trail = [step("open"), step("shut"), step("open"), step("shut"), step("open"), step("shut")]

    assert circle_in(trail, WANTED, NOBODY) == Circle("ping_pong", ("open", "shut"), 3)


def test_a_turn_that_breaks_the_rhythm_is_none() -> None:
    trail = [step("open"), step("shut"), step("open"), step("look"), step("open"), step("shut")]

    assert circle_in(trail, WANTED, NOBODY) is None


def test_fewer_turns_than_a_circle_takes_are_none() -> None:
    trail = [step("open"), step("shut"), step("open"), step("shut"), step("open")]

    assert circle_in(trail, WANTED, NOBODY) is None


def test_one_call_again_and_again_takes_no_turns_with_itself() -> None:
    wanted = LoopDetection(repeat=5, stall=5, ping_pong=2)

    assert circle_in([step("find")] * 4, wanted, NOBODY) is None


@pytest.mark.parametrize("turn", [("look", "shut"), ("open", "look")])
def test_only_one_of_two_calls_that_comes_back_is_none(turn: tuple[str, str]) -> None:
    trail = [step("open"), step("shut"), *map(step, turn), step("open"), step("shut")]

    assert circle_in(trail, WANTED, NOBODY) is None


def test_only_the_end_of_the_trail_is_a_circle_or_none() -> None:
    stalled = [step("look"), *(step("find", n, "nothing") for n in range(3))]
    in_turns = [step("look"), *(step(tool) for tool in ("open", "shut") * 3)]

    assert circle_in(stalled, WANTED, NOBODY) == Circle("stall", ("find",), 3)
    assert circle_in(in_turns, WANTED, NOBODY) == Circle("ping_pong", ("open", "shut"), 3)


def test_tools_that_may_be_repeated_are_exempt() -> None:
    assert circle_in([step("poll")] * 5, WANTED, frozenset({"poll"})) is None


def test_what_may_be_repeated_does_not_hide_a_circle_of_others() -> None:
    trail = [step("find"), step("poll"), step("find"), step("poll"), step("find")]

    assert circle_in(trail, WANTED, frozenset({"poll"})) == Circle("repeat", ("find",), 3)


def test_each_pattern_has_a_length_of_its_own() -> None:
    wanted = LoopDetection(repeat=5, stall=2, ping_pong=2)

    assert circle_in([step("find"), step("find"), step("find")], wanted, NOBODY) is None
    stalled = [step("find", 1, "no"), step("find", 2, "no")]
    assert circle_in(stalled, wanted, NOBODY) == Circle("stall", ("find",), 2)


@pytest.mark.parametrize(
    ("circle", "words"),
    [
        (Circle("repeat", ("find",), 3), "called find 3 times in a row with the same arguments"),
        (Circle("stall", ("find",), 4), "find has brought the same result 4 times"),
        (Circle("ping_pong", ("open", "shut"), 3), "calls of open and shut"),
    ],
)
def test_the_model_is_told_what_was_seen(circle: Circle, words: str) -> None:
    assert words in notice_of(circle)
