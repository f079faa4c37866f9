"""Memories by their meaning, over a real service whose embeddings come over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx2
import pytest

from tests.api.making import a_memory, made
from tests.api.serving import serving, settings_for
from tests.stubs.embeddings_server import EmbeddingsServer, embeddings_server

WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Searching:
    """A service, and the server of its embeddings."""

    client: httpx2.AsyncClient
    server: EmbeddingsServer

    async def found(self, query: str) -> list[str]:
        """Return what is found."""
        answer = await self.client.get("/v1/memories", params={"q": query})
        return [each["content"] for each in answer.json()["data"]]

    async def until_found(self, query: str, content: str) -> None:
        """Wait until this is found: vectors are made behind whoever keeps a memory."""
        async with asyncio.timeout(WAIT_S):
            while True:
                if content in await self.found(query):
                    return
                await asyncio.sleep(0.05)


@pytest.fixture
async def searching(database_url: str) -> AsyncIterator[Searching]:
    """A service with embeddings."""
    async with embeddings_server() as server:
        settings = settings_for(
            database_url,
            embeddings="openai/little",
            openai_api_key="not-a-real-key",
            openai_base_url=server.base_url,
        )
        async with serving(settings) as service, service.client() as client:
            yield Searching(client, server)


async def test_what_has_words_and_meaning_comes_before_what_has_one_of_them(
    searching: Searching,
) -> None:
    for content in ("The beverage list is long.", "We serve tea.", "The cat sleeps."):
        await made(searching.client, "/v1/memories", a_memory(content=content))
    await searching.until_found("thirsty", "We serve tea.")
    await searching.until_found("thirsty", "The beverage list is long.")

    assert (await searching.found("beverage"))[:2] == [
        "The beverage list is long.", "We serve tea.",
    ]  # fmt: skip
    assert searching.server.keys[0] == "Bearer not-a-real-key"


async def test_without_the_model_words_are_enough(searching: Searching) -> None:
    searching.server.broken = True
    await made(searching.client, "/v1/memories", a_memory(content="We serve tea."))

    assert await searching.found("tea") == ["We serve tea."]
    assert await searching.found("thirsty") == []
