"""The client's one HTTP connection pool: requests that are repeated where that does no harm."""

import asyncio
import itertools
import logging
import math
import random
import ssl
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
import orjson

from milepost.client.answers import (
    NOT_A_PROBLEM,
    beginning_of,
    lines_of,
    media_of,
    object_of,
    problem_of,
    text_of,
)
from milepost.client.foreign import SHOWN_MAX, no_milepost
from milepost.client.one_loop import OneLoop
from milepost.client.patience import Patience
from milepost.core.errors import (
    ApiError,
    ConfigurationError,
    InvalidError,
    MilepostError,
    UnavailableError,
)

CONNECT_S = 10.0
READ_S = 60.0
SILENCE_S_MAX = 30.0  # A stream that lives has a heartbeat every ten seconds.
KEPT_MAX = 20
EVENT_BYTES_MAX = 16 * 1_048_576
JITTER = 0.2

JSON, JSON_LINES = "application/json", "application/x-ndjson"
EVENT_STREAM = "text/event-stream"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# A POST carries an idempotency key; what else changes something is not sent twice.
_REPEATABLE = frozenset({"GET", "POST"})
# What a proxy says that has lost the server's answer.
_ANSWER_LOST = frozenset({502, 504})
# What a server says that may have lost its database's answer, or is stopped before it could answer.
_MAY_BE_DONE = frozenset({"database_unavailable", "unavailable"})

Params = Mapping[str, object]

_log = logging.getLogger("milepost.client")


