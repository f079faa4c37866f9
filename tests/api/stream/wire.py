"""An ASGI server's side of a streamed response."""

import asyncio
from collections.abc import Callable

from starlette.types import Message

from milepost.api.stream import (
    TailResponse,
)
from tests.api.stream.reading import (
    TIMEOUT_S,
)

SCOPE = {"type": "http", "path": "/v1/runs/run_1/events", "state": {"request_id": "req_1"}}


class Wire:
    """An ASGI server's side of a response.

    Where `stuck_behind` it takes no more bodies, and a last word only if `takes_last_word`.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.body = b""
        self.done = False
        self.gone = asyncio.Event()
        self.stuck_behind: Callable[[bytes], bool] = lambda _: False
        self.news = asyncio.Event()
        self.stuck = asyncio.Event()
        self.takes_last_word = True
        self.offered = asyncio.Event()

    async def send(self, message: Message) -> None:
        body = message.get("body", b"")
        if b"stream.lagged" in body:
            self.offered.set()
        if self.stuck_behind(self.body) and not (self.takes_last_word and self.offered.is_set()):
            self.stuck.set()
            await asyncio.Event().wait()
        self.messages.append(message)
        self.body += body
        self.done = not message.get("more_body", True)
        self.news.set()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def until(self, part: bytes) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while part not in self.body:
                self.news.clear()
                await self.news.wait()


def responding(response: TailResponse, wire: Wire) -> "asyncio.Task[None]":
    return asyncio.create_task(response(SCOPE, wire.receive, wire.send))
