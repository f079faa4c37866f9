"""Embeddings over OpenAI's wire: what is asked, how it is read, and what is refused."""

import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from milepost.core.errors import ConfigurationError, ProviderError
from milepost.providers.declared import DeclaredProvider
from milepost.providers.embeddings import Embedded, Embeddings, open_embeddings
from milepost.providers.payload import TOKENS_MAX
from tests.stubs.embeddings_server import EmbeddingsServer, embeddings_server

MODEL = "stub/little"


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingsServer]:
    """A server of meanings."""
    async with embeddings_server() as server:
        yield server


@pytest.fixture
async def embeddings(server: EmbeddingsServer) -> AsyncIterator[Embeddings]:
    """A model behind it."""
    declared = {"stub": DeclaredProvider("openai", server.base_url, "a-key")}
    async with open_embeddings(MODEL, declared) as embeddings:
        assert embeddings is not None
        yield embeddings


async def test_each_text_has_its_vector_of_length_one(
    embeddings: Embeddings, server: EmbeddingsServer
) -> None:
    made = await embeddings.embed(["tea", "a cat and a dog"])

    vectors = made.vectors
    assert made.tokens == 6
    assert [vector.index(max(vector)) for vector in vectors] == [0, 1]
    assert all(math.isclose(math.hypot(*vector), 1) for vector in vectors)
    assert server.requests == [
        {"model": "little", "input": ["tea", "a cat and a dog"], "encoding_format": "float"}
    ]
    assert server.keys == ["Bearer a-key"]
    assert await embeddings.embed([]) == Embedded(())


@pytest.mark.parametrize(
    "usage",
    [
        None, {}, [], "3", {"prompt_tokens": "3"}, {"prompt_tokens": -1}, {"prompt_tokens": 0},
        {"prompt_tokens": True}, {"prompt_tokens": TOKENS_MAX + 1},
    ],
)  # fmt: skip
async def test_tokens_of_which_nothing_sensible_is_said_are_not_known(
    embeddings: Embeddings, server: EmbeddingsServer, usage: Any
) -> None:
    server.answer = {"data": [{"index": 0, "embedding": [1.0]}], "usage": usage}

    assert await embeddings.embed(["tea"]) == Embedded([[1.0]])


async def test_a_text_that_points_nowhere_keeps_no_other_from_its_vector(
    embeddings: Embeddings, server: EmbeddingsServer
) -> None:
    nowhere = {"index": 0, "embedding": [0.0, 0.0]}
    server.answer = {"data": [nowhere, {"index": 1, "embedding": [2.0, 0.0]}]}

    assert await embeddings.embed(["🙂", "tea"]) == Embedded([(), [1.0, 0.0]])


async def test_a_server_that_tells_the_sum_alone_tells_what_went_in(
    embeddings: Embeddings, server: EmbeddingsServer
) -> None:
    """As Voyage's does."""
    server.answer = {"data": [{"index": 0, "embedding": [1.0]}], "usage": {"total_tokens": 7}}

    assert (await embeddings.embed(["tea"])).tokens == 7


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"data": []},
        {"data": [{"index": 1, "embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": []}]},
        {"data": [{"index": 0, "embedding": ["a"]}]},
        {"data": [{"index": 0, "embedding": [1.0] * 5_000}]},
        [],
    ],
)
async def test_an_answer_without_sense_is_refused(
    embeddings: Embeddings, server: EmbeddingsServer, answer: Any
) -> None:
    server.answer = answer

    with pytest.raises(ProviderError, match="no embeddings"):
        await embeddings.embed(["tea"])


async def test_a_server_that_fails_is_named(
    embeddings: Embeddings, server: EmbeddingsServer
) -> None:
    server.broken = True

    with pytest.raises(ProviderError, match="out of order") as caught:
        await embeddings.embed(["tea"])
    assert caught.value.retryable


async def test_a_server_that_is_not_there_is_named() -> None:
    declared = {"stub": DeclaredProvider("openai", "http://127.0.0.2:9/v1")}
    async with open_embeddings(MODEL, declared) as embeddings:
        assert embeddings is not None
        with pytest.raises(ProviderError, match="stub"):
            await embeddings.embed(["tea"])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("nobody/little", "name a provider that is declared"),
        ("stub", "name a provider that is declared"),
        ("stub/", "name a provider that is declared"),
        ("other/little", "which has no embeddings"),
    ],
)
async def test_a_model_that_cannot_be_asked_is_refused_at_once(model: str, words: str) -> None:
    declared = {
        "stub": DeclaredProvider("openai", "http://127.0.0.2:9/v1"),
        "other": DeclaredProvider("anthropic", "http://127.0.0.2:9"),
    }

    with pytest.raises(ConfigurationError, match=words):
        async with open_embeddings(model, declared):
            pass


async def test_without_a_model_there_is_none() -> None:
    async with open_embeddings("", {}) as embeddings:
        assert embeddings is None
