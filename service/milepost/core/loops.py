"""Runs that turn in a circle: the same call again, the same result again, two calls in turns."""

from collections.abc import Mapping, Sequence
from typing import Literal

from milepost.core.agents import LoopDetection
from milepost.core.frozen import dataclass
from milepost.core.json import Json

TRAIL_MAX = 64
NOTICE = "[notice] You are going in circles: "

Pattern = Literal["repeat", "stall", "ping_pong"]


@dataclass(frozen=True, slots=True)
class Footprint:
    """A call that was made, and what the model was told: a result as its tool gave it."""

    tool: str
    arguments: Mapping[str, Json]
    told: str

    def repeats(self, other: "Footprint") -> bool:
        """Say whether both are the same call."""
        return self.tool == other.tool and self.arguments == other.arguments

    def says(self, other: "Footprint") -> bool:
        """Say whether both brought the same from the same tool."""
        return self.tool == other.tool and self.told == other.told


@dataclass(frozen=True, slots=True)
class Circle:
    """A pattern, the tools that are in it, and how often it was seen in a row."""

    pattern: Pattern
    tools: tuple[str, ...]
    count: int


def circle_in(
    trail: Sequence[Footprint], wanted: LoopDetection, exempt: frozenset[str]
) -> Circle | None:
    """Return the circle that the end of the trail is, None if it leads on.

    Tools that are made to be asked again, `exempt`, neither count nor interrupt what others do.
    """
    trail = [step for step in trail if step.tool not in exempt]
    if not trail:
        return None
    tool = trail[-1].tool
    if _last(trail, wanted.repeat) and _all_repeat(trail[-wanted.repeat :]):
        return Circle("repeat", (tool,), wanted.repeat)
    if _last(trail, wanted.stall) and _all_say(trail[-wanted.stall :]):
        return Circle("stall", (tool,), wanted.stall)
    turns = 2 * wanted.ping_pong
    if _last(trail, turns) and _takes_turns(trail[-turns:]):
        return Circle("ping_pong", (trail[-2].tool, tool), wanted.ping_pong)
    return None


def notice_of(circle: Circle) -> str:
    """Return what the model is told of it."""
    return (
        f"{NOTICE}{_seen(circle)}. Doing it again will not help. Try something else, or answer"
        " with what you know and say what is missing."
    )


def _seen(circle: Circle) -> str:
    tools, count = " and ".join(dict.fromkeys(circle.tools)), circle.count
    match circle.pattern:
        case "repeat":
            return f"you have called {tools} {count} times in a row with the same arguments"
        case "stall":
            return f"{tools} has brought the same result {count} times in a row"
        case "ping_pong":
            return f"you go back and forth between the same calls of {tools}"


def _last(trail: Sequence[Footprint], count: int) -> bool:
    return len(trail) >= count


def _all_repeat(steps: Sequence[Footprint]) -> bool:
    return all(step.repeats(steps[0]) for step in steps)


def _all_say(steps: Sequence[Footprint]) -> bool:
    return all(step.says(steps[0]) for step in steps)


def _takes_turns(steps: Sequence[Footprint]) -> bool:
    one, other = steps[::2], steps[1::2]
    return _all_repeat(one) and _all_repeat(other) and not one[0].repeats(other[0])
