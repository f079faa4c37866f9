"""A client that reads a stream, and runs for it to read."""

import asyncio
from contextlib import aclosing, suppress

from milepost.api.cursors import parse_cursor
from milepost.api.stream import Selection, Tail
from milepost.core.events import (
    Failure,
    MessageAborted,
    MessageCompleted,
    StepCompleted,
    StepStarted,
    ToolCallCompleted,
    ToolCallRequested,
    ToolCallStarted,
)
from milepost.core.usage import Usage
from tests.live.client import Client, Sent, parsed
from tests.runtime.writing import Run
from tests.store.making import TENANT

TIMEOUT_S = 10
ALL = Selection()
# Every kind of character that a careless cut would tear apart.
TEXT = "Grüße, 👩‍🚀 e\u0301lan — 漢字 🇩🇪 done."


class Reading:
    """A client that reads in the background while the test goes on."""

    def __init__(self, tail: Tail, client: Client | None = None) -> None:
        self.tail = tail
        self.client = client or Client()
        self._task: asyncio.Task[Client] | None = None

    async def __aenter__(self) -> "Reading":
        self._task = asyncio.create_task(self.client.read(self.tail.pieces()))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def seen(self, seq: int) -> None:
        """Wait until the client has seen an event of the log."""
        await self.client.until(lambda client: bool(client.seqs) and client.seqs[-1] >= seq)

    async def told(self, text: str, message_id: str = "msg_1") -> None:
        """Wait until the client has a message's text."""
        await self.client.until(lambda client: client.texts.get(message_id) == text)

    async def ended(self) -> Client:
        """Return the client once its stream has ended."""
        assert self._task is not None
        async with asyncio.timeout(TIMEOUT_S):
            return await self._task


def tail_of(run: Run, position: str = "0", selection: Selection = ALL) -> Tail:
    """Return a tail of the run from a position on."""
    return Tail(run.store, run.hub, TENANT, run.id, parse_cursor(position), selection)


async def whole(run: Run, position: str = "0", selection: Selection = ALL) -> list[Sent]:
    """Return all that a stream sends from a position to its end."""
    sent: list[Sent] = []
    async with asyncio.timeout(TIMEOUT_S):
        async with aclosing(tail_of(run, position, selection).pieces()) as pieces:
            async for piece in pieces:
                sent += parsed(piece)
    return sent


async def ready(run: Run, position: str = "0", selection: Selection = ALL) -> list[Sent]:
    """Return what a stream sends at once."""
    async with asyncio.timeout(TIMEOUT_S):
        async with aclosing(tail_of(run, position, selection).pieces()) as pieces:
            return parsed(await anext(pieces))


async def played(run: Run) -> None:
    """Play a run with a message, a call, an attempt that fails, and an answer."""
    await run.write(StepStarted(1))
    text = await run.start("msg_1")
    run.say(text, "On ", "it.")
    call = ToolCallRequested("call_1_0", "add", {}, "server", "key", "msg_1")
    await run.write(MessageCompleted("msg_1", "On it.", "stop", Usage()), call)
    await run.write(ToolCallStarted("call_1_0", 1, "read"))
    await run.write(ToolCallCompleted("call_1_0", 42, 1), StepCompleted(1), StepStarted(2))
    lost = await run.start("msg_2")
    run.say(lost, "Gone")
    await run.write(MessageAborted("msg_2", "busy", Failure("provider_overloaded", "busy")))
    text = await run.start("msg_3")
    run.say(text, *TEXT)
    await run.complete(TEXT, "msg_3")
    await run.write(StepCompleted(2))
    await run.end()


async def long_results(run: Run, count: int, size: int = 50_000) -> None:
    """Write a log of `count` big events."""
    for index in range(count):
        await run.write(ToolCallCompleted(f"call_1_{index}", "x" * size, 1))
