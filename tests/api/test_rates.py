"""Rules with rates hold exactly, however many processes judge calls at the same moment."""

import asyncio

import httpx2

from tests.api.making import an_agent, made
from tests.api.serving import serving, serving_tenants, settings_for

TENANT = "/v1/policies/tenant"
SUM = {"agent": "clerk", "input": "What is 2 + 3?"}


async def test_processes_together_let_exactly_so_many_calls_through(
    postgres_database_url: str,
) -> None:
    settings = settings_for(postgres_database_url)
    often = {"tool": "add", "rate": {"more_than": 3, "within_s": 3600}}
    async with serving_tenants(settings) as keyed, serving(settings) as other:
        key = keyed.acme.headers["authorization"].removeprefix("Bearer ")
        await made(keyed.acme, "/v1/agents", an_agent(tools=["add"]))
        await keyed.acme.put(TENANT, json={"policy": {"ask": [often]}})
        async with other.client(key) as second:
            runs = await asyncio.gather(
                *(made([keyed.acme, second][i % 2], "/v1/runs", SUM) for i in range(50))
            )
            logs = await asyncio.gather(*(until_waiting(second, run["id"]) for run in runs))

    assert sum(b"tool_call.completed" in log for log in logs) == 3
    assert sum(b"approval.requested" in log for log in logs) == 47


async def until_waiting(client: httpx2.AsyncClient, run_id: str) -> bytes:
    """Return the run's stream up to where it waits for a person, or ends."""
    async with client.stream("GET", f"/v1/runs/{run_id}/events?until=waiting") as events:
        return await events.aread()
