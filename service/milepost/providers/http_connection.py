"""One connection to a vendor over HTTP/1.1, and the answers that come over it one by one."""

import asyncio
import zlib
from collections.abc import Callable
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

# A reader that is behind by as much lets the vendor wait.
BUFFERED_BYTES_MAX = 262_144
INFLATED_BYTES_MAX = 262_144
# What comes before the body, between its pieces or behind it: the parser would take it without end.
HEAD_BYTES_MAX = 1_048_576
_GZIP_OR_ZLIB = 47  # zlib's own number for: whichever of them the first bytes say.
_NO_BODY = frozenset({204, 304})


class Answer:
    """One answer, as it comes: `status` and `headers`, whose names are in small letters, then more.

    `heard` says whether anything of it came at all.
    """

    __slots__ = (
        "_connection", "_error", "_inflater", "_pieces", "_rest", "_size", "_waiter", "_whole",
        "headers", "heard", "status",
    )  # fmt: skip

    def __init__(self, connection: "Connection") -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.heard = False
        self._connection = connection
        self._pieces: list[bytes] = []
        self._size = 0
        self._whole = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._inflater: zlib._Decompress | None = None
        self._rest = b""

    async def head(self) -> None:
        """Wait for the status and the headers. Raises `OSError` or `HttpParserError`."""
        while not self.status:
            if self._error:
                raise self._error
            await self._news()

    async def readany(self) -> bytes:
        """Return what of the body is there, once there is anything; nothing at its end.

        Raises `OSError` where it breaks off, and `HttpParserError` where it cannot be read.
        """
        while True:
            if self._pieces or self._rest:
                if piece := self._taken():
                    return piece
            elif self._whole:
                return b""
            elif self._error:
                raise self._error
            else:
                await self._news()

    def at_eof(self) -> bool:
        """Say whether the whole answer came, and was read."""
        return self._whole and not self._pieces and not self._rest

    def close(self) -> None:
        """Want no more. A connection that still has something to say is closed with it."""
        if not self._whole:
            self.fail(ConnectionAbortedError("the answer was given up"))
            self._connection.abort()

    def begin(self, status: int) -> None:
        """Take the status, once all headers are there."""
        self.status = status
        encoding = self.headers.get("content-encoding", "identity").lower()
        if encoding in {"gzip", "x-gzip", "deflate"}:
            self._inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
        elif encoding not in {"identity", ""}:
            self.fail(HttpParserError(f"an answer in the encoding {encoding}"))
            self._connection.abort()
        self._tell()

    def take(self, piece: bytes) -> int:
        """Take a piece of the body; return how many bytes of it wait to be read."""
        self._pieces.append(piece)
        self._size += len(piece)
        self._tell()
        return self._size

    def end(self) -> None:
        """Take note that this was all."""
        self._whole = True
        self._tell()

    def fail(self, error: Exception) -> None:
        """Take note that no more can come; what came before can be read still."""
        if not self._whole and self._error is None:
            self._error = error
            self._tell()

    def _taken(self) -> bytes:
        pieces = self._pieces
        piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self._size > BUFFERED_BYTES_MAX:
            self._connection.resume()
        self._pieces, self._size = [], 0
        return piece if self._inflater is None else self._inflated(self._rest + piece)

    def _inflated(self, piece: bytes) -> bytes:
        """Return some of what `piece` stands for: all of it could be a thousand times as long."""
        assert self._inflater is not None
        try:
            inflated = self._inflater.decompress(piece, INFLATED_BYTES_MAX)
        except zlib.error as error:
            raise HttpParserError(f"a body that cannot be inflated: {error}") from None
        self._rest = self._inflater.unconsumed_tail
        return inflated

    async def _news(self) -> None:
        self._waiter = self._connection.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _tell(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Connection(asyncio.Protocol):
    """Sends requests one by one, each when the answer before it is whole.

    `on_free` is called whenever the connection can be asked again, `is_open` says whether it still
    is, and `free_since` when it was asked no more, by the loop's clock.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_free: Callable[["Connection"], None]
    ) -> None:
        self.loop = loop
        self.is_open = False
        self.free_since = 0.0
        self._on_free = on_free
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._parser = HttpResponseParser(self)
        # What llhttp is told where it reads for clients elsewhere: servers are not that exact.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        self._bodiless_bytes = 0
        self._keeps = False
        self._is_framed = False
        self._is_paused = False
        self._whole = False

    def ask(self, request: bytes) -> Answer:
        """Send a request; return its answer, of which nothing is there yet."""
        assert self._answer is None, "one request at a time"
        self._answer = answer = Answer(self)
        self._bodiless_bytes = 0
        self._keeps = self._is_framed = self._whole = False
        if self._transport is None or self._transport.is_closing():
            answer.fail(ConnectionResetError("the server hung up"))
        else:
            self._transport.write(request)
        return answer

    def abort(self) -> None:
        """Close the connection at once."""
        self.is_open = False
        self._answer = None
        if self._transport is not None:
            self._transport.abort()

    def resume(self) -> None:
        """Let the server send on."""
        if self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """Read on; what comes unasked is nobody's answer."""
        answer = self._answer
        if answer is None:
            self.abort()
            return
        answer.heard = True
        self._bodiless_bytes += len(data)
        if self._bodiless_bytes > HEAD_BYTES_MAX:
            self._break(answer, HttpParserError("headers without end"))
            return
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._break(answer, HttpParserError("another protocol than HTTP"))
        except HttpParserError as error:
            self._break(answer, error)
        else:
            if self._whole:
                self._finish(answer)

    def connection_lost(self, error: Exception | None) -> None:
        """End: the body of an answer that says nothing of its length ends like this."""
        self.is_open = False
        if (answer := self._answer) is None:
            return
        self._answer = None
        if error is None and answer.status and not self._is_framed:
            answer.end()
        else:
            answer.fail(ConnectionResetError(str(error) if error else "the server hung up"))

    def on_message_begin(self) -> None:
        """Another message behind the answer is one that nobody asked for."""
        if self._whole:
            self._keeps = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; the first of several is the one that counts."""
        if self._answer is not None and not self._whole:
            text = value.decode("utf-8", "surrogateescape")
            self._answer.headers.setdefault(name.lower().decode("latin-1"), text)

    def on_headers_complete(self) -> None:
        """Begin the answer, unless it is one that only says that the answer will come."""
        answer, status = self._answer, self._parser.get_status_code()
        if answer is None or self._whole:
            return
        if status < 200:
            answer.headers.clear()
            return
        headers = answer.headers
        self._keeps = self._parser.should_keep_alive()
        self._is_framed = (
            "content-length" in headers
            or "chunked" in headers.get("transfer-encoding", "").lower()
            or status in _NO_BODY
        )
        answer.begin(status)

    def on_body(self, body: bytes) -> None:
        """Hand a piece of the body on."""
        if self._answer is None or self._whole:
            return
        self._bodiless_bytes = 0
        if self._answer.take(body) > BUFFERED_BYTES_MAX and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """Take note that the answer is whole."""
        self._whole = self._answer is not None and self._answer.status != 0

    def _finish(self, answer: Answer) -> None:
        transport = self._transport
        self._answer = None
        answer.end()
        if (
            self._keeps
            and transport is not None
            and not transport.is_closing()
            and not transport.get_write_buffer_size()
        ):
            self.resume()
            self._on_free(self)
        else:
            self.abort()

    def _break(self, answer: Answer, error: Exception) -> None:
        """Give up. What comes behind a whole answer does it no harm."""
        if self._whole:
            answer.end()
        else:
            answer.fail(error)
        self.abort()
