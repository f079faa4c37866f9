"""A vendor's streaming endpoint over HTTP: what every wire needs done around its translation."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from importlib.metadata import version
from io import BytesIO
from typing import Protocol

import aiohttp

from milepost.core.errors import ConfigurationError, ProviderError
from milepost.core.model import Delta, Finished, ModelRequest, Spent
from milepost.core.usage import Usage
from milepost.providers.address import is_address
from milepost.providers.failures import Failures
from milepost.providers.reading import Decoder, Patience, Reading
from milepost.providers.reuse import Way
from milepost.providers.tokens import estimate, estimate_prompt
from milepost.providers.wire_names import WireNames

CONNECT_S_MAX = 10.0
ERROR_BODY_S_MAX = 5.0
ERROR_BODY_BYTES_MAX = 16_384
# aiohttp warns of longer bodies in one piece: sending one could hold up the event loop.
WHOLE_BODY_BYTES_MAX = 1_048_576


class ReplyDecoder(Decoder, Protocol):
    """A wire's events as deltas, and what only the whole reply tells.

    `spent` says whether the vendor told what the reply took; `said_chars` is its length so far.
    """

    @property
    def spent(self) -> bool: ...

    @property
    def said_chars(self) -> int: ...

    def finish(self) -> Finished: ...


class Wire(Protocol):
    """How one vendor is asked, and how it answers; pure. `encode` gives a body of JSON."""

    def path(self, request: ModelRequest, /) -> str: ...

    def headers(self, api_key: str | None) -> dict[str, str]: ...

    def encode(self, request: ModelRequest) -> bytes: ...

    def decoder(self, failures: Failures) -> ReplyDecoder: ...


class Endpoint:
    """A provider over one wire. `base_url` ends where the wire's `path` begins.

    A session that is `telling_reuse` is spared the errors of kept connections that are gone.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        wire: Wire,
        *,
        base_url: str,
        api_key: str | None,
        name: str,
        patience: Patience | None = None,
    ) -> None:
        self._http = http
        self._wire = wire
        self._base_url = _checked(base_url, name)
        _require_sendable(api_key, name)
        self._headers = {**_HEADERS, **wire.headers(api_key or None)}
        self._patience = patience or Patience()
        self._failures = Failures(name, api_key, http.headers.values())
        # The waits inside of a reply are ours: aiohttp's would cost a timer at every read.
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S_MAX)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the reply. Leaving early closes the connection, so that the vendor stops too."""
        first_deadline = asyncio.get_running_loop().time() + self._patience.first_s
        names = WireNames.of(request)
        response = await self._ask(names.outward(request))
        decoder = self._wire.decoder(self._failures)
        reading = Reading(
            response, decoder, self._failures, self._patience, first_deadline=first_deadline
        )
        try:
            while deltas := await reading.next():
                for delta in names.inward(deltas):
                    yield delta
            if not decoder.spent:
                yield _estimated(request, decoder.said_chars)
            yield decoder.finish()
            await reading.drain()
        finally:
            reading.close()

    async def _ask(self, request: ModelRequest) -> aiohttp.ClientResponse:
        url = self._base_url + self._wire.path(request)
        body = self._wire.encode(request)
        try:
            async with asyncio.timeout(self._patience.first_s):
                response = await self._post(url, body)
        except aiohttp.ClientConnectorCertificateError as error:
            raise self._failures.unreachable(error, retryable=False) from error
        except (aiohttp.ClientConnectionError, OSError) as error:
            raise self._unanswered(error) from error
        except aiohttp.ClientError as error:
            # What was not understood is quoted there, and may be our key.
            raise self._failures.unreadable("no proper HTTP", str(error).encode()) from None
        if response.status != 200:
            raise await self._refused(response)
        return response

    async def _post(self, url: str, body: bytes) -> aiohttp.ClientResponse:
        """Send the request, and again if a kept connection is gone before a byte came back.

        A server may close a kept connection without announcing it (llama.cpp's does so after every
        stream), and the next request then finds out. On a fresh one the server may have worked, and
        charged for it, before it went away: whether to try that again is for others to say.
        """
        way = Way()
        try:
            return await self._send(url, body, way)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if not way.kept or isinstance(error, aiohttp.ClientConnectorError):
                raise
            return await self._send(url, body, Way())

    async def _send(self, url: str, body: bytes, way: Way) -> aiohttp.ClientResponse:
        return await self._http.post(
            url,
            data=body if len(body) <= WHOLE_BODY_BYTES_MAX else BytesIO(body),
            headers=self._headers,
            timeout=self._timeout,
            allow_redirects=False,
            trace_request_ctx=way,
        )

    def _unanswered(self, error: Exception) -> ProviderError:
        # A connection that takes too long is a TimeoutError as well, but nobody was reached.
        if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientError):
            return self._failures.timed_out("answer", self._patience.first_s)
        return self._failures.unreachable(error)

    async def _refused(self, response: aiohttp.ClientResponse) -> ProviderError:
        try:
            body = await _beginning(response)
        finally:
            response.close()
        return self._failures.refused(response.status, response.headers, body)


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """Return what an error says, as far as it comes in time: its status says the most."""
    body = b""
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(ERROR_BODY_S_MAX):
            while len(body) < ERROR_BODY_BYTES_MAX and (piece := await response.content.readany()):
                body += piece
    return body


def _estimated(request: ModelRequest, said_chars: int) -> Spent:
    """Some servers count no tokens; a guess keeps budgets meaningful, and nothing would not."""
    return Spent(Usage(input_tokens=estimate_prompt(request), output_tokens=estimate(said_chars)))


def _checked(base_url: str, name: str) -> str:
    if not is_address(base_url):
        raise ConfigurationError(
            f"The base URL of provider {name} is no http:// or https:// address: {base_url!r}"
        )
    return base_url.rstrip("/")


_HEADERS = {
    "Accept": "text/event-stream",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": f"milepost/{version('milepost')}",
}


def _require_sendable(api_key: str | None, name: str) -> None:
    if api_key and (not (api_key.isascii() and api_key.isprintable()) or " " in api_key):
        raise ConfigurationError(
            f"The API key of provider {name} holds a blank, a line end or a letter beyond ASCII;"
            " was it copied whole?"
        )
