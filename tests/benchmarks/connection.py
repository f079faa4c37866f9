"""A connection to a server of this machine that costs as little as one can."""

import asyncio
from dataclasses import dataclass
from typing import Any, Self

import orjson

READ_BYTES = 65_536
PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said."""

    status: int
    body: bytes
    retry_after_s: float = 1

    def json(self) -> Any:
        """Return the body, decoded."""
        return orjson.loads(self.body)


class Connection:
    """Asks for one thing after the other."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str | None
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._key = key

    @classmethod
    async def open(cls, port: int, key: str | None = None) -> Self:
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port), key)

    async def ask(self, method: str, path: str, body: object = None) -> Answer:
        """Send a request, and return the answer."""
        async with asyncio.timeout(PATIENCE_S):
            self._writer.write(self._request(method, path, body, "application/json"))
            head = await self._reader.readuntil(b"\r\n\r\n")
            body = await self._reader.readexactly(_number(head, b"content-length"))
            return Answer(
                int(head.split(b" ", 2)[1]), body, retry_after_s=_number(head, b"retry-after") or 1
            )

    async def follow(self, path: str) -> None:
        """Ask for a stream, which `piece` reads then."""
        self._writer.write(self._request("GET", path, None, "text/event-stream"))
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head

    async def piece(self) -> bytes:
        """Return what comes next of a stream."""
        async with asyncio.timeout(PATIENCE_S):
            piece = await self._reader.read(READ_BYTES)
        assert piece, "the stream ended"
        return piece

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        await self._writer.wait_closed()

    def _request(self, method: str, path: str, body: object, media: str) -> bytes:
        content = b"" if body is None else orjson.dumps(body)
        lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", f"accept: {media}"]
        if self._key:
            lines.append(f"authorization: Bearer {self._key}")
        if body is not None:
            lines += ["content-type: application/json", f"content-length: {len(content)}"]
        return "\r\n".join((*lines, "", "")).encode() + content


def _number(head: bytes, name: bytes) -> int:
    """Return the number that a header has; 0 without it."""
    found = head.lower().partition(b"\r\n" + name + b": ")[2]
    return int(found.split(b"\r\n")[0] or 0)
