"""Events of a tool's own: what may be one, and how many a call may emit."""

import threading
from dataclasses import replace

import pytest

from milepost.core.errors import ToolError
from milepost.core.json import Json
from milepost.tools import ToolContext, execute, tool
from milepost.tools.emitting import EVENTS_MAX, VALUE_BYTES_MAX, Emitter
from tests.tools.emitting_tools import count_apart


class Heard:
    """Whoever is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Json]] = []

    def __call__(self, name: str, value: Json) -> None:
        self.events.append((name, value))


def test_an_event_has_a_name_and_any_json() -> None:
    heard = Heard()
    emit = Emitter(heard)

    emit("chart.drawn", {"points": [1, 2.5, None, True], "of": ("a", "b")})
    emit("done")

    assert heard.events == [
        ("chart.drawn", {"points": [1, 2.5, None, True], "of": ["a", "b"]}),
        ("done", None),
    ]


def test_an_event_is_what_it_was_when_it_was_told() -> None:
    heard, points = Heard(), [1]

    Emitter(heard)("drawn", points)
    points.append(2)

    assert heard.events == [("drawn", [1])]


@pytest.mark.parametrize("name", ["", "1st", "a b", "é", "x" * 65, 7, None])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ToolError, match="is no name of an event"):
        Emitter(Heard())(name, 1)


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), b"bytes"])
def test_what_is_not_json_is_refused(value: object) -> None:
    with pytest.raises(ToolError, match="the value of the event drawn is not JSON"):
        Emitter(Heard())("drawn", value)


def test_a_value_that_is_too_long_is_refused_with_a_remedy() -> None:
    emit = Emitter(Heard())
    emit("fits", "x" * (VALUE_BYTES_MAX - 2))

    with pytest.raises(ToolError, match="leave it as an artifact"):
        emit("long", "x" * (VALUE_BYTES_MAX - 1))


def test_a_call_emits_only_so_many_events() -> None:
    heard = Heard()
    emit = Emitter(heard)
    for number in range(EVENTS_MAX):
        emit("counted", number)

    with pytest.raises(ToolError, match=f"a call may emit {EVENTS_MAX} events"):
        emit("counted", EVENTS_MAX)

    assert heard.events[-1] == ("counted", EVENTS_MAX - 1)


def test_threads_of_a_tool_share_its_bound() -> None:
    heard = Heard()
    emit = Emitter(heard)

    def tell() -> None:
        for _ in range(EVENTS_MAX // 4):
            emit("counted")

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(heard.events) == EVENTS_MAX
    with pytest.raises(ToolError):
        emit("counted")


def test_what_is_told_after_the_end_is_told_to_nobody() -> None:
    heard = Heard()
    emit = Emitter(heard)

    emit.close()
    emit("late")

    assert heard.events == []


@tool(effect="read")
def draw(points: int, context: ToolContext) -> str:
    """Draw."""
    context.emit("drawn", {"points": points})
    context.emit("drawn", object() if points < 0 else None)
    return "drawn"


def test_outside_a_run_events_are_checked_and_told_to_nobody() -> None:
    assert execute(draw, {"points": 3}).content == "drawn"
    assert "not JSON" in execute(draw, {"points": -1}).as_text()


def test_whoever_tests_a_tool_can_hear_its_events(context: ToolContext) -> None:
    heard = Heard()

    execute(draw, {"points": 3}, context=replace(context, emit=Emitter(heard)))

    assert heard.events == [("drawn", {"points": 3}), ("drawn", None)]


def test_a_tool_in_a_process_of_its_own_emits_events_as_well(context: ToolContext) -> None:
    heard = Heard()

    outcome = execute(count_apart, {"count": 3}, context=replace(context, emit=Emitter(heard)))

    assert outcome.content == "counted"
    assert heard.events == [("counted", {"number": number}) for number in range(3)]


def test_a_tool_in_a_process_of_its_own_has_the_same_bounds(context: ToolContext) -> None:
    heard = Heard()

    outcome = execute(count_apart, {"count": 101}, context=replace(context, emit=Emitter(heard)))

    assert f"a call may emit {EVENTS_MAX} events" in outcome.as_text()
    assert len(heard.events) == EVENTS_MAX
