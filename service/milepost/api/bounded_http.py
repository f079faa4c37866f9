"""HTTP/1.1 whose requests have a head of bounded size, sent in bounded time, and nothing else.

uvicorn's own protocol over httptools keeps whatever comes until a head is complete: one client
could fill the memory with headers, or hold connections without ever asking for anything. And of a
request that asks for another protocol it reads no body.
"""

import asyncio
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from milepost.api.gathering import Gathering
from milepost.api.problems import problem
from milepost.core.errors import InvalidError
from milepost.runtime.clock import Ids

HEAD_BYTES_MAX = 65_536
HEAD_S_MAX = 30.0
ABORT = "milepost.abort"
"""Where in its scope an application finds what breaks the connection: a close that waits until all
is sent may wait for ever."""


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's protocol, which hangs up on a head that is too large or too slow."""

    head_s_max = HEAD_S_MAX

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._head_is_open = False
        self._hang_up: asyncio.TimerHandle | None = None

    def connection_made(  # type: ignore[override]  # as uvicorn's own
        self, transport: asyncio.Transport
    ) -> None:
        """Give the first request's head its time."""
        super().connection_made(Gathering(transport, self.loop))
        self._open_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time."""
        self._close_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came, unless it is too much before the head's end."""
        size = len(data)
        while data:
            data = self._parsed(data)
        if self._head_is_open:
            self._head_bytes += size
            if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
                self.send_400_response(
                    f"its line and headers have more than {HEAD_BYTES_MAX} bytes; send less in them"
                )

    def _parsed(self, data: bytes) -> bytes:
        """Take what came up to a head that asks for another protocol; return that one and the rest.

        Whoever would rather speak another protocol has still asked in this one (RFC 9110, section
        7.8). httptools takes all that follows such a head for the other one, bodies too: it is
        given the head again, without `Upgrade`.
        """
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            told = "Invalid HTTP request received."
            self.logger.warning(told)
            self.send_400_response(told)
        except httptools.HttpParserUpgrade as upgrade:
            return self._head_without_upgrade() + data[upgrade.args[0] :]
        return b""

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        line = b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, version)
        kept = (header for header in self.headers if header[0] != b"upgrade")
        return b"".join((line, *(b"%s: %s\r\n" % header for header in kept), b"\r\n"))

    @property
    def _asks_for_another_protocol(self) -> bool:
        # Who asks for a tunnel asks for nothing here, with or without `Upgrade`.
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def send_400_response(self, msg: str) -> None:
        """Hang up with a problem, as the application would, which never hears of it."""
        error = InvalidError(f"this is no HTTP/1.1 request: {msg}", code="malformed_http")
        answer = problem(error, instance="", request_id=Ids()("req"))
        headers = [*answer.raw_headers, (b"connection", b"close")]
        lines = [STATUS_LINE[answer.status_code], *(b"%s: %s\r\n" % each for each in headers)]
        self.transport.write(b"".join((*lines, b"\r\n", bytes(answer.body))))
        self.transport.close()

    def on_message_begin(self) -> None:
        """Give a request's head its time and its room."""
        super().on_message_begin()
        cast(dict[str, Any], self.scope)[ABORT] = self.transport.abort
        self._open_head()

    def on_headers_complete(self) -> None:
        """Go on without a bound: bodies have their own."""
        self._close_head()
        if not self._asks_for_another_protocol:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Let the request end, unless it is read again."""
        if not self._asks_for_another_protocol:
            super().on_message_complete()

    def _open_head(self) -> None:
        self._close_head()
        self._head_bytes = 0
        self._head_is_open = True
        self._hang_up = self.loop.call_later(self.head_s_max, self.transport.close)

    def _close_head(self) -> None:
        self._head_is_open = False
        if self._hang_up is not None:
            self._hang_up.cancel()
            self._hang_up = None
