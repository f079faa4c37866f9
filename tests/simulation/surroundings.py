"""What simulated tools and models find around them, in whatever process they are called."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, cast

from milepost.tools import Absent, Found, ToolContext, Unknown
from tests.simulation.loop import PROCESS

if TYPE_CHECKING:
    from tests.simulation.agents import Plan


class Surroundings(Protocol):
    """A host, as those see it that it calls."""

    @property
    def plans(self) -> Mapping[int, "Plan"]:
        """What runs are to do, by number."""

    async def think(self, plan: int, step: int, asides: tuple[str, ...]) -> bool:
        """Take a model's time; say whether it has an answer."""

    async def act(self, context: ToolContext, number: int) -> str:
        """Take a tool's time, and act in the world in the middle of it."""

    async def look_up(self, key: str) -> Found | Absent | Unknown:
        """Say whether a call with this key has acted."""


def here() -> Surroundings:
    """Return the surroundings of whoever asks."""
    return cast("Surroundings", PROCESS.get().owner)
