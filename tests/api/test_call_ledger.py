"""`/v1/runs/{id}/tool_calls`: what became of the calls that a run's model asked for."""

from typing import Any

import httpx2
import pytest

from tests.api.making import a_waiting_run, an_agent, an_ended_run, made, refusal
from tests.api.serving import KeyedService


@pytest.fixture
async def clerk(client: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """A client of a service that has an agent."""
    await made(client, "/v1/agents", an_agent())
    return client


async def calls_of(client: httpx2.AsyncClient, run_id: str, query: str = "") -> dict[str, Any]:
    answer = await client.get(f"/v1/runs/{run_id}/tool_calls{query}")
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def test_a_call_that_is_over_shows_its_attempts_and_its_result(
    clerk: httpx2.AsyncClient,
) -> None:
    run = await an_ended_run(clerk)

    [call] = (await calls_of(clerk, run["id"]))["data"]

    assert (call["call_id"], call["tool"], call["state"]) == ("call_1_0", "add", "completed")
    assert call["arguments"] == {"a": 2, "b": 3}
    assert call["result"] == 5
    [attempt] = call["attempts"]
    assert (attempt["attempt"], attempt["outcome"]) == (1, "completed")
    assert attempt["started_at"] <= attempt["ended_at"] == call["ended_at"]
    assert len(call["idempotency_key"]) == 32
    assert (await clerk.get(f"/v1/runs/{run['id']}/tool_calls/call_1_0")).json() == call


async def test_a_call_that_waits_names_its_approval(clerk: httpx2.AsyncClient) -> None:
    run = await a_waiting_run(clerk)
    [approval] = (await clerk.get("/v1/approvals?status=pending")).json()["data"]

    [call] = (await calls_of(clerk, run["id"], "?state=waiting"))["data"]

    assert call["approval_ids"] == [approval["id"]]
    assert (call["effect"], call["attempts"], call["ended_at"]) == (None, [], None)


async def test_calls_are_filtered_and_paged_in_the_order_in_which_they_were_asked_for(
    clerk: httpx2.AsyncClient,
) -> None:
    said = "What is 2 + 3? What is 4 + 5? What is 6 + 7?"
    run = await an_ended_run(clerk, input=said)
    whole = [each["call_id"] for each in (await calls_of(clerk, run["id"]))["data"]]

    seen: list[str] = []
    query = "?limit=1"
    while True:
        page = await calls_of(clerk, run["id"], query)
        seen += [each["call_id"] for each in page["data"]]
        if not page["has_more"]:
            break
        query = f"?limit=1&after={page['next_cursor']}"

    assert seen == whole
    newest = await calls_of(clerk, run["id"], "?order=desc&state=completed&tool=add")
    assert [each["call_id"] for each in newest["data"]] == whole[::-1]
    assert (await calls_of(clerk, run["id"], "?state=failed"))["data"] == []
    assert (await calls_of(clerk, run["id"], "?tool=mail"))["data"] == []


async def test_what_is_not_there_is_not_found_and_a_wrong_question_refused(
    clerk: httpx2.AsyncClient,
) -> None:
    run = await an_ended_run(clerk)
    path = f"/v1/runs/{run['id']}/tool_calls"

    assert refusal(await clerk.get(f"{path}/call_9_9")) == (404, "call_not_found")
    assert refusal(await clerk.get("/v1/runs/run_0/tool_calls")) == (404, "run_not_found")
    assert refusal(await clerk.get(f"{path}?state=lost")) == (400, "bad_query")


async def test_another_tenant_sees_no_calls(keyed: KeyedService) -> None:
    await made(keyed.acme, "/v1/agents", an_agent())
    run = await an_ended_run(keyed.acme)
    path = f"/v1/runs/{run['id']}/tool_calls"

    assert refusal(await keyed.globex.get(path)) == (404, "run_not_found")
    assert refusal(await keyed.globex.get(f"{path}/call_1_0")) == (404, "run_not_found")
