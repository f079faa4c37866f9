"""Saying something to a run that is under way, over HTTP."""

from typing import Any

import httpx2
import pytest

from milepost.store.records import STEERS_MAX
from tests.api.making import a_waiting_run, an_agent, an_ended_run, made, refusal

KEY = {"idempotency-key": "say-1"}


@pytest.fixture
async def waiting(client: httpx2.AsyncClient) -> dict[str, Any]:
    """A run that waits for a yes."""
    await made(client, "/v1/agents", an_agent(policy={"ask": ["*"]}))
    return await a_waiting_run(client)


async def heard(client: httpx2.AsyncClient, run_id: str, count: int) -> list[dict[str, Any]]:
    """Return what was said to the run, once there is so much."""
    path = f"/v1/runs/{run_id}/events?types=steer.received"
    found: list[dict[str, Any]] = []
    async with client.stream("GET", f"{path}&deltas=false") as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                found.append(httpx2.Response(200, text=line.removeprefix("data: ")).json()["data"])
            if len(found) == count:
                return found
    return found


async def test_a_run_that_waits_hears_what_is_said_to_it_and_waits_on(
    client: httpx2.AsyncClient, waiting: dict[str, Any]
) -> None:
    path = f"/v1/runs/{waiting['id']}/messages"

    answer = await client.post(path, json={"content": "Make it short."})
    parts = [{"type": "text", "text": "Like"}, {"type": "image", "url": "https://a.example/b.png"}]
    more = await client.post(path, json={"content": parts})

    assert (answer.status_code, more.status_code) == (202, 202)
    said = [each.json() for each in (answer, more)]
    assert {each["run_id"] for each in said} == {waiting["id"]}
    first, second = await heard(client, waiting["id"], 2)
    assert [first["message_id"], second["message_id"]] == [each["message_id"] for each in said]
    assert (first["content"], first["images"], first["blocked"]) == ("Make it short.", [], None)
    assert (second["content"], second["images"]) == ("Like", [{"url": "https://a.example/b.png"}])


async def test_saying_it_again_under_one_key_says_it_once(
    client: httpx2.AsyncClient, waiting: dict[str, Any]
) -> None:
    path, body = f"/v1/runs/{waiting['id']}/messages", {"content": "Make it short."}

    first = await client.post(path, json=body, headers=KEY)
    again = await client.post(path, json=body, headers=KEY)
    other = await client.post(path, json={"content": "Or long."}, headers=KEY)
    await client.post(path, json={"content": "Bye."})

    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert refusal(other) == (422, "idempotency_key_reused")
    told = await heard(client, waiting["id"], 2)
    assert [each["content"] for each in told] == ["Make it short.", "Bye."]


async def test_a_run_that_is_over_hears_nothing(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent())
    run = await an_ended_run(client)

    answer = await client.post(f"/v1/runs/{run['id']}/messages", json={"content": "And now?"})
    unknown = await client.post("/v1/runs/run_none/messages", json={"content": "And now?"})

    assert refusal(answer) == (409, "run_over")
    assert refusal(unknown) == (404, "run_not_found")


async def test_a_run_takes_so_many_messages_and_no_more(
    client: httpx2.AsyncClient, waiting: dict[str, Any]
) -> None:
    path = f"/v1/runs/{waiting['id']}/messages"
    for number in range(STEERS_MAX):
        answer = await client.post(path, json={"content": f"{number}"})
        assert answer.status_code == 202, answer.text

    too_much = await client.post(path, json={"content": "One more."})

    assert refusal(too_much) == (409, "too_many_messages")
    told = await heard(client, waiting["id"], STEERS_MAX)
    assert [each["content"] for each in told] == [f"{number}" for number in range(STEERS_MAX)]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"content": ""},
        {"content": []},
        {"content": [{"type": "image", "url": "file:///etc/passwd"}]},
        {"content": "Hi.", "role": "system"},
    ],
)
async def test_what_is_no_user_s_message_is_refused(
    client: httpx2.AsyncClient, waiting: dict[str, Any], body: dict[str, Any]
) -> None:
    answer = await client.post(f"/v1/runs/{waiting['id']}/messages", json=body)

    assert answer.status_code == 422, answer.text
