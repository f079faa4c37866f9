"""An HTTP server whose nth answer is the nth of a script, to the byte; then it hangs up."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as it came, and when on the loop's clock."""

    line: str
    headers: dict[str, str]
    body: bytes
    at_s: float


@dataclass(slots=True)
class ScriptedServer:
    """Where it listens, and what it was asked."""

    base_url: str
    asked: list[Asked] = field(default_factory=list)


def answer(status: str, body: object = None, **headers: str) -> bytes:
    """Return an answer with a JSON body; `retry_after` becomes `retry-after`."""
    content = b"" if body is None else orjson.dumps(body)
    kind = "application/json" if status.startswith("2") else "application/problem+json"
    lines = {"content-type": kind, "content-length": str(len(content)), **headers}
    return _head(status, lines) + content


def stream(*frames: bytes) -> bytes:
    """Return a stream that ends without saying whether it is complete."""
    return _head("200 OK", {"content-type": "text/event-stream; charset=utf-8"}) + b"".join(frames)


def frame(
    kind: str, data: dict[str, object], *, seq: int | None = None, place: str | None = None
) -> bytes:
    """Return an event as the service frames it."""
    said: dict[str, object] = {"type": kind, "run_id": "run_1", "data": data}
    if seq is not None:
        said["seq"] = seq
        place = str(seq)
    head = "" if place is None else f"id: {place}\n"
    return f"{head}event: {kind}\ndata: ".encode() + orjson.dumps(said) + b"\n\n"


def _head(status: str, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


@asynccontextmanager
async def scripted(answers: Sequence[bytes | None]) -> AsyncIterator[ScriptedServer]:
    """Serve the script; None hangs up without a word, and so does every request beyond its end."""
    served = ScriptedServer("")

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.asked.append(await _read(reader))
        turn = len(served.asked)
        if turn <= len(answers) and (said := answers[turn - 1]) is not None:
            writer.write(said)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        served.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield served


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    line, *lines = head.strip().splitlines()
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(line, headers, body, asyncio.get_running_loop().time())
