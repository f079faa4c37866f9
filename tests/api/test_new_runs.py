"""`POST /v1/runs`: the agent as it is now, and the run that the same request made before."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from milepost.api.known_agents import KnownAgents
from milepost.core.errors import NotFoundError
from milepost.store import agents
from milepost.store.store import Store
from tests.api.making import an_agent, an_ended_run, made, refusal
from tests.api.serving import serving, settings_for
from tests.store.conftest import store_at

TIMEOUT_S = 10
TENANT = "default"
HELLO = {"agent": "clerk", "input": "hello"}
KEY = {"idempotency-key": "order-7"}
EVENTS = {"accept": "text/event-stream"}
JSON = {"accept": "application/json"}


@dataclass(frozen=True)
class Elsewhere:
    """Another process on the service's database."""

    store: Store

    async def revise(self, agent_id: str) -> None:
        """Make the agent's next version."""
        row = await self.store.read(agents.find(TENANT, agent_id))
        await self.store.write(agents.revise(TENANT, agent_id, row.definition, now_ms=1))

    async def delete(self, agent_id: str) -> None:
        """Delete the agent."""
        await self.store.write(agents.delete(TENANT, agent_id, now_ms=1))


@pytest.fixture
async def elsewhere(database_url: str) -> AsyncIterator[Elsewhere]:
    """Another process on the same database."""
    async with store_at(database_url) as store:
        yield Elsewhere(store)


@pytest.fixture
async def clerk(client: httpx2.AsyncClient) -> dict[str, Any]:
    """An agent of which the service has just made a run."""
    agent = await made(client, "/v1/agents", an_agent())
    run = await made(client, "/v1/runs", HELLO)
    assert (run["agent_version"], agent["version"]) == (1, 1)
    return agent


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("query", ["wait=soon", "wait=121", "partials=maybe"])
async def test_a_run_that_is_refused_for_its_query_is_not_made(
    client: httpx2.AsyncClient, query: str, stream: bool
) -> None:
    await made(client, "/v1/agents", an_agent())

    answer = await client.post(f"/v1/runs?{query}", json={**HELLO, "stream": stream})

    assert refusal(answer) == (400, "bad_query")
    assert (await client.get("/v1/runs")).json()["data"] == []


# --- The agent as it is now ---


@pytest.mark.parametrize("by", ["id", "name"])
async def test_a_run_after_a_change_has_the_new_version(
    client: httpx2.AsyncClient, clerk: dict[str, Any], by: str
) -> None:
    await made(client, "/v1/runs", {**HELLO, "agent": clerk[by]})

    for version in (2, 3):
        change = {"instructions": f"Version {version}."}
        await client.patch("/v1/agents/clerk", json=change)
        run = await made(client, "/v1/runs", {**HELLO, "agent": clerk[by]})
        assert (run["agent"], run["agent_version"]) == ("clerk", version)


async def test_so_has_one_after_a_change_in_another_process(
    client: httpx2.AsyncClient, clerk: dict[str, Any], elsewhere: Elsewhere
) -> None:
    await elsewhere.revise(clerk["id"])

    run = await made(client, "/v1/runs", HELLO)

    events = await client.get(f"/v1/runs/{run['id']}/events?limit=1", headers=JSON)
    assert run["agent_version"] == 2
    assert events.json()["data"][0]["data"]["agent_version"] == 2


async def test_a_deleted_agent_gets_no_run_whoever_deleted_it(
    client: httpx2.AsyncClient, clerk: dict[str, Any], elsewhere: Elsewhere
) -> None:
    await elsewhere.delete(clerk["id"])

    answers = [await client.post("/v1/runs", json=HELLO) for _ in range(2)]

    assert [refusal(answer) for answer in answers] == [(404, "agent_not_found")] * 2
    assert len((await client.get("/v1/runs")).json()["data"]) == 1


async def test_the_next_agent_of_that_name_is_another_one(
    client: httpx2.AsyncClient, clerk: dict[str, Any]
) -> None:
    await client.delete("/v1/agents/clerk")
    second = await made(client, "/v1/agents", an_agent())

    run = await made(client, "/v1/runs", HELLO)

    events = await client.get(f"/v1/runs/{run['id']}/events?limit=1", headers=JSON)
    assert events.json()["data"][0]["data"]["agent_id"] == second["id"] != clerk["id"]


async def test_runs_made_at_once_after_a_change_all_have_the_new_version(
    client: httpx2.AsyncClient, clerk: dict[str, Any], elsewhere: Elsewhere
) -> None:
    await elsewhere.revise(clerk["id"])

    runs = await asyncio.gather(*(made(client, "/v1/runs", HELLO) for _ in range(8)))

    assert {run["agent_version"] for run in runs} == {2}


