"""An HTTP server that says exactly the bytes it is given, however wrong they are."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import repeat
from typing import Literal

import orjson

SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
DRIP_S = 0.005

After = Literal["close", "abort", "hold", "drop"]
"""What follows the last byte: a proper end, a reset, nothing until the client hangs up, or nothing
until it asks again, which is answered with a reset."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One request, as it came."""

    head: str
    body: dict[str, object]


@dataclass(slots=True)
class RawServer:
    """Where it listens, and what it heard. `hung_up` is set once a client has gone."""

    base_url: str = ""
    requests: list[Heard] = field(default_factory=list)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)


def event(payload: object) -> bytes:
    """Return `payload` as one SSE event."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def chunk(delta: dict[str, object] | None = None, reason: str | None = None) -> bytes:
    """Return an event with one choice of a streamed chat completion."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": reason}
    return event({"id": "chatcmpl-1", "model": "stub-model", "choices": [choice]})


def answer(status: str, body: bytes, *headers: str) -> bytes:
    """Return a whole HTTP answer."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def dripping(head: bytes, drop: bytes) -> Iterable[bytes]:
    """Return an answer that never ends: `drop` again and again."""
    yield head
    yield from repeat(drop)


@asynccontextmanager
async def serving(pieces: Iterable[bytes], after: After = "close") -> AsyncIterator[RawServer]:
    """Answer every request with `pieces`, a moment apart."""
    stub = RawServer()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            stub.requests.append(await _read(reader))
            await _say(pieces, writer)
            if after == "hold":
                await reader.read()
            if after == "drop":
                await reader.read(1)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # The client has gone, which is what some tests are about.
        finally:
            stub.hung_up.set()
            _end(writer, after)

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        stub.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        yield stub


async def _read(reader: asyncio.StreamReader) -> Heard:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    lines = (line.partition(":") for line in head.lower().splitlines())
    length = next(int(value) for name, _, value in lines if name == "content-length")
    return Heard(head, orjson.loads(await reader.readexactly(length)))


async def _say(pieces: Iterable[bytes], writer: asyncio.StreamWriter) -> None:
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(DRIP_S)


def _end(writer: asyncio.StreamWriter, after: After) -> None:
    if after in {"abort", "drop"}:
        writer.transport.abort()
    else:
        writer.close()
