"""Requests that wait for a run: they are held no longer than somebody waits for their answer."""

import asyncio
from collections.abc import Callable

import httpx2
import pytest

from tests.api.making import MAIL, a_waiting_run, an_agent, made, refusal
from tests.api.serving import Service

TIMEOUT_S = 10


@pytest.mark.parametrize("posted", [False, True])
async def test_a_run_is_not_followed_for_a_client_that_has_hung_up(
    service: Service, client: httpx2.AsyncClient, *, posted: bool
) -> None:
    hub = service.app._parts.ports.hub
    await made(client, "/v1/agents", an_agent())
    waiting = await a_waiting_run(client)
    await until(client, lambda: hub.listeners == 0)

    async def wait(client: httpx2.AsyncClient) -> None:
        if posted:
            body = {"agent": "clerk", "input": MAIL}
            await client.post("/v1/runs?wait=120", json=body)
        else:
            await client.get(f"/v1/runs/{waiting['id']}/wait?timeout_s=120")

    async with service.client() as other:
        asking = asyncio.create_task(wait(other))
        await until(client, lambda: hub.listeners == 1)
        asking.cancel()
        await asyncio.wait({asking})

    await until(client, lambda: hub.listeners == 0)


async def test_a_wait_that_does_not_fit_is_refused_where_another_goes_before_it(
    client: httpx2.AsyncClient,
) -> None:
    answer = await client.post(
        "/v1/runs?wait=soon", json={"agent": "demo", "input": "hello"}, headers={"prefer": "wait=1"}
    )

    assert refusal(answer) == (400, "bad_query")


async def until(client: httpx2.AsyncClient, holds: Callable[[], bool]) -> None:
    """Keep the service turning until this is so."""
    async with asyncio.timeout(TIMEOUT_S):
        while not holds():
            await client.get("/healthz")
