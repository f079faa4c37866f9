"""A client of the stream that believes nothing: it notices at once what is lost or doubled."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import orjson

TIMEOUT_S = 10


@dataclass(frozen=True)
class Sent:
    """One event as it came over the wire."""

    event: str
    id: str | None
    body: dict[str, Any]
    retry: str | None = None

    @property
    def seq(self) -> int | None:
        """The place in the log; None for what is not in it."""
        found = self.body.get("seq")
        return None if found is None else int(found)

    @property
    def data(self) -> dict[str, Any]:
        """The event's own data."""
        found: dict[str, Any] = self.body["data"]
        return found


def parsed(piece: bytes) -> list[Sent]:
    """Read server-sent events by the letter of their specification."""
    events = []
    fields: dict[str, str] = {}
    for line in piece.decode().split("\n"):
        if line:
            name, _, value = line.partition(":")
            if name:
                fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            events.append(
                Sent(
                    fields["event"],
                    fields.get("id"),
                    orjson.loads(fields["data"]),
                    fields.get("retry"),
                )
            )
            fields = {}
    assert not fields, f"a frame was torn apart: {piece!r}"
    return events


@dataclass
class Client:
    """Concatenates what it is sent, and notices at once what is lost or doubled."""

    position: str = "0"
    seqs: list[int] = field(default_factory=list)
    seen: list[Sent] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def types(self) -> list[str]:
        return [sent.event for sent in self.seen]

    def take(self, sent: Sent) -> None:
        """Take in one event."""
        self.seen.append(sent)
        if sent.id is not None:
            self.position = sent.id
        if sent.seq is not None:
            self._take_durable(sent, sent.seq)
        elif sent.event == "message.delta":
            self._take_delta(sent)

    def _take_durable(self, sent: Sent, seq: int) -> None:
        assert sent.id == str(seq)
        assert seq == (self.seqs[-1] if self.seqs else 0) + 1, "an event is lost or doubled"
        self.seqs.append(seq)
        message_id = sent.data.get("message_id", "")
        match sent.event:
            case "message.started":
                self.started.add(message_id)
            case "message.completed":
                assert self.texts.get(message_id, "") == sent.data["content"]
            case "message.aborted":
                self.texts.pop(message_id, None)
            case _:
                pass

    def _take_delta(self, sent: Sent) -> None:
        message_id, offset = sent.data["message_id"], sent.data["offset"]
        text = self.texts.get(message_id, "")
        assert message_id in self.started, "a delta came before its message"
        assert offset == len(text), "text is lost or doubled"
        self.texts[message_id] = text + sent.data["text"]
        end = len(self.texts[message_id])
        assert sent.id == f"{self.seqs[-1]}~{message_id}:{end}"

    async def read(self, pieces: AsyncGenerator[bytes, None]) -> "Client":
        """Read a tail's pieces to their end."""
        async with aclosing(pieces):
            async for piece in pieces:
                self.pieces.append(piece)
                for sent in parsed(piece):
                    self.take(sent)
                self.news.set()
        return self

    async def until(self, reached: Callable[["Client"], bool]) -> None:
        """Wait until what was read says so."""
        async with asyncio.timeout(TIMEOUT_S):
            while not reached(self):
                self.news.clear()
                await self.news.wait()
