"""A session, turn by turn, of an agent that remembers."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from milepost.core.agents import Memory, Summarize, Window
from milepost.core.errors import ProviderError
from milepost.core.model import ModelRequest, Provider
from milepost.core.window import Place
from milepost.providers.catalog import Catalog
from milepost.providers.scripted import Script, Scripted, saying
from milepost.runtime.means import Means
from milepost.store import pins, summaries
from milepost.store.records import Page
from milepost.store.summaries import SummaryRow
from milepost.tools import tool
from tests.runtime.workshop import TENANT, TIMEOUT_S, Workshop

SMALL = Memory(Window(messages=4))
TELLING = Memory(Window(messages=4), Summarize("scribe/small"))


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


class Talk:
    """A session, turn by turn, in which every answer repeats what was said."""

    def __init__(self, shop: Workshop, memory: Memory | None = None) -> None:
        self.shop = shop
        self.agent = replace(shop.agent(look), memory=memory, instructions="Be kind.")
        self.session_id: str | None = None
        self.scribe: Provider = Scripted([])
        self.shown: ModelRequest | None = None

    async def say(self, said: str, *script: Script) -> str:
        """Have the next turn, and return its run."""
        run = await self.shop.queue(said, session_id=self.session_id)
        self.session_id = run.session_id
        model = Scripted(script or [saying(f"{said}!")])
        claim = await self.shop.claim()
        driven = await self.shop.driving(claim, self.agent, self.means(model))
        await asyncio.wait_for(driven.run(), TIMEOUT_S)
        self.shown = model.requests[-1] if model.requests else None
        return run.id

    def means(self, model: Provider) -> Means:
        """Return what a turn needs."""
        catalog = Catalog({"test": model, "scribe": self.scribe})
        return replace(self.shop.means(model, look), providers=catalog)

    def tells(self, *said: str | ProviderError) -> Scripted:
        """Let the scribe tell this, one thing after the other."""
        self.scribe = scribe = Scripted(
            [saying(each) if isinstance(each, str) else each for each in said]
        )
        return scribe

    @property
    def words(self) -> list[str]:
        """What the model was shown last."""
        assert self.shown is not None
        return [message.content for message in self.shown.messages]

    async def told(self) -> list[SummaryRow]:
        """Return what was trimmed, the oldest first."""
        assert self.session_id is not None
        page = Page(limit=100, ascending=True)
        return await self.shop.store.read(summaries.search(TENANT, self.session_id, page))

    async def pin(self, turn: int, at: int) -> None:
        """Pin a message."""
        assert self.session_id is not None
        await self.shop.store.write(pins.put(TENANT, self.session_id, Place(turn, at), 0))


async def talked(talk: Talk, said: Iterable[str]) -> str:
    """Have a turn for each, and return the last one's run."""
    run_id = ""
    for each in said:
        run_id = await talk.say(each)
    return run_id
