"""Learning over HTTP: an agent that notes what it hears, and is told of it later."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.making import an_agent, made
from tests.api.serving import serving, settings_for
from tests.contract import require_fits
from tests.stubs.directed_model import DirectedModel, directed_model

WAIT_S = 30.0
TAUGHT = {
    "entities": [{"name": "Ann", "type": "person", "description": "a painter", "message": 0}],
    "relations": [{"subject": "Ann", "predicate": "lives in", "object": "Oslo", "message": 0}],
    "facts": [{"text": "Ann is allergic to nuts.", "lasting": True, "message": 0}],
}


@dataclass(frozen=True, slots=True)
class Learning:
    """A service with an agent that learns, and the model that it asks."""

    client: httpx2.AsyncClient
    model: DirectedModel

    async def said(self, text: str, **changes: Any) -> dict[str, Any]:
        """Let the clerk answer, and return the run once it is over."""
        body = {"agent": "clerk", "input": text, "user": "ann", **changes}
        run = await made(self.client, "/v1/runs?wait=20", body)
        assert run["status"] == "completed", run
        return run

    async def read(self, run: dict[str, Any]) -> dict[str, Any]:
        """Return the memory run that has read this one, once it is over."""
        async with asyncio.timeout(WAIT_S):
            while True:
                found = (await self.client.get(f"/v1/runs?parent_run_id={run['id']}")).json()
                for reader in found["data"]:
                    if reader["ended_at"]:
                        shown: dict[str, Any] = reader
                        return shown
                await asyncio.sleep(0.05)

    async def memories(self, **params: Any) -> list[dict[str, Any]]:
        """Return what is known, the oldest first."""
        return await self.found(order="asc", **params)

    async def found(self, **params: Any) -> list[dict[str, Any]]:
        """Return what is known, as it is asked for."""
        answer = await self.client.get("/v1/memories", params=params)
        listed: list[dict[str, Any]] = answer.json()["data"]
        return listed

    @property
    def shown(self) -> list[str]:
        """What the model was shown by its last request, a text a message."""
        return [str(message["content"]) for message in self.model.requests[-1]["messages"]]


@pytest.fixture
async def learning(database_url: str, tmp_path: Path) -> AsyncIterator[Learning]:
    """A service whose agent learns for its users."""
    async with directed_model() as model:
        settings = settings_for(
            database_url,
            toolbox="remember,recall",
            openai_api_key="not-a-real-key",
            openai_base_url=model.base_url,
        )
        async with serving(settings) as service, service.client() as client:
            agent = an_agent(
                model="openai/stub",
                tools=["remember", "recall"],
                memory={"extract": {"scope": "user"}},
            )
            await made(client, "/v1/agents", agent)
            model.structured = json.dumps(TAUGHT)
            yield Learning(client, model)


async def test_an_agent_shows_what_it_learns_and_what_it_is_told(learning: Learning) -> None:
    agent = (await learning.client.get("/v1/agents/clerk")).json()

    assert agent["memory"]["extract"] == {
        "model": "openai/stub", "entities": True, "relations": True, "facts": True, "scope": "user",
    }  # fmt: skip
    assert agent["memory"]["recall"] == {
        "scopes": ["session", "user", "agent", "tenant"], "recent_days": 2,
    }  # fmt: skip


async def test_sessions_of_runs_that_learn_are_not_among_a_user_s_chats(learning: Learning) -> None:
    run = await learning.said("I am Ann.")
    reader = await learning.read(run)

    async def listed(query: str) -> list[tuple[str, str]]:
        page = (await learning.client.get(f"/v1/sessions?user=ann{query}")).json()
        return [(each["kind"], each["id"]) for each in page["data"]]

    chat, child = ("chat", run["session_id"]), ("child", reader["session_id"])
    assert await listed("") == await listed("&kind=chat") == [chat]
    assert await listed("&kind=child") == [child]
    assert await listed("&kind=any") == [child, chat]
    assert await listed("&kind=trial") == []


async def test_the_log_of_a_run_that_learns_is_as_is_promised(learning: Learning) -> None:
    run = await learning.said("I am Ann.")
    reader = await learning.read(run)

    answer = await learning.client.get(
        f"/v1/runs/{reader['id']}/events", headers={"accept": "application/json"}
    )

    events = answer.json()["data"]
    for event in events:
        require_fits(event["type"], event)
    assert events[0]["data"]["parent"]["run_id"] == run["id"]


async def test_what_is_learned_in_one_session_is_told_in_another(learning: Learning) -> None:
    run = await learning.said("I am Ann.")
    reader = await learning.read(run)

    other = await learning.said("Where does Ann live?")

    assert other["session_id"] != run["session_id"]
    assert reader["agent"] == "memory:clerk"
    assert reader["status"] == "completed", reader
    assert [each["source"]["message"] for each in await learning.memories()] == ["1.0"] * 3
    requests = [each for each in learning.model.requests if "response_format" not in each]
    [block] = [
        str(message["content"])
        for message in requests[-1]["messages"]
        if "[Known Entities]" in str(message["content"])
    ]
    assert "- Ann (person): a painter" in block
    assert "- Ann — lives in — Oslo" in block
    assert "[Important Knowledge]\n- Ann is allergic to nuts." in block


async def test_what_is_known_of_one_user_is_not_told_to_another(learning: Learning) -> None:
    await learning.read(await learning.said("I am Ann."))

    await learning.said("Where does Ann live?", user="ben")

    requests = [each for each in learning.model.requests if "response_format" not in each]
    assert "Oslo" not in json.dumps(requests[-1]["messages"])


async def test_the_model_keeps_and_finds_with_tools(learning: Learning) -> None:
    kept = await learning.said('call remember {"fact": "The parcel comes on Friday."}')
    found = await learning.said('call recall {"query": "parcel"}')
    other = await learning.said('call recall {"query": "parcel"}', user="ben")

    assert "Noted, in the memory of the user: The parcel" in kept["output"]["text"]
    assert "- The parcel comes on Friday." in found["output"]["text"]
    assert "Nothing is known about that." in other["output"]["text"]
    [memory] = await learning.found(q="parcel", kind="fact")
    assert (memory["source"]["origin"], memory["source"]["run_id"]) == ("tool", kept["id"])


async def test_a_run_for_nobody_learns_nothing_for_users(learning: Learning) -> None:
    run = await learning.said("I am Ann.", user=None)

    answer = await learning.client.get(f"/v1/runs/{run['id']}/events")

    assert '"reason":"no_user"' in answer.text
    assert await learning.memories() == []


async def test_who_learns_answers_even_if_nothing_can_be_learned(learning: Learning) -> None:
    learning.model.structured = "this is no JSON"

    run = await learning.said("I am Ann.")
    reader = await learning.read(run)

    assert run["output"]["text"].startswith("said: I am Ann.")
    assert reader["status"] != "completed"
    assert await learning.memories() == []


async def test_a_deleted_session_takes_the_run_that_read_it_along(learning: Learning) -> None:
    run = await learning.said("I am Ann.")
    reader = await learning.read(run)

    await learning.client.delete(f"/v1/sessions/{run['session_id']}")

    gone = await learning.client.get(f"/v1/runs/{reader['id']}")
    assert gone.status_code == 404
    assert len(await learning.memories(user="ann")) == 3


async def test_the_log_of_a_run_that_learns_plays_again_as_it_was(learning: Learning) -> None:
    run = await learning.said("I am Ann.")
    nobodys = await learning.said("I am nobody.", user=None)
    reader = await learning.read(run)

    for each in (run, nobodys, reader):
        replayed = await made(learning.client, f"/v1/runs/{each['id']}/replay", {})
        assert (replayed["identical"], replayed["divergence"]) == (True, None)