async def test_agents_are_remembered_up_to_a_bound(elsewhere: Elsewhere) -> None:
    for name in ("ann", "bob", "cid"):
        work = agents.create(TENANT, name, "{}", agent_id=f"agt_{name}", now_ms=1)
        await elsewhere.store.write(work)
    known = KnownAgents(elsewhere.store, known_max=2)

    found = [await known.look_up(TENANT, name) for name in ("ann", "bob", "agt_bob", "cid")]

    remembered = [known.remembered(TENANT, name) for name in ("ann", "bob", "agt_bob", "cid")]
    assert [each.is_remembered for each in found] == [False] * 4
    assert [each and (each.id, each.is_remembered) for each in remembered] == [
        None, None, ("agt_bob", True), ("agt_cid", True),
    ]  # fmt: skip


async def test_who_looks_again_for_an_agent_forgets_no_other(elsewhere: Elsewhere) -> None:
    for name in ("ann", "bob"):
        work = agents.create(TENANT, name, "{}", agent_id=f"agt_{name}", now_ms=1)
        await elsewhere.store.write(work)
    known = KnownAgents(elsewhere.store, known_max=2)

    for name in ("ann", "bob", "bob"):
        await known.look_up(TENANT, name)

    assert known.remembered(TENANT, "ann") is not None


async def test_what_is_not_there_is_not_remembered(elsewhere: Elsewhere) -> None:
    known = KnownAgents(elsewhere.store)

    with pytest.raises(NotFoundError):
        await known.look_up(TENANT, "nobody")

    assert known.remembered(TENANT, "nobody") is None


# --- The answer ---


async def test_a_run_is_shown_at_once_as_it_is_found_later(database_url: str) -> None:
    settings = settings_for(database_url, slots=0)
    async with serving(settings) as service, service.client() as client:
        await made(client, "/v1/agents", an_agent())
        first = await made(client, "/v1/runs", {**HELLO, "metadata": {"team": "red"}})
        behind = {"session_id": first["session_id"], "deadline_s": 60, "priority": 3}
        others = [await made(client, "/v1/runs", {**HELLO, **more}) for more in (
            behind, {"delay_s": 60}, {"user": "ann"},
        )]  # fmt: skip

        found = [(await client.get(f"/v1/runs/{run['id']}")).json() for run in (first, *others)]

    assert found == [first, *others]
    assert [run["queued_reason"] for run in found] == ["ready", "blocked", "scheduled", "ready"]
    assert [run["queue_position"] for run in found] == [None, 1, None, None]


# --- What was asked before ---


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_request_is_answered_again_although_its_agent_is_gone(
    client: httpx2.AsyncClient, clerk: dict[str, Any], *, forgotten: bool
) -> None:
    first = await client.post("/v1/runs", json=HELLO, headers=KEY)
    await client.delete(f"/v1/agents/{clerk['id']}")
    if forgotten:
        await client.post("/v1/runs", json=HELLO)

    again = await client.post("/v1/runs", json=HELLO, headers=KEY)
    other = await client.post("/v1/runs", json={**HELLO, "priority": 1}, headers=KEY)
    new = await client.post("/v1/runs", json=HELLO, headers={"idempotency-key": "order-8"})

    assert again.json()["id"] == first.json()["id"]
    assert again.headers["idempotency-replayed"] == "true"
    assert refusal(other) == (422, "idempotency_key_reused")
    assert refusal(new) == (404, "agent_not_found")


async def test_a_request_is_answered_again_although_the_queue_is_full(database_url: str) -> None:
    settings = settings_for(database_url, slots=0, queue_max=1)
    async with serving(settings) as service, service.client() as client:
        await made(client, "/v1/agents", an_agent())
        first = await client.post("/v1/runs", json=HELLO, headers=KEY)

        again = await client.post("/v1/runs", json=HELLO, headers=KEY)
        new = await client.post("/v1/runs", json=HELLO)

        assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
        assert refusal(new) == (503, "queue_full")


@pytest.mark.parametrize("how", [EVENTS, {"prefer": "wait=60"}, {}])
async def test_a_request_whose_run_was_erased_is_answered_at_once(
    client: httpx2.AsyncClient, how: dict[str, str]
) -> None:
    await made(client, "/v1/agents", an_agent())
    first = await client.post("/v1/runs?wait=20", json=HELLO, headers=KEY)
    await client.delete(f"/v1/sessions/{first.json()['session_id']}")

    async with asyncio.timeout(TIMEOUT_S):
        again = await client.post("/v1/runs?wait=20", json=HELLO, headers=KEY)
        answer = await client.post("/v1/runs?wait=20", json=HELLO, headers=KEY | how)

    assert refusal(again) == refusal(answer) == (404, "run_not_found")


# --- Its log, line by line ---


async def test_a_log_of_big_events_comes_whole_line_by_line(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent(tools=[]))
    said = [{"role": "user", "content": "x" * 200_000}] * 4
    run = await an_ended_run(client, input=said)

    lines = await client.get(
        f"/v1/runs/{run['id']}/events", headers={"accept": "application/x-ndjson"}
    )
    page = await client.get(f"/v1/runs/{run['id']}/events?limit=500", headers=JSON)

    assert lines.text.count("\n") == len(page.json()["data"])
