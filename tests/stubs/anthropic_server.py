"""A Messages server that keeps to the vendor's rules: it refuses, caches and signs as they say.

Shown tools, it thinks and asks for `add(17, 25)` for some steps, and then streams some tokens.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import orjson

from tests.stubs import anthropic_events as events
from tests.stubs.anthropic_rules import PromptCache, misplaced, refusal, signature
from tests.stubs.raw_server import Heard

_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"request-id: req_stub\r\ntransfer-encoding: chunked\r\n\r\n"
)
_MOVED = (
    "messages: Invalid `signature` in `thinking` block. The block is bound to a different"
    " conversation."
)


@dataclass(slots=True)
class AnthropicServer:
    """Where it listens, what it heard, and what it said in return."""

    steps: int
    calls: int
    tokens: int
    base_url: str = ""
    requests: list[Heard] = field(default_factory=list)
    usages: list[dict[str, int]] = field(default_factory=list)
    _cache: PromptCache = field(default_factory=lambda: PromptCache(set()))

    def answer(self, heard: Heard) -> bytes:
        """Return the whole HTTP answer to a request."""
        self.requests.append(heard)
        body: dict[str, Any] = dict(heard.body)
        if fault := refusal(_headers(heard.head), body):
            return _refused(fault)
        if misplaced(body):
            return _refused(_MOVED)
        self.usages.append(self._cache.count(body))
        said = events.whole(self._blocks(body), self._reason(body), self.usages[-1])
        return _HEAD + b"".join(map(_chunk, map(events.framed, said))) + b"0\r\n\r\n"

    def _blocks(self, body: dict[str, Any]) -> Sequence[list[events.Event]]:
        if not self._asks(body):
            return [events.text(0, *(f"token{n} " for n in range(self.tokens)))]
        thought = "They want a sum."
        step = len(body["messages"])
        called = [
            events.call(n, f"toolu_{step}_{n}", "add", '{"a":17,', '"b":25}')
            for n in range(1, self.calls + 1)
        ]
        return [events.thinking(0, thought, signature=signature(body, [])), *called]

    def _reason(self, body: dict[str, Any]) -> str:
        return "tool_use" if self._asks(body) else "end_turn"

    def _asks(self, body: dict[str, Any]) -> bool:
        """It asks for calls so many times after a person has spoken."""
        said = [m["content"][0]["type"] for m in reversed(body["messages"]) if m["role"] == "user"]
        answered = takewhile(lambda kind: kind == "tool_result", said)
        return "tools" in body and len([*answered]) < self.steps


def _headers(head: str) -> dict[str, str]:
    lines = (line.partition(":") for line in head.splitlines()[1:] if line)
    return {name.lower(): value.strip() for name, _, value in lines}


def _refused(fault: str) -> bytes:
    error = {"type": "invalid_request_error", "message": fault}
    body = orjson.dumps({"type": "error", "error": error, "request_id": "req_stub"})
    head = (
        f"HTTP/1.1 400 Bad Request\r\nrequest-id: req_stub\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _chunk(payload: bytes) -> bytes:
    return f"{len(payload):x}\r\n".encode() + payload + b"\r\n"


@asynccontextmanager
async def serving(
    *, steps: int = 1, calls: int = 1, tokens: int = 3
) -> AsyncIterator[AnthropicServer]:
    """Serve on 127.0.0.1; `calls` is how many calls it asks for at once, `steps` how often."""
    stub = AnthropicServer(steps, calls, tokens)
    kept: set[asyncio.StreamWriter] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept.add(writer)
        try:
            while True:
                writer.write(stub.answer(await _read(reader)))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # The client has gone.
        finally:
            kept.discard(writer)
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        stub.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield stub
        # From Python 3.12 on a server waits for its connections, and a client keeps them for later.
        for writer in kept:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Heard:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = int(_headers(head)["content-length"])
    return Heard(head, orjson.loads(await reader.readexactly(length)))
