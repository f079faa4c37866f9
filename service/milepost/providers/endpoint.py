"""A vendor's streaming endpoint over HTTP: what every wire needs done around its translation."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import suppress
from importlib.metadata import version
from typing import Protocol

from httptools import HttpParserError

from milepost.core.errors import ConfigurationError, ProviderError
from milepost.core.model import Delta, Finished, ModelRequest, Spent
from milepost.core.scarcity import is_scarcity
from milepost.core.usage import Usage
from milepost.providers.address import is_address
from milepost.providers.failures import Failures
from milepost.providers.http import Http, HungUpError
from milepost.providers.http_connection import Answer
from milepost.providers.reading import Decoder, Patience, Reading
from milepost.providers.tokens import estimate, estimate_request
from milepost.providers.wire_names import WireNames

SCARCE_S = 0.25
ERROR_BODY_S_MAX = 5.0
ERROR_BODY_BYTES_MAX = 16_384


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
    """A provider over one wire. `base_url` ends where the wire's `path` begins."""

    def __init__(
        self,
        http: Http,
        wire: Wire,
        *,
        base_url: str,
        api_key: str | None,
        name: str,
        patience: Patience | None = None,
    ) -> None:
        self._wire = wire
        _require_sendable(api_key, name)
        headers = {**_HEADERS, **wire.headers(api_key or None)}
        self._destination = http.to(_checked(base_url, name), headers)
        self._patience = patience or Patience()
        self._failures = Failures(name, api_key, http.headers.values())

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the reply. Leaving early closes the connection, so that the vendor stops too."""
        first_deadline = asyncio.get_running_loop().time() + self._patience.first_s
        names = WireNames.of(request)
        answer = await self._ask(names.outward(request))
        decoder = self._wire.decoder(self._failures)
        reading = Reading(
            answer, decoder, self._failures, self._patience, first_deadline=first_deadline
        )
        try:
            while deltas := await reading.next():
                for delta in names.inward(deltas):
                    yield delta
            if not decoder.spent:
                yield _estimated(request, decoder.said_chars)
            yield decoder.finish()
            await reading.drain()
        except ProviderError as error:
            if reading.has_said:
                error.at_work = True  # What has been said is billed, however it ended.
            raise
        finally:
            reading.close()

    async def _ask(self, request: ModelRequest) -> Answer:
        path, body = self._wire.path(request), self._wire.encode(request)
        try:
            async with asyncio.timeout(self._patience.first_s):
                answer = await self._post(path, body)
        except ssl.SSLCertVerificationError as error:
            raise self._failures.unreachable(error, retryable=False) from error
        except TimeoutError as error:
            raise self._failures.timed_out("answer", self._patience.first_s) from error
        except HungUpError as error:
            raise self._failures.hung_up() from error
        except OSError as error:
            raise self._failures.unreachable(error) from error
        except HttpParserError as error:
            # What was not understood is quoted there, and may be our key.
            raise self._failures.unreadable("no proper HTTP", str(error).encode()) from None
        if answer.status != 200:
            raise await self._refused(answer)
        return answer

    async def _post(self, path: str, body: bytes) -> Answer:
        """Ask. Where this machine has no file left for a connection, wait for one.

        That is no fault of the vendor's, which another one would not have, and it costs no attempt.
        """
        while True:
            try:
                return await self._destination.post(path, body)
            except OSError as error:
                if not is_scarcity(error):
                    raise
            await asyncio.sleep(SCARCE_S)

    async def _refused(self, answer: Answer) -> ProviderError:
        try:
            body = await _beginning(answer)
        finally:
            answer.close()
        return self._failures.refused(answer.status, answer.headers, body)


async def _beginning(answer: Answer) -> bytes:
    """Return what an error says, as far as it comes in time: its status says the most."""
    body = b""
    with suppress(TimeoutError, HttpParserError, OSError):
        async with asyncio.timeout(ERROR_BODY_S_MAX):
            while len(body) < ERROR_BODY_BYTES_MAX and (piece := await answer.readany()):
                body += piece
    return body


def _estimated(request: ModelRequest, said_chars: int) -> Spent:
    """Some servers count no tokens; a guess keeps budgets meaningful, and nothing would not."""
    return Spent(Usage(input_tokens=estimate_request(request), output_tokens=estimate(said_chars)))


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