class Transport:
    """Sends requests to one server. Raises `ApiError`, or `UnavailableError` without an answer."""

    def __init__(self, base_url: str, api_key: str | None, patience: Patience) -> None:
        host = _host_of(base_url)
        self.base_url = base_url
        self.patience = patience
        headers = _authorization(api_key)
        self._loop = OneLoop()
        try:
            self._http = httpx2.AsyncClient(
                base_url=base_url,
                headers=headers,
                timeout=httpx2.Timeout(READ_S, connect=CONNECT_S),
                # A stream holds a connection as long as it goes on, and there may be any number.
                limits=httpx2.Limits(max_keepalive_connections=KEPT_MAX),
                # No proxy can reach this machine's own loopback for us.
                trust_env=host not in _LOOPBACK,
                verify=_trusted(base_url),
            )
        except (ImportError, ValueError, OSError, httpx2.InvalidURL) as error:
            raise ConfigurationError(
                "what the environment says of proxies and certificates cannot be used"
                f" ({error}); see to HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE"
            ) from error

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def get(self, path: str, params: Params | None = None) -> Any:
        """Return what is at `path`; parameters that are None are left out."""
        return await self.request("GET", path, params=params)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Post a body, under a new idempotency key unless it is repeated here."""
        return await self.request("POST", path, body=body)

    async def change(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Change what is at `path`, which Milepost answers without a word."""
        said = await self.request(method, path, headers=headers)
        if said is not None:
            raise self.foreign(str(said))

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Mapping[str, Any] | None = None,
        lines: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Return the decoded answer, or None for an empty one; `lines` is a body of JSON lines."""
        place = _place(path, params)
        content = lines if body is None else as_json(body)
        media = None if content is None else JSON_LINES if body is None else JSON
        sent = {**_headers(method, media), **(headers or {})}
        for failures in itertools.count(1):
            self._require_open()
            error: MilepostError
            try:
                async with self._http.stream(
                    method, place, content=content, headers=sent
                ) as answer:
                    if answer.is_success:
                        return await self._said(answer)
                    error = refusal = await problem_of(answer)
                repeatable = refusal.retryable and (
                    method in _REPEATABLE or not _may_be_done(refusal)
                )
            except httpx2.RequestError as lost:
                error = self.unreachable(lost)
                repeatable = method in _REPEATABLE or isinstance(lost, httpx2.ConnectError)
            await self._bear(error, failures, repeatable=repeatable)
        raise AssertionError("counting does not end")

    async def lines(self, path: str) -> AsyncGenerator[Any, None]:
        """Yield what comes as JSON lines; where they break off, only the caller can begin anew."""
        place = _place(path)
        for failures in itertools.count(1):
            self._require_open()
            error: MilepostError
            has_begun = False
            try:
                async with self._http.stream(
                    "GET", place, headers={"Accept": JSON_LINES}
                ) as answer:
                    if not answer.is_success:
                        raise await problem_of(answer)
                    await self._require(JSON_LINES, answer)
                    has_begun = True
                    async for line in lines_of(answer):
                        yield self._line(line)
            except httpx2.RequestError as lost:
                error, repeatable = self.unreachable(lost), not has_begun
            except ApiError as refused:
                error, repeatable = refused, refused.retryable
            else:
                return
            await self._bear(error, failures, repeatable=repeatable)

    async def _bear(self, error: MilepostError, failures: int, *, repeatable: bool) -> None:
        """Wait before the next try; raise the error if there is to be none."""
        if not repeatable or failures >= self.patience.tries_max:
            raise error
        if failures == 1:
            tell_of_trouble(error)
        await self.pause(failures, asked_s(error))

    @asynccontextmanager
    async def frames(
        self, path: str, params: Params, last_event_id: str | None
    ) -> AsyncIterator[AsyncIterator[httpx2.ServerSentEvent] | None]:
        """Give the server-sent events of one connection; None where there is nothing more (204).

        Iterating raises `httpx2.RequestError` when the connection breaks.
        """
        self._require_open()
        async with self._http.sse(
            _place(path, params),
            headers=_going_on(last_event_id),
            timeout=httpx2.Timeout(SILENCE_S_MAX, connect=CONNECT_S),
            max_event_size=EVENT_BYTES_MAX,
        ) as source:
            if not source.response.is_success:
                raise await problem_of(source.response)
            if source.response.status_code == 204:
                yield None
                return
            await self._require(EVENT_STREAM, source.response)
            source.response.encoding = "utf-8"  # As all such streams, whatever a proxy says of it.
            yield aiter(source)

    def _require_open(self) -> None:
        """Raise `RuntimeError` where there are no connections for what is asked."""
        if self._http.is_closed:
            raise RuntimeError("this client was closed; make a new one")
        self._loop.require()

    async def _require(self, media: str, answer: httpx2.Response) -> None:
        """Raise `ApiError` where somebody else answers with something else."""
        if media_of(answer) != media:
            raise self.foreign(text_of(await beginning_of(answer)), answer)

    async def _said(self, answer: httpx2.Response) -> Any:
        """Return what a success says: an object, or nothing, if it is Milepost that answers."""
        if media_of(answer) != JSON:
            content = await beginning_of(answer)
            said = None
        else:
            content = await answer.aread()
            said = object_of(content)
        if said is None and content:
            raise self.foreign(text_of(content), answer)
        return said

    def _line(self, line: bytes) -> Any:
        try:
            return orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise UnavailableError(
                f"a line from {self.base_url} is no JSON: {line[:SHOWN_MAX]!r}", code="unreachable"
            ) from error

    def foreign(self, said: str, answer: httpx2.Response | None = None) -> ApiError:
        """Return what to say of an answer that Milepost does not give."""
        media = None if answer is None else answer.headers.get("content-type", "")
        return no_milepost(said, media=media, at=f"at {self.base_url}")

    async def pause(self, failures: int, wanted_s: float | None) -> None:
        """Wait before the next try, not at the same moment as everybody else."""
        wait_s = self.patience.wait_after(failures, wanted_s)
        await asyncio.sleep(wait_s * random.uniform(1.0, 1.0 + JITTER))  # noqa: S311 - jitter

    def unreachable(self, lost: httpx2.RequestError | None) -> UnavailableError:
        """Return what to say when there was no answer, or only a part of one."""
        why = str(lost) or type(lost).__name__ if lost else "the stream keeps breaking off"
        return UnavailableError(
            f"no answer from {self.base_url} ({why}); is the server running there?",
            code="unreachable",
        )


def _trusted(base_url: str) -> ssl.SSLContext | bool:
    """Return whom to trust: the usual ones, or nobody where there is no TLS to be spoken.

    To read the usual ones takes longer than most commands.
    """
    if base_url.lower().startswith("http:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return True


def as_json(value: object) -> bytes:
    """Return a body, or a line of one. Raises `InvalidError` for what JSON cannot say."""
    try:
        encoded = orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise InvalidError(f"this cannot be sent as JSON: {error}") from error
    if b"null" in encoded and (number := _no_number_in(value)) is not None:
        raise InvalidError(f"this cannot be sent as JSON: {number} is no number there")
    return encoded


def _no_number_in(value: object) -> float | None:
    """Return an infinite number or a NaN, which the encoder would send as null."""
    match value:
        case float():
            return None if math.isfinite(value) else value
        case Mapping():
            within: Iterable[object] = value.values()
        case list() | tuple():
            within = value
        case _:
            return None
    return next((found for each in within if (found := _no_number_in(each)) is not None), None)


def tell_of_trouble(error: MilepostError) -> None:
    """Log the first of the failures in a row: all tries together may take minutes."""
    _log.warning("trying again: %s", error)


def asked_s(error: MilepostError) -> float | None:
    """Return when the server that refused wants to be asked again, if it said so."""
    return error.retry_after_s if isinstance(error, ApiError) else None


def filtered(filters: Mapping[str, object]) -> Params:
    """Return filters as a query: `metadata` becomes a parameter for each of its pairs."""
    metadata = filters.get("metadata") or {}
    assert isinstance(metadata, Mapping)
    plain = {name: value for name, value in filters.items() if name != "metadata"}
    return {**plain, **{f"metadata[{key}]": value for key, value in metadata.items()}}


def quoted(name: str) -> str:
    """Return a name or id as one segment of a path.

    Raises `InvalidError` for what can be none: a path has its dots taken out on the way.
    """
    if name in {"", ".", ".."} or not _is_text(name):
        raise InvalidError(f"{name!r} is no name and no id of anything")
    return quote(name, safe="")


def if_version(version: int | None) -> dict[str, str]:
    """Return the header that lets a change through only on top of this version."""
    return {} if version is None else {"If-Match": f'"{version}"'}


def _host_of(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname, parts.port
        httpx2.URL(base_url)
    except (ValueError, httpx2.InvalidURL) as error:
        raise _no_address(base_url) from error
    if parts.scheme not in {"http", "https"} or not host or port == 0:
        raise _no_address(base_url)
    return host


def _no_address(base_url: str) -> ConfigurationError:
    return ConfigurationError(
        f"{base_url!r} is no server's address; name one such as http://127.0.0.1:8000"
    )


def _authorization(api_key: str | None) -> dict[str, str]:
    if not api_key:
        return {}
    if not (api_key.isascii() and api_key.isprintable()):
        # The key itself stays unsaid: it may be a good one, with a line end behind it.
        raise ConfigurationError(
            "the API key holds characters that no key has; was something copied along with it?"
        )
    return {"Authorization": f"Bearer {api_key}"}


def _headers(method: str, media: str | None) -> dict[str, str]:
    headers = {"Accept": JSON}
    if media is not None:
        headers["Content-Type"] = media
    if method == "POST":
        headers["Idempotency-Key"] = uuid.uuid4().hex
    return headers


def _going_on(last_event_id: str | None) -> dict[str, str]:
    """Return the header that names the last event seen. Raises `InvalidError` for what is none."""
    if last_event_id is None:
        return {}
    if not (last_event_id.isascii() and last_event_id.isprintable()):
        raise InvalidError(f"{last_event_id!r} is the id of no event")
    return {"Last-Event-ID": last_event_id}


def _place(path: str, params: Params | None = None) -> httpx2.URL:
    """Return a path with its query. Raises `InvalidError` for what no address can hold."""
    query = {name: _text(value) for name, value in (params or {}).items() if value is not None}
    if not all(_is_text(word) for pair in query.items() for word in pair):
        raise InvalidError(f"this is asked for by what is no text: {query!r:.{SHOWN_MAX}}")
    try:
        return httpx2.URL(path, params=query) if query else httpx2.URL(path)
    except httpx2.InvalidURL as error:
        raise InvalidError(
            f"what is asked for is too long for an address ({error}); give shorter ids and filters"
        ) from error


def _is_text(word: str) -> bool:
    """Say whether this can be written down: half of a character's pair cannot."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _may_be_done(error: ApiError) -> bool:
    """Say whether what failed so may have been done."""
    if error.code == NOT_A_PROBLEM:
        return error.status in _ANSWER_LOST
    return error.code in _MAY_BE_DONE
