"""A client of a session's stream that believes nothing, neither of a run nor of their order."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from milepost.live.frames import TERMINAL
from tests.live.client import TIMEOUT_S, Client, Sent, parsed


@dataclass
class SessionClient:
    """Takes each run for itself, and notices at once when they are mixed up."""

    position: str = ""
    runs: dict[str, Client] = field(default_factory=dict)
    seen: list[Sent] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def types(self) -> list[str]:
        return [sent.event for sent in self.seen]

    @property
    def bodies(self) -> list[dict[str, object]]:
        """The events of the logs, as they came."""
        return [sent.body for sent in self.seen if sent.seq is not None]

    def take(self, sent: Sent) -> None:
        """Take in one event."""
        self.seen.append(sent)
        if (run_id := sent.body.get("run_id")) is None:
            return  # The stream speaks of itself.
        if run_id not in self.runs:
            self._begin(run_id)
        assert run_id == next(reversed(self.runs)), "a run goes on behind another one"
        within = sent.id
        if sent.id is not None:
            self.position = sent.id
            of_run, _, within = sent.id.partition(".")
            assert of_run == run_id
        self.runs[run_id].take(replace(sent, id=within))

    def _begin(self, run_id: str) -> None:
        if self.runs:
            assert next(reversed(self.runs.values())).types[-1] in TERMINAL, "a run is not over"
        self.runs[run_id] = Client()

    async def read(self, pieces: AsyncGenerator[bytes, None]) -> "SessionClient":
        """Read a tail's pieces to their end."""
        async with aclosing(pieces):
            async for piece in pieces:
                self.feed(piece)
        return self

    def feed(self, piece: bytes) -> None:
        """Take in what was sent; what says when to come back may stand alone."""
        for sent in parsed(b"" if piece.startswith(b"retry:") and len(piece) < 20 else piece):
            self.take(sent)
        self.news.set()

    async def until(self, reached: Callable[["SessionClient"], bool]) -> None:
        """Wait until what was read says so."""
        async with asyncio.timeout(TIMEOUT_S):
            while not reached(self):
                self.news.clear()
                await self.news.wait()
