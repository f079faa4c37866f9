"""Memories by their meaning, over a real service whose embeddings come over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.api.making import a_budget, a_memory, an_ended_run, made
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


async def used(client: httpx2.AsyncClient, group_by: str, **wanted: str) -> list[dict[str, Any]]:
    """Return what the model of meanings has taken, in these groups."""
    asked = {"group_by": group_by, "model": "openai/little", **wanted}
    groups: list[dict[str, Any]] = (await client.get("/v1/usage", params=asked)).json()["data"]
    return groups


async def test_what_vectors_of_memories_take_is_used_by_whom_they_are_about(
    searching: Searching,
) -> None:
    client = searching.client
    anns = a_memory(scope="user", owner="ann", content="Ann drinks tea every day.")
    await made(client, "/v1/memories", anns)
    await made(client, "/v1/memories", a_memory(content="We sell coffee."))
    await searching.until_found("thirsty", "Ann drinks tea every day.")
    await searching.until_found("thirsty", "We sell coffee.")

    [anns_part, others] = await used(client, "user")

    assert (anns_part["user"], anns_part["input_tokens"], anns_part["runs"]) == ("ann", 5, 0)
    # What was searched for is nobody's in particular.
    assert (others["user"], others["runs"]) == (None, 0)
    assert others["input_tokens"] >= 3 + 1
    assert others["unpriced_calls"] == others["model_calls"] >= 2
    [whole] = await used(client, "agent,session")
    assert (whole["agent"], whole["session"]) == (None, None)


async def test_what_a_run_looks_for_by_its_meaning_is_used_by_the_run_and_counts_in_budgets(
    searching: Searching,
) -> None:
    client = searching.client
    agent = {"name": "clerk", "model": "demo/offline", "memory": {"recall": {}}}
    await made(client, "/v1/agents", agent)
    await made(client, "/v1/memories", a_memory(content="We serve tea."))
    await searching.until_found("thirsty", "We serve tea.")
    budget = await made(client, "/v1/budgets", a_budget(scope="agent", scope_value="clerk"))

    run = await an_ended_run(client, input="I am thirsty today", user="ann", metadata={"team": "a"})

    [group] = await used(client, "agent,user,session,metadata.team", agent="clerk")
    keys = {name: group[name] for name in ("agent", "user", "session", "metadata.team")}
    assert keys == {
        "agent": "clerk", "user": "ann", "session": run["session_id"], "metadata.team": "a",
    }  # fmt: skip
    assert (group["input_tokens"], group["model_calls"], group["runs"]) == (4, 1, 1)
    [own] = (await client.get("/v1/usage?group_by=agent&model=demo/offline")).json()["data"]
    assert run["usage"]["model_calls"] == own["model_calls"]
    [counter] = (await client.get(f"/v1/budgets/{budget['id']}/counters")).json()["data"]
    assert counter["spent"]["model_calls"] == own["model_calls"] + 1


async def test_where_the_model_does_not_say_what_it_took_nothing_is_written_down(
    searching: Searching,
) -> None:
    searching.server.tells = False
    await made(searching.client, "/v1/memories", a_memory(content="We serve tea."))
    await searching.until_found("thirsty", "We serve tea.")

    assert await used(searching.client, "user") == []
