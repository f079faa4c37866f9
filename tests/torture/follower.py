"""Following a run's stream over cuts and changing processes, and believing none of them."""

import asyncio
import random
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, get_args

import aiohttp
import orjson

from milepost.client import Milepost
from milepost.core.events import Terminal
from tests.torture.clients import AGAIN_S, LOST, Doors

TERMINAL = frozenset(kind.type for kind in get_args(Terminal))
ACHIEVEMENTS = TERMINAL | {"message.completed", "tool_call.completed", "tool_call.failed"}
CUT_AFTER_MEAN = 9
_IN_A_MESSAGE = re.compile(r"[0-9]+~(?P<message_id>[^:]+):(?P<offset>[0-9]+)")


class UnsoundError(Exception):
    """The stream contradicts what it said before."""


@dataclass(eq=False, slots=True)
class Seen:
    """What a client has read of a run so far, and where it is in it.

    `began` says which worker began a call last, `achieved` counts what got the run on.
    """

    position: str | None = None
    seq: int = 0
    resumes: int = 0
    achieved: int = 0
    terminal: str | None = None
    texts: dict[str, str] = field(default_factory=dict)
    completed: dict[str, str] = field(default_factory=dict)
    worker: str = ""
    began: dict[str, str] = field(default_factory=dict)

    def take(self, id_: str | None, kind: str, body: dict[str, Any]) -> None:
        """Take in one frame. Raises `UnsoundError` for what is lost, doubled, or contradicts."""
        if id_ is not None:
            self.position = id_
        if "seq" in body:
            self._take_durable(kind, body["seq"], body["data"])
        elif kind == "message.delta":
            self._take_delta(body["data"])

    def _take_durable(self, kind: str, seq: int, said: dict[str, Any]) -> None:
        if self.terminal:
            raise UnsoundError(f"{kind} came behind {self.terminal}")
        if seq != self.seq + 1:
            raise UnsoundError(f"event {seq} came behind event {self.seq}")
        self.seq = seq
        self.achieved += kind in ACHIEVEMENTS
        match kind:
            case "message.completed":
                self._complete(said["message_id"], said["content"])
            case "message.aborted":
                self.texts.pop(said["message_id"], None)
            case "run.started" | "run.resumed":
                self.worker = said["worker"]
            case "tool_call.started":
                self.began[said["call_id"]] = self.worker
            case _:
                pass
        if kind in TERMINAL:
            self.terminal = kind

    def _complete(self, message_id: str, content: str) -> None:
        read = self.texts.pop(message_id, "")
        if read != content:
            raise UnsoundError(f"message {message_id} was read as {read!r}, and is {content!r}")
        self.completed[message_id] = content

    def _take_delta(self, said: dict[str, Any]) -> None:
        """Add text. What lies before what is known is said again only after a resume."""
        message_id, offset, text = said["message_id"], said["offset"], said["text"]
        known = self.texts.get(message_id, "")
        if message_id in self.completed:
            raise UnsoundError(f"text came for message {message_id}, which was complete")
        if offset > len(known):
            raise UnsoundError(f"text at {offset} came behind {len(known)} characters")
        again = known[offset : offset + len(text)]
        if not text.startswith(again):
            raise UnsoundError(f"{text!r} at {offset} contradicts {known!r}")
        self.texts[message_id] = known + text[len(again) :]


async def follow(doors: Doors, run_id: str, chance: random.Random, seen: Seen) -> None:
    """Read a run's stream to its end, hanging up now and then to go on at another process."""
    while True:
        frames_left = round(chance.expovariate(1 / CUT_AFTER_MEAN)) + 1
        try:
            async with doors.stream(run_id, seen.position) as content:
                async for id_, kind, body in frames(content):
                    if kind == "stream.reconnect":
                        break
                    seen.take(id_, kind, body)
                    frames_left -= 1
                    if seen.terminal or not frames_left:
                        break
        except LOST:
            await asyncio.sleep(AGAIN_S)
        if seen.terminal:
            return
        seen.resumes += 1


async def follow_with_client(client: Milepost, run_id: str, seen: Seen) -> None:
    """Read a run's stream to its end with our own client, which mends what breaks by itself."""
    async for event in client.runs.stream(run_id):
        body = {"data": event.data} if event.seq is None else {"data": event.data, "seq": event.seq}
        seen.take(event.id, event.type, body)


async def frames(
    content: aiohttp.StreamReader,
) -> AsyncIterator[tuple[str | None, str, dict[str, Any]]]:
    """Yield the id, the type and the body of each event."""
    fields: dict[bytes, bytes] = {}
    async for raw in content:
        line = raw.rstrip(b"\n")
        if not line:
            if b"data" in fields:
                id_ = fields.get(b"id")
                body = orjson.loads(fields[b"data"])
                yield (id_.decode() if id_ else None), fields[b"event"].decode(), body
            fields = {}
            continue
        name, _, value = line.partition(b":")
        if name:
            fields[name] = value.removeprefix(b" ")
