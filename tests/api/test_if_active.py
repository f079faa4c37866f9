"""A run that comes to a session in which another one is: five ways, over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import orjson
import pytest
from jsonschema import ValidationError

from tests.api.making import MAIL, a_waiting_run, an_agent, an_ended_run, made, refusal
from tests.api.serving import Service, serving, settings_for
from tests.contract import require_fits

HELLO = {"agent": "clerk", "input": "Hello."}
KEY = {"idempotency-key": "turn-2"}


@pytest.fixture
async def idle(database_url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a service without workers: what is queued stays so."""
    async with serving(settings_for(database_url, slots=0)) as service, service.client() as client:
        await made(client, "/v1/agents", an_agent())
        yield client


@pytest.fixture
async def waiting(client: httpx2.AsyncClient) -> dict[str, Any]:
    """A run that waits for a yes."""
    await made(client, "/v1/agents", an_agent(policy={"ask": ["*"]}))
    return await a_waiting_run(client)


async def follow(client: httpx2.AsyncClient, run: dict[str, Any], **more: Any) -> httpx2.Response:
    """Ask for another run in this one's session."""
    return await client.post("/v1/runs", json={**HELLO, "session_id": run["session_id"], **more})


async def shown(client: httpx2.AsyncClient, run: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get(f"/v1/runs/{run['id']}")).json()
    return found


async def said(client: httpx2.AsyncClient, run: dict[str, Any], more: str = "") -> list[str]:
    """Return what users said in the run's session."""
    page = await client.get(f"/v1/sessions/{run['session_id']}/messages?{more}")
    return [each["content"] for each in page.json()["data"] if each["role"] == "user"]


async def first_event(client: httpx2.AsyncClient, run: dict[str, Any]) -> dict[str, Any]:
    headers = {"accept": "application/json"}
    log = await client.get(f"/v1/runs/{run['id']}/events?limit=1", headers=headers)
    data: dict[str, Any] = log.json()["data"][0]["data"]
    return data


async def test_by_itself_a_run_waits_for_its_turn_and_says_at_which_place(
    idle: httpx2.AsyncClient,
) -> None:
    first = await made(idle, "/v1/runs", HELLO)

    others = [(await follow(idle, first)).json() for _ in range(2)]

    assert [each["queue_position"] for each in (first, *others)] == [None, 1, 2]
    assert (await first_event(idle, others[0]))["if_active"] is None


async def test_a_run_that_is_not_to_wait_is_refused(idle: httpx2.AsyncClient) -> None:
    first = await made(idle, "/v1/runs", HELLO)

    refused = await follow(idle, first, if_active="reject")
    elsewhere = await idle.post("/v1/runs", json={**HELLO, "if_active": "reject"})

    assert refusal(refused) == (409, "session_busy")
    assert first["id"] in refused.json()["detail"]
    assert elsewhere.status_code == 202


async def test_a_refused_request_leaves_its_key_free(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent(policy={"ask": ["*"]}))
    first = await a_waiting_run(client)
    body = {**HELLO, "session_id": first["session_id"], "if_active": "reject"}

    refused = await client.post("/v1/runs", json=body, headers=KEY)
    await client.post(f"/v1/runs/{first['id']}/cancel")
    taken = await client.post("/v1/runs", json=body, headers=KEY)

    assert (refused.status_code, taken.status_code) == (409, 202)


async def test_a_run_that_interrupts_is_next_and_what_was_done_stays(
    client: httpx2.AsyncClient, waiting: dict[str, Any]
) -> None:
    blocked = (await follow(client, waiting, input="And then?")).json()

    second = (await follow(client, waiting, if_active="interrupt")).json()

    done = (await client.get(f"/v1/runs/{second['id']}/wait")).json()
    assert done["status"] == "completed", done
    for run in (waiting, blocked):
        assert (await shown(client, run))["status"] == "cancelled"
        assert (await shown(client, run))["rolled_back_by"] is None
    assert (await said(client, waiting)) == [MAIL, "And then?", HELLO["input"]]
    queued = await first_event(client, second)
    assert (queued["if_active"], queued["replaces"]) == (
        "interrupt",
        [waiting["id"], blocked["id"]],
    )


async def test_a_run_that_rolls_back_takes_the_other_s_place(
    client: httpx2.AsyncClient, waiting: dict[str, Any]
) -> None:
    second = (await follow(client, waiting, if_active="rollback")).json()

    done = (await client.get(f"/v1/runs/{second['id']}/wait")).json()
    assert done["status"] == "completed", done
    first = await shown(client, waiting)
    assert (first["status"], first["rolled_back_by"]) == ("cancelled", second["id"])
    assert (await said(client, waiting)) == [HELLO["input"]]
    assert (await said(client, waiting, "rolled_back=true")) == [MAIL, HELLO["input"]]
    assert (await said(client, waiting, f"run_id={waiting['id']}")) == [MAIL]


async def test_runs_that_nobody_holds_are_over_at_once(idle: httpx2.AsyncClient) -> None:
    first = await made(idle, "/v1/runs", HELLO)
    blocked = (await follow(idle, first)).json()

    second = (await follow(idle, first, if_active="interrupt")).json()

    assert (second["queued_reason"], second["queue_position"]) == ("ready", None)
    assert [(await shown(idle, run))["status"] for run in (first, blocked)] == ["cancelled"] * 2


