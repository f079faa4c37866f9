"""A run that is written in one process and read in another, with what may happen between them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from milepost.api.cursors import parse_cursor
from milepost.api.stream import Tail
from milepost.live.hub import Hub, LiveText
from tests.api.stream.reading import (
    TIMEOUT_S,
)
from tests.live.client import Client
from tests.runtime.writing import Run
from tests.store.making import TENANT


class Relay:
    """A way from one process to another that may lose what it carries, and remembers texts."""

    def __init__(self, other: Hub, chance: Random | None = None) -> None:
        self._other = other
        self._chance = chance
        self._texts: dict[str, LiveText] = {}

    def published(self, run_id: str, seq: int) -> None:
        self._other.hint(run_id, seq)

    def wrote(self, run_id: str, text: LiveText, piece: str) -> None:
        self._texts[text.id] = replace(text)
        if self._chance is None or self._chance.random() < 0.7:
            start = LiveText(text.kind, text.id, text.after_seq)
            self._other.overhear_piece(run_id, start, len(text.text) - len(piece), piece)

    def closed(self, run_id: str, text: LiveText) -> None:
        pass

    def rang(self, bell: str) -> None:
        self._other.chime(bell)

    async def follow(self, run_id: str) -> None:
        for text in self._texts.values():
            self._other.overhear(run_id, replace(text))

    def leave(self, run_id: str) -> None:
        pass

    async def erase(self, run_ids: Sequence[str]) -> None:
        pass


@dataclass
class Far:
    """A run that is written in one process and read in another."""

    run: Run
    here: Hub

    def tail(self, position: str = "0") -> Tail:
        """Return a tail in this process."""
        store = self.run.store
        return Tail(store, self.here, TENANT, self.run.id, parse_cursor(position))

    async def whole(self, position: str = "0") -> Client:
        """Read it to its end."""
        client = Client(position=position)
        return await asyncio.wait_for(client.read(self.tail(position).pieces()), TIMEOUT_S)
