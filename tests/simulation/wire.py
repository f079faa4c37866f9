"""What hosts hear of each other: bells that are rung late, twice, or not at all."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from milepost.live.hub import LiveText

if TYPE_CHECKING:
    from tests.simulation.host import Host


class Wire:
    """The way from one host to all others."""

    def __init__(self, host: "Host") -> None:
        self._host = host

    def rang(self, bell: str) -> None:
        """Ring it elsewhere."""
        world = self._host.world
        if world.loop.over:
            return
        for other in world.hosts:
            if other is self._host or not other.main.alive:
                continue
            for _ in range(1 + world.weather.repeats()):
                if (delay_s := world.weather.hint_s()) is not None:
                    world.loop.call_later(
                        delay_s, other.hub.chime, bell, context=world.loop.context_of(other.main)
                    )

    def published(self, run_id: str, seq: int) -> None:
        """Tell nobody: nobody listens to a log."""

    def wrote(self, run_id: str, text: LiveText, piece: str) -> None:
        """Tell nobody."""

    def closed(self, run_id: str, text: LiveText) -> None:
        """Tell nobody."""

    async def follow(self, run_id: str) -> None:
        """Hear nothing."""

    def leave(self, run_id: str) -> None:
        """Hear nothing."""

    async def erase(self, run_ids: Sequence[str]) -> None:
        """Keep nothing."""
