"""Embeddings: texts as vectors, whose nearness is a likeness of meaning; over OpenAI's wire."""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from httptools import HttpParserError

from milepost.core.errors import ConfigurationError
from milepost.providers.declared import DeclaredProvider
from milepost.providers.failures import Failures
from milepost.providers.http import Http
from milepost.providers.http_connection import Answer
from milepost.providers.payload import count

TEXTS_MAX = 64
TIMEOUT_S = 10.0
BODY_BYTES_MAX = 16_777_216
DIMENSIONS_MAX = 4_096

Vector = Sequence[float]


@dataclass(frozen=True, slots=True)
class Embedded:
    """A vector for each text, and how many tokens these took; None: the model does not say.

    A text that means nothing to the model has an empty one.
    """

    vectors: Sequence[Vector]
    tokens: int | None = None


class Embeddings(Protocol):
    """A model of meanings."""

    @property
    def model(self) -> str:
        """What it is called, `<provider>/<model>`: vectors of two models cannot be compared."""

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return a vector of length one for each text. Raises `ProviderError`."""


class OpenAIEmbeddings:
    """A model behind `/embeddings`, as OpenAI and most local servers have it."""

    def __init__(self, http: Http, model: str, declared: DeclaredProvider) -> None:
        self.model = model
        name, _, self._named = model.partition("/")
        key = declared.api_key
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._destination = http.to(declared.base_url.rstrip("/"), headers)
        self._failures = Failures(name, key, http.headers.values())

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return a vector of length one for each text. Raises `ProviderError`."""
        if not texts:
            return Embedded(())
        assert len(texts) <= TEXTS_MAX, "more go in several requests"
        body = orjson.dumps(
            {"model": self._named, "input": list(texts), "encoding_format": "float"}
        )
        told = await self._asked(body)
        return Embedded(_vectors(told, len(texts), self._failures), _tokens(told))

    async def _asked(self, body: bytes) -> bytes:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await self._destination.post("/embeddings", body)
                with closing(answer):
                    told = await _read(answer, self._failures)
        except TimeoutError as error:
            raise self._failures.timed_out("answer", TIMEOUT_S) from error
        except (HttpParserError, OSError) as error:
            raise self._failures.unreachable(error) from error
        if answer.status != 200:
            raise self._failures.refused(answer.status, answer.headers, told)
        return told


async def _read(answer: Answer, failures: Failures) -> bytes:
    told = b""
    while piece := await answer.readany():
        told += piece
        if len(told) > BODY_BYTES_MAX:
            raise failures.unreadable(f"more than {BODY_BYTES_MAX} bytes of vectors", b"")
    return told


def _vectors(told: bytes, texts: int, failures: Failures) -> list[Vector]:
    """Return the answer's vectors in the order of the texts, whatever order they come in."""
    try:
        by_place = {each["index"]: _unit(each["embedding"]) for each in _data(told)}
        return [by_place[place] for place in range(texts)]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise failures.unreadable("no embeddings", told[:200]) from error


def _data(told: bytes) -> Sequence[Mapping[str, Any]]:
    data: Sequence[Mapping[str, Any]] = orjson.loads(told)["data"]
    return data


def _tokens(told: bytes) -> int | None:
    """Return how many tokens went in, where the answer says so in a way that makes sense.

    Some say only the sum, which is the same: nothing but vectors comes out.
    """
    usage = orjson.loads(told).get("usage")
    if not isinstance(usage, dict):
        return None
    return count(usage, "prompt_tokens") or count(usage, "total_tokens") or None


def _unit(values: Sequence[Any]) -> Vector:
    if not 0 < len(values) <= DIMENSIONS_MAX:
        raise ValueError("a vector has some dimensions, and not too many")
    length = math.hypot(*values)
    if not math.isfinite(length):
        raise ValueError("a vector has a length")
    # One text that points nowhere would else hold up all that are asked about with it, for good.
    return [value / length for value in values] if length else ()


@asynccontextmanager
async def open_embeddings(
    model: str, declared: Mapping[str, DeclaredProvider]
) -> AsyncIterator[Embeddings | None]:
    """Yield the model, and end its connections; None where none is named.

    Raises `ConfigurationError` for a provider that is not there, or does not speak OpenAI's wire.
    """
    if not model:
        yield None
        return
    name, _, named = model.partition("/")
    provider = declared.get(name)
    if provider is None or not named:
        raise ConfigurationError(
            f"embeddings are to come from {model!r}; name a provider that is declared and its"
            f" model, such as openai/text-embedding-3-small. There are: {', '.join(declared)}"
        )
    if provider.wire not in {"openai", "responses"}:
        raise ConfigurationError(
            f"the provider {name} speaks the wire {provider.wire}, which has no embeddings; name"
            " one that speaks OpenAI's"
        )
    async with Http(provider.headers) as http:
        yield OpenAIEmbeddings(http, model, provider)