async def test_what_is_said_to_the_run_under_way_is_answered_by_that_run(
    client: httpx2.AsyncClient, waiting: dict[str, Any]
) -> None:
    answer = await follow(client, waiting, input="Make it short.", if_active="steer")

    assert answer.status_code == 202
    assert answer.json()["id"] == waiting["id"]
    assert answer.headers["location"] == f"/v1/runs/{waiting['id']}"
    (message_id,) = answer.headers["milepost-steered"].split(", ")
    assert message_id.startswith("ste_")
    runs = (await client.get(f"/v1/sessions/{waiting['session_id']}/runs")).json()["data"]
    assert [run["id"] for run in runs] == [waiting["id"]]


async def test_saying_it_again_under_one_key_says_it_once(
    client: httpx2.AsyncClient, waiting: dict[str, Any]
) -> None:
    said_now = {**HELLO, "session_id": waiting["session_id"], "if_active": "steer"}

    first = await client.post("/v1/runs", json=said_now, headers=KEY)
    again = await client.post("/v1/runs", json=said_now, headers=KEY)

    assert first.json()["id"] == again.json()["id"] == waiting["id"]
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["milepost-steered"] == first.headers["milepost-steered"]
    log = f"/v1/runs/{waiting['id']}/events?types=steer.received,run.cancelled"
    await client.post(f"/v1/runs/{waiting['id']}/cancel")
    await client.get(f"/v1/runs/{waiting['id']}/wait")
    entries = (await client.get(log, headers={"accept": "application/json"})).json()["data"]
    assert [each["type"] for each in entries] == ["steer.received", "run.cancelled"]


async def test_where_nobody_is_there_to_be_told_a_run_is_made(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent())
    first = await an_ended_run(client)

    answer = await follow(client, first, if_active="steer")

    assert answer.json()["id"] != first["id"]
    assert "milepost-steered" not in answer.headers
    assert (await first_event(client, answer.json()))["if_active"] == "steer"


async def test_whoever_leaves_does_not_cancel_the_run_that_he_spoke_to(
    service: Service, client: httpx2.AsyncClient, waiting: dict[str, Any]
) -> None:
    body = {
        **HELLO, "session_id": waiting["session_id"], "if_active": "steer", "stream": True,
        "on_disconnect": "cancel",
    }  # fmt: skip

    async with client.stream("POST", "/v1/runs", json=body) as stream:
        await anext(stream.aiter_lines())
    async with service.client() as other:
        await other.post(f"/v1/runs/{waiting['id']}/messages", json={"content": "Still there?"})
        log = f"/v1/runs/{waiting['id']}/events?until=waiting"
        events = await other.get(log, headers={"accept": "application/json"})

    assert "run.cancelled" not in events.text


async def test_whoever_repeats_what_he_said_and_leaves_does_not_cancel_the_run_either(
    service: Service, client: httpx2.AsyncClient, waiting: dict[str, Any]
) -> None:
    body = {
        **HELLO, "session_id": waiting["session_id"], "if_active": "steer", "stream": True,
        "on_disconnect": "cancel",
    }  # fmt: skip

    for _ in range(2):
        async with client.stream("POST", "/v1/runs", json=body, headers=KEY) as stream:
            await anext(stream.aiter_lines())
    async with service.client() as other:
        still = await other.post(f"/v1/runs/{waiting['id']}/messages", json={"content": "Still?"})
        assert still.status_code == 202, still.text
        assert await said_to(other, waiting, 2) == [HELLO["input"], "Still?"]
        assert (await shown(other, waiting))["status"] != "cancelled"


async def said_to(client: httpx2.AsyncClient, run: dict[str, Any], count: int) -> list[str]:
    """Return what the run heard while it was under way, once it heard so much or is over."""
    path = f"/v1/runs/{run['id']}/events?types=steer.received,run.cancelled&deltas=false"
    found: list[str] = []
    async with client.stream("GET", path) as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                event = orjson.loads(line.removeprefix("data: "))
                found.append(event["data"].get("content", event["type"]))
            if len(found) == count:
                break
    return found


@pytest.mark.parametrize(
    "more",
    [
        {"if_active": "interrupt", "delay_s": 5},
        {"if_active": "steer", "input": [{"role": "system", "content": "Obey."}]},
        {"if_active": "overtake"},
    ],
)
async def test_what_does_not_fit_together_is_refused_as_the_contract_says(
    idle: httpx2.AsyncClient, more: dict[str, Any]
) -> None:
    body = {**HELLO, **more}
    answer = await idle.post("/v1/runs", json=body)

    assert answer.status_code == 422, answer.text
    with pytest.raises(ValidationError):
        require_fits("RunCreate", body)


@pytest.mark.parametrize(
    "more",
    [
        {"if_active": "enqueue", "delay_s": 5},
        {"if_active": "interrupt", "delay_s": None},
        {"if_active": "steer", "input": [{"role": "user", "content": "Wait."}]},
        {"if_active": "interrupt", "input": [{"role": "system", "content": "Obey."}]},
        {"delay_s": 5},
    ],
)
async def test_what_fits_together_is_taken_as_the_contract_says(
    idle: httpx2.AsyncClient, more: dict[str, Any]
) -> None:
    body = {**HELLO, **more}
    answer = await idle.post("/v1/runs", json=body)

    assert answer.status_code == 202, answer.text
    require_fits("RunCreate", body)
