"""`Idempotency-Key` on every POST: what is asked again is done once."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx2
import pytest

from milepost.store import log
from milepost.store.records import Change
from milepost.store.store import Store
from tests.api.asking import parked, started
from tests.api.making import an_agent, made, refusal
from tests.api.serving import KeyedService, serving, settings_for
from tests.api.surface import SURFACE, stocked
from tests.store.conftest import store_at
from tests.store.making import a_park, a_worker, claims

KEY = {"idempotency-key": "order-7"}
JSON = {"content-type": "application/json"}
OPERATOR = Change("waiting", waiting_for='{"for": "operator", "pending": []}')
TENANT = "default"


@pytest.fixture
async def crashing(database_url: str) -> AsyncIterator[tuple[httpx2.AsyncClient, str, Store]]:
    """A client, and a run that has crashed its workers until nobody may take it."""
    async with (
        serving(settings_for(database_url, slots=0)) as service,
        service.client() as client,
        store_at(database_url) as store,
    ):
        run_id = await started(client, "hello")
        (claim,) = await claims(store, await a_worker(store))
        await store.append(a_park(claim, change=OPERATOR))
        yield client, run_id, store


async def letters(store: Store, run_id: str) -> list[str]:
    """Return what kinds of messages lie in the run's inbox."""
    _, found = await store.read(log.inbox(TENANT, run_id, 0))
    return [letter.kind for letter in found]


async def test_every_post_does_once_what_is_asked_again(client: httpx2.AsyncClient) -> None:
    things = await stocked(client)
    # Those need a run that is stuck, one whose tools the client runs, a user who speaks, what could
    # not be sent, a question that nobody has answered, or a run that is not over: tested apart.
    others = (
        "/retry", "/tool_results", "/channels/{channel}/messages", "/redeliver", "/withdraw",
        "/runs/{run_id}/messages",
    )  # fmt: skip
    posts = [each for each in SURFACE if each.method == "POST" and not each.path.endswith(others)]

    for endpoint in posts[::-1]:  # The run's approvals are decided before the run is stopped.
        path, body = endpoint.path_to(things), json.dumps(endpoint.body).encode()
        first, again = [await client.post(path, content=body, headers=KEY | JSON) for _ in range(2)]
        other = await client.post(path, content=body + b" ", headers=KEY | JSON)
        assert first.is_success, (str(endpoint), first.text)
        assert "idempotency-replayed" not in first.headers
        assert (again.status_code, again.headers["idempotency-replayed"]) == (
            first.status_code, "true",
        )  # fmt: skip
        assert again.headers.get("location") == first.headers.get("location")
        assert (str(endpoint), *refusal(other)) == (str(endpoint), 422, "idempotency_key_reused")


async def test_a_question_is_taken_back_once(client: httpx2.AsyncClient) -> None:
    path = f"/v1/approvals/{(await stocked(client))['approval_id']}/withdraw"

    first, again = [await client.post(path, json={}, headers=KEY) for _ in range(2)]

    assert (first.status_code, first.json()["status"]) == (200, "withdrawn")
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")


async def test_a_run_is_sent_on_once(crashing: tuple[httpx2.AsyncClient, str, Store]) -> None:
    client, run_id, store = crashing

    first, again = [await client.post(f"/v1/runs/{run_id}/retry", headers=KEY) for _ in range(2)]
    other = await client.post(f"/v1/runs/{run_id}/retry", json={}, headers=KEY)
    keyless = await client.post(f"/v1/runs/{run_id}/retry")

    assert (first.json()["status"], first.headers.get("idempotency-replayed")) == ("queued", None)
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    assert refusal(other) == (422, "idempotency_key_reused")
    assert refusal(keyless) == (409, "not_waiting_for_operator")
    assert await letters(store, run_id) == ["retry"]


async def test_a_refused_retry_leaves_its_key_free(client: httpx2.AsyncClient) -> None:
    path = f"/v1/runs/{(await parked(client))['run_id']}/retry"

    answers = [
        await client.post(path, content=content, headers=KEY | JSON) for content in (b"", b"{}")
    ]

    assert [refusal(each) for each in answers] == [(409, "not_waiting_for_operator")] * 2


async def test_a_retry_takes_no_field(client: httpx2.AsyncClient) -> None:
    path = f"/v1/runs/{(await parked(client))['run_id']}/retry"

    assert refusal(await client.post(path, json={"now": True})) == (422, "invalid_request")


async def test_the_same_cancellation_many_times_at_once_is_one(client: httpx2.AsyncClient) -> None:
    run_id = (await parked(client))["run_id"]

    async def cancel() -> httpx2.Response:
        return await client.post(f"/v1/runs/{run_id}/cancel", json={"reason": "x"}, headers=KEY)

    answers = await asyncio.gather(*(cancel() for _ in range(4)))

    assert {(each.status_code, each.json()["status"]) for each in answers} == {(200, "cancelled")}
    assert sum("idempotency-replayed" not in each.headers for each in answers) == 1


async def test_a_running_run_is_asked_once_to_stop(database_url: str) -> None:
    async with (
        serving(settings_for(database_url, slots=0)) as service,
        service.client() as client,
        store_at(database_url) as store,
    ):
        run_id = await started(client, "hello")
        await claims(store, await a_worker(store))

        answers = [await client.post(f"/v1/runs/{run_id}/cancel", headers=KEY) for _ in range(2)]

        assert [each.headers.get("idempotency-replayed") for each in answers] == [None, "true"]
        assert await letters(store, run_id) == ["cancel"]


async def test_a_cancellation_of_nothing_leaves_its_key_free(client: httpx2.AsyncClient) -> None:
    answers = [
        await client.post("/v1/runs/run_0/cancel", content=content, headers=KEY | JSON)
        for content in (b"", b"{}")
    ]

    assert [refusal(each) for each in answers] == [(404, "run_not_found")] * 2


async def test_a_key_belongs_to_one_path(client: httpx2.AsyncClient) -> None:
    runs = [(await parked(client))["run_id"] for _ in range(2)]

    answers = [await client.post(f"/v1/runs/{run_id}/cancel", headers=KEY) for run_id in runs]

    assert [each.json()["id"] for each in answers] == runs
    assert all("idempotency-replayed" not in each.headers for each in answers)


async def test_nobody_is_answered_with_what_somebody_else_asked_for(keyed: KeyedService) -> None:
    await made(keyed.acme, "/v1/agents", an_agent())
    ann, bob = [
        await keyed.holding("runs:read", "runs:write", subject=user) for user in ("ann", "bob")
    ]
    body = {"agent": "clerk", "input": "What do you know of me?"}

    first = await ann.post("/v1/runs", json=body, headers=KEY)
    again = await ann.post("/v1/runs", json=body, headers=KEY)
    others = await bob.post("/v1/runs", json=body, headers=KEY)

    assert again.json()["id"] == first.json()["id"]
    assert refusal(others) == (422, "idempotency_key_reused")
